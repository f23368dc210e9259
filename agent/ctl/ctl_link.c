/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl's way to the agent: one request, records, an end. Every wait is a vigil: an agent that
 * is stopped must not hang a script. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "agent/ctl/vigil.h"
#include "agent/state/holder.h"
#include "common/cleanup.h"
#include "common/ipv4.h"
#include "common/wire.h"

enum mpib_ctl_exit mpib_ctl_fail(struct mpib_ctl *ctl, int error, const char *what)
{
	pid_t pid;

	switch (error) {
	case -ENOENT:
	case -ECONNREFUSED:
	case -ENOTDIR:
		pid = mpib_holder_pid(ctl->dir);
		if (pid) {
			(void)mpib_cause_set(&ctl->cause, error,
					     "mpib-agentd (pid %ld) holds %s, but %s: %s; it makes "
					     "that anew within a second, unless it is stopped or "
					     "hangs: systemctl restart mpib-agentd",
					     (long)pid, ctl->dir, what, strerror(-error));
			return MPIB_CTL_FAILURE;
		}
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

/* Connects, and tells the vigil to whom. A queue that is full has no event to wait for: tried again
 * ten times a second. */
static int link_open(struct mpib_vigil *vigil, int *ret_fd)
{
	const struct timespec pause = { .tv_nsec = 100000000 };
	mpib_cleanup(mpib_closep) int fd = -1;
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int len = snprintf(address.sun_path, sizeof(address.sun_path), "%s/" MPIB_SOCKET_NAME,
			   vigil->ctl->dir);

	if (len < 0 || (size_t)len >= sizeof(address.sun_path))
		return -ENAMETOOLONG;

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	while (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		if (!vigil->pid)
			mpib_vigil_name(vigil, -1);
		if (mpib_vigil_look(vigil) < 0)
			return -ETIMEDOUT;
		(void)nanosleep(&pause, NULL);
	}

	mpib_vigil_name(vigil, fd);
	*ret_fd = mpib_steal_fd(&fd);
	return 0;
}

static int read_exact(struct mpib_vigil *vigil, int fd, void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = recv(fd, (char *)buf + done, len - done, 0);
		int r;

		if (n == 0)
			return -ECONNRESET;
		if (n > 0) {
			done += (size_t)n;
			mpib_vigil_heard(vigil);
			continue;
		}
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return -errno;
		r = mpib_vigil_wait(vigil, fd, POLLIN);
		if (r < 0)
			return r;
	}

	return 0;
}

/* One whole frame into @buf; its length is in its header. */
static int read_frame(struct mpib_vigil *vigil, int fd, uint8_t *buf, size_t cap, size_t *ret_len)
{
	size_t len;
	int r;

	r = read_exact(vigil, fd, buf, sizeof(struct mpib_msg_header));
	if (r < 0)
		return r;
	if (mpib_wire_frame(buf, sizeof(struct mpib_msg_header), &len) < 0 || len > cap)
		return -EBADMSG;

	*ret_len = len;
	return read_exact(vigil, fd, buf + sizeof(struct mpib_msg_header),
			  len - sizeof(struct mpib_msg_header));
}

static int decode_records(struct mpib_ctl *ctl, const uint8_t *frame, size_t len, void *record,
			  size_t size, void (*on_record)(struct mpib_ctl *ctl, const void *record))
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
		on_record(ctl, record);
	}

	return 0;
}

static enum mpib_ctl_exit decode_end(struct mpib_ctl *ctl, const uint8_t *frame, size_t len)
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

static int send_request(int fd, enum mpib_admin_type request,
			const struct mpib_admin_flow_request *about)
{
	struct mpib_admin_flow_request message = { 0 };

	if (about)
		message = *about;
	message.header = (struct mpib_msg_header){
		.magic = MPIB_MSG_MAGIC,
		.msg_len = (uint16_t)(about ? sizeof(message) : sizeof(message.header)),
		.msg_type = (uint8_t)request,
	};
	/* The first bytes on a new connection: there is room. */
	return send(fd, &message, message.header.msg_len, MSG_NOSIGNAL) == message.header.msg_len
		       ? 0
		       : -errno;
}

/* What comes of one request. */
struct answer {
	void *record;
	size_t size;
	void (*on_record)(struct mpib_ctl *ctl, const void *record);
};

static int decode_frame(struct mpib_ctl *ctl, const uint8_t *frame, size_t len,
			const struct answer *answer, bool *ret_end, enum mpib_ctl_exit *ret_code)
{
	struct mpib_msg_header got;
	int r;

	memcpy(&got, frame, sizeof(got));
	*ret_end = true;
	switch (got.msg_type) {
	case MPIB_ADMIN_END:
		*ret_code = decode_end(ctl, frame, len);
		return 0;
	case MPIB_MSG_RESPONSE:
		(void)mpib_cause_set(&ctl->cause, -ENOTSUP,
				     "the agent at %s is too old for this command; upgrade it and "
				     "systemctl restart mpib-agentd",
				     ctl->dir);
		*ret_code = MPIB_CTL_FAILURE;
		return 0;
	case MPIB_ADMIN_RECORDS:
		r = decode_records(ctl, frame, len, answer->record, answer->size,
				   answer->on_record);
		*ret_end = ctl->stop;
		*ret_code = MPIB_CTL_OK;
		return r;
	default:
		return -EBADMSG;
	}
}

/* Reads up to the end of the answer. */
static int read_answer(struct mpib_ctl *ctl, struct mpib_vigil *vigil, int fd,
		       const struct answer *answer, enum mpib_ctl_exit *ret_code)
{
	mpib_cleanup(mpib_freep) uint8_t *frame = malloc(UINT16_MAX);
	bool end = false;
	size_t len = 0;
	int r = 0;

	if (!frame)
		return -ENOMEM;

	while (!end && r == 0) {
		r = read_frame(vigil, fd, frame, UINT16_MAX, &len);
		if (r == 0)
			r = decode_frame(ctl, frame, len, answer, &end, ret_code);
	}
	return r;
}

enum mpib_ctl_exit mpib_ctl_ask(struct mpib_ctl *ctl, enum mpib_admin_type request,
				const struct mpib_admin_flow_request *about, void *record,
				size_t size,
				void (*on_record)(struct mpib_ctl *ctl, const void *record),
				unsigned int timeout_sec)
{
	const struct answer answer = { .record = record, .size = size, .on_record = on_record };
	bool change = request == MPIB_ADMIN_RELOAD || request == MPIB_ADMIN_SET ||
		      request == MPIB_ADMIN_UNSET;
	mpib_cleanup(mpib_closep) int fd = -1;
	enum mpib_ctl_exit code = MPIB_CTL_FAILURE;
	const char *what = MPIB_SOCKET_NAME;
	struct mpib_vigil vigil;
	int r;

	mpib_vigil_begin(&vigil, ctl, timeout_sec);
	r = link_open(&vigil, &fd);
	if (r == 0 && mpib_vigil_held(&vigil))
		r = -ETIMEDOUT;
	if (r == 0) {
		what = "request";
		r = send_request(fd, request, about);
	}
	if (r == 0) {
		what = "answer of the agent";
		r = read_answer(ctl, &vigil, fd, &answer, &code);
	}
	mpib_vigil_end(&vigil);

	if (r == -ETIMEDOUT)
		return mpib_vigil_tell(&vigil, ctl, change);
	ctl->changed = change && r == 0 && code == MPIB_CTL_OK;
	return r < 0 ? mpib_ctl_fail(ctl, r, what) : code;
}
