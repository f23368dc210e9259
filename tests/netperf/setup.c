/* SPDX-License-Identifier: Apache-2.0 */
/* A session's beginning and end: init, the exchange of handles, connections; and their undoing. */
#include "tests/netperf/session.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/netperf/clock.h"
#include "tests/netperf/log.h"
#include "tests/netperf/pattern.h"
#include "tests/netperf/ports.h"

#define PORTS_MAX	  64
#define HANDLE_BYTE_MAX	  NCCL_NET_HANDLE_MAXSIZE
#define CONNECT_PAUSE_US  200
#define ABORTED_LIMIT_MS  2000
#define TEARDOWN_LIMIT_MS 15000

/* What each end tells the other first; network order. */
struct welcome {
	uint32_t api;
	uint32_t max_recvs;
	char name[64];
};

static unsigned char *handle_of(struct np_chan *chan)
{
	return chan->handle + NP_HANDLE_GUARD;
}

static int plugin_error(struct np_session *s, const char *call, ncclResult_t res)
{
	if (s->opts.expect_error > 0 && s->data_at == 0) {
		s->expected_seen = true;
		np_say("expected error: %s: %s", call, np_result_name(res));
	}
	np_error("%s: %s", call, np_result_name(res));
	return -EIO;
}

static void init_job(void *arg)
{
	struct np_session *s = arg;
	ncclResult_t res;

	if (!np_net_name(s->net)) {
		np_error("the table has no name before init");
		s->job_result = -EIO;
		return;
	}
	res = np_net_init(s->net, s->opts.seed);
	if (res != ncclSuccess) {
		s->job_result = plugin_error(s, "init", res);
		return;
	}
	s->init_done = true;
	res = np_net_devices(s->net, &s->devices);
	if (res != ncclSuccess || s->devices < 1) {
		s->job_result = plugin_error(s, "devices", res);
		return;
	}
	if (s->opts.dev >= (uint64_t)s->devices) {
		np_error("--dev %llu: the plugin has %d device(s)", (unsigned long long)s->opts.dev,
			 s->devices);
		s->job_result = -EIO;
		return;
	}
	res = np_net_props(s->net, (int)s->opts.dev, &s->props);
	if (res != ncclSuccess) {
		s->job_result = plugin_error(s, "getProperties", res);
		return;
	}
	if (!s->props.name || s->props.max_recvs < 1 || s->props.unset) {
		np_error("properties of device %llu: %s", (unsigned long long)s->opts.dev,
			 s->props.unset ? s->props.unset : "no name, or maxRecvs below 1");
		s->job_result = -EIO;
	}
}

static void finalize_job(void *arg)
{
	struct np_session *s = arg;
	ncclResult_t res = np_net_finalize(s->net);

	if (res != ncclSuccess)
		(void)plugin_error(s, "finalize", res);
}

static void listen_job(void *arg)
{
	struct np_session *s = arg;

	for (unsigned int n = 0; n < s->count; n++) {
		struct np_chan *chan = &s->chans[n];
		ncclResult_t res;

		if (chan->send)
			continue;
		res = np_net_listen(s->net, (int)s->opts.dev, handle_of(chan), &chan->listen_comm);
		if (res != ncclSuccess || !chan->listen_comm) {
			s->job_result = plugin_error(s, "listen", res);
			return;
		}
	}
}

static bool handle_guards_whole(const struct np_chan *chan)
{
	const unsigned char *end = chan->handle + NP_HANDLE_GUARD + NCCL_NET_HANDLE_MAXSIZE;

	return np_guard_check(chan->handle, NP_HANDLE_GUARD) == NP_HANDLE_GUARD &&
	       np_guard_check(end, NP_HANDLE_GUARD) == NP_HANDLE_GUARD;
}

/* One call of connect or accept; 1: connected. */
static int connect_step(struct np_session *s, struct np_chan *chan)
{
	const char *call = chan->send ? "connect" : "accept";
	double start = np_now(), took;
	void *comm = NULL;
	ncclResult_t res;

	if (chan->send)
		res = np_net_connect(s->net, (int)s->opts.dev, handle_of(chan), &comm);
	else
		res = np_net_accept(s->net, chan->listen_comm, &comm);
	took = np_now() - start;
	if (chan->send && took > s->connect_max_s)
		s->connect_max_s = took;
	if (!chan->send && took > s->accept_max_s)
		s->accept_max_s = took;
	if (res != ncclSuccess)
		return plugin_error(s, call, res);
	if (!handle_guards_whole(chan)) {
		np_error("the plugin wrote outside the 128 bytes of a handle");
		return -EIO;
	}
	if (!comm)
		return 0;

	chan->comm = comm;
	(void)atomic_fetch_add(&s->service_ticks, 1);
	if (chan->send)
		return 1;
	/* NCCL closes the listen object at once: nothing may depend on it */
	res = np_net_close_listen(s->net, chan->listen_comm);
	chan->listen_comm = NULL;
	return res == ncclSuccess ? 1 : plugin_error(s, "closeListen", res);
}

static void connect_job(void *arg)
{
	struct np_session *s = arg;
	unsigned int left = s->count;

	while (left && !atomic_load(&s->service_stop)) {
		left = 0;
		for (unsigned int n = 0; n < s->count; n++) {
			int r;

			if (s->chans[n].comm)
				continue;
			r = connect_step(s, &s->chans[n]);
			if (r < 0) {
				s->job_result = r;
				return;
			}
			left += r == 0;
		}
		if (left)
			(void)usleep(CONNECT_PAUSE_US);
	}
}

static int exchange_welcome(struct np_session *s)
{
	struct welcome mine = { htonl((uint32_t)s->net->api), htonl((uint32_t)s->props.max_recvs),
				"" },
		       theirs;
	int r;

	(void)snprintf(mine.name, sizeof(mine.name), "%s", np_net_name(s->net));
	r = np_ctl_send(&s->ctl, NP_CTL_WELCOME, &mine, sizeof(mine));
	if (r == 0)
		r = np_session_wait(s, NP_CTL_WELCOME);
	if (r < 0)
		return r;
	if (s->inbox[NP_CTL_WELCOME].len != sizeof(theirs))
		return -EBADMSG;
	memcpy(&theirs, s->inbox[NP_CTL_WELCOME].body, sizeof(theirs));
	theirs.name[sizeof(theirs.name) - 1] = '\0';
	if (theirs.api != mine.api || strcmp(theirs.name, mine.name) != 0) {
		np_error("the peer drives %s v%u, this side %s v%d", theirs.name, ntohl(theirs.api),
			 mine.name, s->net->api);
		return -EIO;
	}
	s->max_recvs = (unsigned int)s->props.max_recvs;
	if (ntohl(theirs.max_recvs) < s->max_recvs)
		s->max_recvs = ntohl(theirs.max_recvs);
	return s->max_recvs ? 0 : -EBADMSG;
}

static int make_chans(struct np_session *s)
{
	bool both = s->opts.mode == NP_MODE_VERIFY ? !s->opts.no_both : s->opts.both;
	unsigned int directions = both ? 2 : 1;

	s->count = (unsigned int)s->opts.comms * directions;
	s->chans = calloc(s->count, sizeof(*s->chans));
	if (!s->chans)
		return -ENOMEM;
	for (unsigned int n = 0; n < s->count; n++) {
		struct np_chan *chan = &s->chans[n];

		chan->id = n / directions * 2 + n % directions;
		chan->send = (chan->id % 2 == 1) == s->listener;
		np_guard_fill(chan->handle, sizeof(chan->handle));
		memset(handle_of(chan), 0, NCCL_NET_HANDLE_MAXSIZE);
	}
	return 0;
}

/* "0a00ff@16": bytes for every handle that came in. */
static int override_handle(const char *text, unsigned char *handle)
{
	const char *at = strchr(text, '@');
	char *end;
	long offset;
	size_t len;

	if (!at || (at - text) % 2 || at == text)
		return -EINVAL;
	len = (size_t)(at - text) / 2;
	offset = strtol(at + 1, &end, 10);
	if (*end || end == at + 1 || offset < 0 || (size_t)offset + len > HANDLE_BYTE_MAX)
		return -EINVAL;
	for (size_t n = 0; n < len; n++) {
		unsigned int byte;

		if (!isxdigit((unsigned char)text[2 * n]) ||
		    sscanf(text + 2 * n, "%2x", &byte) != 1)
			return -EINVAL;
		handle[(size_t)offset + n] = (unsigned char)byte;
	}
	return 0;
}

static int exchange_handles(struct np_session *s)
{
	size_t sent = 0, taken = 0;
	unsigned char *mine = calloc(s->count, NCCL_NET_HANDLE_MAXSIZE);
	int r;

	if (!mine)
		return -ENOMEM;
	for (unsigned int n = 0; n < s->count; n++) {
		if (s->chans[n].send)
			continue;
		memcpy(mine + sent, handle_of(&s->chans[n]), NCCL_NET_HANDLE_MAXSIZE);
		sent += NCCL_NET_HANDLE_MAXSIZE;
	}
	r = np_ctl_send(&s->ctl, NP_CTL_HANDLES, mine, sent);
	free(mine);
	if (r == 0)
		r = np_session_wait(s, NP_CTL_HANDLES);
	for (unsigned int n = 0; r == 0 && n < s->count; n++) {
		if (!s->chans[n].send)
			continue;
		if (s->inbox[NP_CTL_HANDLES].len < taken + NCCL_NET_HANDLE_MAXSIZE)
			return -EBADMSG;
		memcpy(handle_of(&s->chans[n]), s->inbox[NP_CTL_HANDLES].body + taken,
		       NCCL_NET_HANDLE_MAXSIZE);
		taken += NCCL_NET_HANDLE_MAXSIZE;
		if (s->opts.handle_override &&
		    override_handle(s->opts.handle_override, handle_of(&s->chans[n])) < 0) {
			np_error("--handle-override %s: not HEX@OFFSET", s->opts.handle_override);
			return -EINVAL;
		}
	}
	return r;
}

static void print_ports(void)
{
	uint16_t ports[PORTS_MAX];
	size_t count = np_ports_listening(ports, PORTS_MAX);
	struct np_json json;

	np_json_begin(&json, "ports");
	np_json_open(&json, "tcp", '[');
	for (size_t n = 0; n < count; n++) {
		np_json_u64(&json, NULL, ports[n]);
		np_say("listening on TCP port %u", ports[n]);
	}
	np_json_close(&json, ']');
	np_json_end(&json);
}

static int run_service(struct np_session *s, void (*job)(void *arg))
{
	int r;

	s->job_result = 0;
	r = np_session_job(s, &s->service, job, s);
	return r < 0 ? r : s->job_result;
}

/* The peer's word that it gave up may overtake what it wrote on the plugin's own connection: the
 * accepting side of the plugin is let speak for itself before it is stopped. */
static int run_connect(struct np_session *s)
{
	int r = run_service(s, connect_job);

	if (r == -ECONNABORTED)
		(void)np_worker_wait(&s->service, ABORTED_LIMIT_MS);
	return r;
}

int np_session_setup(struct np_session *s)
{
	double until;
	int r;

	s->job_result = 0;
	r = np_session_job(s, &s->init, init_job, s);
	if (r == 0)
		r = s->job_result;
	if (r == 0)
		r = exchange_welcome(s);
	if (r == 0)
		r = make_chans(s);
	if (r == 0)
		r = run_service(s, listen_job);
	if (r == 0)
		r = exchange_handles(s);
	if (r < 0)
		return r;
	if (s->opts.print_ports)
		print_ports();
	for (until = np_now() + s->opts.connect_delay; np_now() < until && r == 0;) {
		s->watch = false;
		r = np_session_poll(s);
		(void)usleep(10000);
	}
	s->watch = true;
	if (r == 0)
		r = run_connect(s);
	return r < 0 ? r : np_session_barrier(s);
}

static void close_job(void *arg)
{
	struct np_session *s = arg;

	for (unsigned int n = 0; n < s->count; n++) {
		struct np_chan *chan = &s->chans[n];
		ncclResult_t res = ncclSuccess;

		np_chan_close(chan, s->net);
		if (chan->comm)
			res = chan->send ? np_net_close_send(s->net, chan->comm)
					 : np_net_close_recv(s->net, chan->comm);
		chan->comm = NULL;
		if (res != ncclSuccess)
			(void)plugin_error(s, chan->send ? "closeSend" : "closeRecv", res);
		if (chan->listen_comm)
			res = np_net_close_listen(s->net, chan->listen_comm);
		chan->listen_comm = NULL;
		if (res != ncclSuccess)
			(void)plugin_error(s, "closeListen", res);
	}
}

static void finish(struct np_session *s, struct np_worker *worker, void (*job)(void *arg),
		   const char *what, int code)
{
	bool idle = np_worker_wait(worker, TEARDOWN_LIMIT_MS);

	if (idle && job) {
		np_worker_post(worker, job, s);
		idle = np_worker_wait(worker, TEARDOWN_LIMIT_MS);
	}
	if (idle)
		return;
	np_error("%s does not return", what);
	np_report_result(s, false);
	_exit(code ? code : NP_EXIT_TIMEOUT);
}

void np_session_teardown(struct np_session *s, int code)
{
	atomic_store(&s->service_stop, true);
	atomic_store(&s->engine.stop, true);
	if (s->progress.started)
		finish(s, &s->progress, NULL, "isend, irecv or test", code);
	if (s->service.started)
		finish(s, &s->service, close_job, "a call of the service thread", code);
	np_worker_fini(&s->progress);
	np_worker_fini(&s->service);
	if (s->init.started)
		finish(s, &s->init, s->init_done ? finalize_job : NULL, "init or finalize", code);
	np_worker_fini(&s->init);
	free(s->chans);
	s->chans = NULL;
	s->count = 0;
}
