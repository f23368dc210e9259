/* SPDX-License-Identifier: Apache-2.0 */
/* Packets between the loop's side of the keeper, its process, and the children of that. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "agent/keeper/keeper_impl.h"

union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(MPIB_KEEPER_BATCH * sizeof(int))];
};

int mpib_keeper_send(int channel, const struct iovec *parts, size_t n_parts, const int *fds,
		     size_t n_fds, int flags)
{
	union control control = { .header = { .cmsg_len = CMSG_LEN(n_fds * sizeof(int)),
					      .cmsg_level = SOL_SOCKET,
					      .cmsg_type = SCM_RIGHTS } };
	struct msghdr packet = {
		.msg_iov = (struct iovec *)(uintptr_t)parts,
		.msg_iovlen = n_parts,
	};
	ssize_t n;

	if (n_fds) {
		memcpy(CMSG_DATA(&control.header), fds, n_fds * sizeof(int));
		packet.msg_control = &control;
		packet.msg_controllen = control.header.cmsg_len;
	}
	do {
		n = sendmsg(channel, &packet, flags | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR && !(flags & MSG_DONTWAIT));
	return n < 0 ? -errno : 0;
}

ssize_t mpib_keeper_receive(int channel, const struct iovec *parts, size_t n_parts, int *fds,
			    size_t *n_fds)
{
	union control control;
	struct msghdr packet = {
		.msg_iov = (struct iovec *)(uintptr_t)parts,
		.msg_iovlen = n_parts,
		.msg_control = &control,
		.msg_controllen = CMSG_LEN(*n_fds * sizeof(int)),
	};
	const struct cmsghdr *header;
	ssize_t n = recvmsg(channel, &packet, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	*n_fds = 0;
	if (n < 0)
		return -errno;

	header = CMSG_FIRSTHDR(&packet);
	if (header) {
		*n_fds = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds, CMSG_DATA(header), *n_fds * sizeof(int));
	}
	return n;
}
