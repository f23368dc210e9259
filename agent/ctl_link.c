/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl's way to the agent: one request, records, an end. Every wait is bounded: an agent that
 * is stopped must not hang a script. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/ctl.h"
#include "common/cleanup.h"
#include "common/ipv4.h"
#include "common/wire.h"

enum mpib_ctl_exit mpib_ctl_fail(struct mpib_ctl *ctl, int error, const char *what)
{
	switch (error) {
	case -ENOENT:
	case -ECONNREFUSED:
	case -ENOTDIR:
		(void)mpib_cause_set(&ctl->cause, error,
				     "no agent serves %s (%s: %s); start it: systemctl start "
				     "mpib-agentd",
				     ctl->dir, what, strerror(-error));
		return MPIB_CTL_NO_AGENT;
	case -EACCES:
	case -EPERM:
		(void)mpib_cause_set(&ctl->cause, error, "%s in %s: %s", what, ctl->dir,
				     strerror(-error));
		return MPIB_CTL_FORBIDDEN;
	case -EAGAIN:
	case -ETIMEDOUT:
		(void)mpib_cause_set(&ctl->cause, error,
				     "the agent at %s doesn't answer; is it stopped?", ctl->dir);
		return MPIB_CTL_FAILURE;
	default:
		(void)mpib_cause_set(&ctl->cause, error, "%s in %s: %s", what, ctl->dir,
				     strerror(-error));
		return MPIB_CTL_FAILURE;
	}
}

enum mpib_ctl_exit mpib_ctl_flow_argument(struct mpib_ctl *ctl, struct mpib_admin_flow_request *ret)
{
	*ret = (struct mpib_admin_flow_request){ 0 };
	if (mpib_flow_parse(ctl->arguments[0], &ret->src_be, &ret->dst_be) == 0 && ret->src_be &&
	    ret->dst_be)
		return MPIB_CTL_OK;

	(void)mpib_cause_set(&ctl->cause, -EINVAL,
			     "\"%s\" is no flow; write both SOUT addresses, as in "
			     "10.0.1.1-10.0.2.5",
			     ctl->arguments[0]);
	return MPIB_CTL_USAGE;
}

static int link_open(const struct mpib_ctl *ctl, unsigned int timeout_sec, int *ret_fd)
{
	mpib_cleanup(mpib_closep) int fd = -1;
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval timeout = { .tv_sec = timeout_sec };
	int len = snprintf(address.sun_path, sizeof(address.sun_path), "%s/" MPIB_SOCKET_NAME,
			   ctl->dir);

	if (len < 0 || (size_t)len >= sizeof(address.sun_path))
		return -ENAMETOOLONG;

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;

	*ret_fd = mpib_steal_fd(&fd);
	return 0;
}

static int read_exact(int fd, void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = recv(fd, (char *)buf + done, len - done, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -ECONNRESET;
		done += (size_t)n;
	}

	return 0;
}

/* One whole frame into @buf; its length is in its header. */
static int read_frame(int fd, uint8_t *buf, size_t cap, size_t *ret_len)
{
	size_t len;
	int r;

	r = read_exact(fd, buf, sizeof(struct mpib_msg_header));
	if (r < 0)
		return r;
	if (mpib_wire_frame(buf, sizeof(struct mpib_msg_header), &len) < 0 || len > cap)
		return -EBADMSG;

	*ret_len = len;
	return read_exact(fd, buf + sizeof(struct mpib_msg_header),
			  len - sizeof(struct mpib_msg_header));
}

static int take_records(struct mpib_ctl *ctl, const uint8_t *frame, size_t len, void *record,
			size_t size, void (*take)(struct mpib_ctl *ctl, const void *record))
{
	struct mpib_admin_records head;

	if (len < sizeof(head))
		return -EBADMSG;
	memcpy(&head, frame, sizeof(head));
	if (len != sizeof(head) + (size_t)head.record_size * head.count)
		return -EBADMSG;

	for (size_t n = 0; n < head.count; n++) {
		memset(record, 0, size);
		memcpy(record, frame + sizeof(head) + n * head.record_size,
		       head.record_size < size ? head.record_size : size);
		take(ctl, record);
	}

	return 0;
}

static enum mpib_ctl_exit take_end(struct mpib_ctl *ctl, const uint8_t *frame, size_t len)
{
	struct mpib_admin_end end;

	if (len < sizeof(end) || len - sizeof(end) > MPIB_ADMIN_TEXT_MAX)
		return mpib_ctl_fail(ctl, -EBADMSG, "answer of the agent");

	memcpy(&end, frame, sizeof(end));
	(void)mpib_cause_set(&ctl->cause, 0, "%.*s", (int)(len - sizeof(end)),
			     (const char *)frame + sizeof(end));
	if (end.verdict == MPIB_ADMIN_OK)
		return MPIB_CTL_OK;
	return end.verdict == MPIB_ADMIN_FORBIDDEN ? MPIB_CTL_FORBIDDEN : MPIB_CTL_FAILURE;
}

enum mpib_ctl_exit mpib_ctl_ask(struct mpib_ctl *ctl, enum mpib_admin_type request,
				const struct mpib_admin_flow_request *about, void *record,
				size_t size, void (*take)(struct mpib_ctl *ctl, const void *record),
				unsigned int timeout_sec)
{
	mpib_cleanup(mpib_closep) int fd = -1;
	mpib_cleanup(mpib_freep) uint8_t *frame = NULL;
	struct mpib_admin_flow_request message = { 0 };
	struct mpib_msg_header got;
	size_t len;
	int r;

	r = link_open(ctl, timeout_sec, &fd);
	if (r < 0)
		return mpib_ctl_fail(ctl, r, MPIB_SOCKET_NAME);

	frame = malloc(UINT16_MAX);
	if (!frame)
		return mpib_ctl_fail(ctl, -ENOMEM, "memory");
	if (about)
		message = *about;
	message.header = (struct mpib_msg_header){
		.magic = MPIB_MSG_MAGIC,
		.msg_len = (uint16_t)(about ? sizeof(message) : sizeof(message.header)),
		.msg_type = (uint8_t)request,
	};
	if (send(fd, &message, message.header.msg_len, MSG_NOSIGNAL) != message.header.msg_len)
		return mpib_ctl_fail(ctl, -errno, "request");

	for (;;) {
		r = read_frame(fd, frame, UINT16_MAX, &len);
		if (r < 0)
			return mpib_ctl_fail(ctl, r, "answer of the agent");

		memcpy(&got, frame, sizeof(got));
		if (got.msg_type == MPIB_ADMIN_END)
			return take_end(ctl, frame, len);
		if (got.msg_type == MPIB_MSG_RESPONSE) {
			(void)mpib_cause_set(&ctl->cause, -ENOTSUP,
					     "the agent at %s is too old for this command",
					     ctl->dir);
			return MPIB_CTL_FAILURE;
		}
		r = got.msg_type == MPIB_ADMIN_RECORDS
			    ? take_records(ctl, frame, len, record, size, take)
			    : -EBADMSG;
		if (r < 0)
			return mpib_ctl_fail(ctl, r, "answer of the agent");
		if (ctl->stop)
			return MPIB_CTL_OK;
	}
}
