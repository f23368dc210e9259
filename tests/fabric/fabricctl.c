/* SPDX-License-Identifier: Apache-2.0 */
/* fabricctl: looks at a fabric and makes faults in it while programs run. It writes the shared
 * state and wakes the processes; MPIB_FABRIC and MPIB_FABRIC_DIR say which fabric, as for the
 * library. */
#include "tests/fabric/state.h"

#include <errno.h>
#include <inttypes.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/macros.h"

/* Tests call this program some thousand times, and LeakSanitizer took longer than what it was asked
 * for. It ends at once, and holds no memory for longer than that. */
int __lsan_is_turned_off(void); /* NOLINT(bugprone-reserved-identifier): LeakSanitizer's name */
int __lsan_is_turned_off(void)	/* NOLINT(bugprone-reserved-identifier) */
{
	return 1;
}

static struct fab_meeting meeting;

static void tell(enum fab_log_kind kind, uint32_t dev, uint32_t arg)
{
	fab_state_log_add(meeting.state, kind, dev, arg);
	fab_meeting_wake(&meeting);
}

static int number(const char *text, uint64_t *ret_number)
{
	char *end;

	errno = 0;
	*ret_number = strtoull(text, &end, 0);
	if (text[0] < '0' || text[0] > '9' || *end || errno) {
		(void)fprintf(stderr, "fabricctl: '%s' is not a number\n", text);
		return -EINVAL;
	}
	return 0;
}

/* "NODE/DEVICE" to the device's index. */
static int device(const char *text, uint32_t *ret_dev)
{
	const struct fab_config *conf = &meeting.state->conf;
	char name[2 * FAB_NAME_MAX];

	for (uint32_t d = 0; d < conf->devs; d++) {
		(void)snprintf(name, sizeof(name), "%s/%s", conf->node[conf->dev[d].node].name,
			       conf->dev[d].name);
		if (strcmp(name, text) == 0) {
			*ret_dev = d;
			return 0;
		}
	}
	(void)fprintf(stderr, "fabricctl: no device '%s' (NODE/DEVICE)\n", text);
	return -ENODEV;
}

static int cmd_port(uint32_t dev, char **args)
{
	uint32_t up = strcmp(args[0], "up") == 0;

	if (!up && strcmp(args[0], "down") != 0)
		return -EINVAL;
	(void)fab_meeting_port(&meeting, dev, up);
	return 0;
}

/* What the wires were booked for at the old rate doesn't bind the new one, which holds from now on.
 */
static void set_rate(struct fab_state_dev *state, uint64_t rate)
{
	uint64_t now = fab_now();

	atomic_store(&state->rate, rate);
	atomic_store(&state->tx_free_ns, now);
	atomic_store(&state->rx_free_ns, now);
}

static int cmd_rate(uint32_t dev, char **args)
{
	uint64_t rate;

	if (number(args[0], &rate) < 0)
		return -EINVAL;
	set_rate(&meeting.state->dev[dev], rate);
	tell(FAB_LOG_SETTINGS, dev, 0);
	return 0;
}

static int cmd_latency(uint32_t dev, char **args)
{
	uint64_t usec;

	if (number(args[0], &usec) < 0 || usec > 60 * 1000 * 1000)
		return -EINVAL;
	atomic_store(&meeting.state->dev[dev].latency_ns, usec * 1000);
	tell(FAB_LOG_SETTINGS, dev, 0);
	return 0;
}

static int cmd_silent(uint32_t dev, char **args)
{
	uint32_t on = strcmp(args[0], "on") == 0;

	if (!on && strcmp(args[0], "off") != 0)
		return -EINVAL;
	atomic_store(&meeting.state->dev[dev].silent, on);
	tell(FAB_LOG_SETTINGS, dev, 0);
	return 0;
}

static int cmd_late(uint32_t dev, char **args)
{
	uint64_t usec;

	if (number(args[0], &usec) < 0 || usec > 60 * 1000 * 1000)
		return -EINVAL;
	atomic_store(&meeting.state->dev[dev].late_ns, usec * 1000);
	tell(FAB_LOG_SETTINGS, dev, 0);
	return 0;
}

static int cmd_unseen(uint32_t dev, char **args)
{
	uint64_t usec;

	if (number(args[0], &usec) < 0 || usec > 60 * 1000 * 1000)
		return -EINVAL;
	atomic_store(&meeting.state->dev[dev].unseen_ns, usec * 1000);
	tell(FAB_LOG_SETTINGS, dev, 0);
	return 0;
}

static int cmd_cut(uint32_t dev, char **args)
{
	uint64_t left;

	if (number(args[0], &left) < 0)
		return -EINVAL;
	atomic_store(&meeting.state->dev[dev].cut_left, left);
	return 0;
}

static int cmd_delay(uint32_t dev, char **args)
{
	struct fab_state_dev *state = &meeting.state->dev[dev];
	uint64_t min, max, seed = 1;

	if (number(args[0], &min) < 0 || number(args[1], &max) < 0 ||
	    (args[2] && number(args[2], &seed) < 0) || min > max || max > 60 * 1000 * 1000)
		return -EINVAL;
	atomic_store(&state->delay_max_ns, 0);
	atomic_store(&state->delay_seed, (uint32_t)seed);
	atomic_store(&state->delays, 0);
	atomic_store(&state->delay_digest, 0);
	atomic_fetch_add(&state->delay_order, 1);
	atomic_store(&state->delay_min_ns, min * 1000);
	atomic_store(&state->delay_max_ns, max * 1000);
	return 0;
}

static int errno_of(const char *name)
{
	for (int e = 1; e < 134; e++) {
		const char *known = strerrorname_np(e);

		if (known && strcmp(known, name) == 0)
			return e;
	}
	(void)fprintf(stderr, "fabricctl: unknown error '%s'\n", name);
	return -EINVAL;
}

static int verb_of(const char *name)
{
	for (unsigned int v = 0; v < FAB_VERB_MAX; v++)
		if (strcmp(fab_verb_name(v), name) == 0)
			return (int)v;
	(void)fprintf(stderr, "fabricctl: unknown verb '%s'; known are:", name);
	for (unsigned int v = 0; v < FAB_VERB_MAX; v++)
		(void)fprintf(stderr, " %s", fab_verb_name(v));
	(void)fprintf(stderr, "\n");
	return -EINVAL;
}

static int cmd_fail(uint32_t dev, char **args)
{
	uint64_t count = 1, skip = 0;
	int err = errno_of(args[1]), verb;

	if (err < 0 || (args[2] && number(args[2], &count) < 0) ||
	    (args[2] && args[3] && number(args[3], &skip) < 0) || count > 0xffffff ||
	    skip > 0xffffff)
		return -EINVAL;
	verb = verb_of(args[0]);
	if (verb < 0)
		return verb;
	atomic_store(&meeting.state->dev[dev].fail[verb], skip << 40 | count << 16 | (uint64_t)err);
	return 0;
}

static int cmd_slow(uint32_t dev, char **args)
{
	int verb = verb_of(args[0]);
	uint64_t usec;

	if (verb < 0 || number(args[1], &usec) < 0 || usec > 60 * 1000 * 1000)
		return -EINVAL;
	atomic_store(&meeting.state->dev[dev].slow_ns[verb], usec * 1000);
	return 0;
}

static int cmd_gid(uint32_t dev, char **args)
{
	struct fab_gid gid;
	uint64_t index;

	if (number(args[0], &index) < 0 || index >= FAB_GIDS_MAX ||
	    fab_gid_parse(args[1], &gid) < 0)
		return -EINVAL;
	fab_state_gid_set(&meeting.state->dev[dev], (unsigned int)index, &gid);
	tell(FAB_LOG_GID, dev, (uint32_t)index);
	return 0;
}

static int cmd_kill(uint32_t dev, char **args)
{
	(void)args;
	if (!atomic_exchange(&meeting.state->dev[dev].dead, FAB_KILLED))
		tell(FAB_LOG_DEAD, dev, FAB_KILLED);
	return 0;
}

static int cmd_remove(uint32_t dev, char **args)
{
	uint32_t how = args[0] ? FAB_VANISHED : FAB_REMOVED;

	if (args[0] && strcmp(args[0], "quiet") != 0)
		return -EINVAL;
	if (!atomic_exchange(&meeting.state->dev[dev].dead, how))
		tell(FAB_LOG_DEAD, dev, how);
	return 0;
}

static void reset_gids(struct fab_state_dev *state, const struct fab_dev_conf *conf, uint32_t dev)
{
	for (unsigned int g = 0; g < FAB_GIDS_MAX; g++) {
		struct fab_gid gid;

		fab_state_gid_get(state, g, &gid);
		if (gid.type == conf->gid[g].type && !memcmp(gid.raw, conf->gid[g].raw, 16))
			continue;
		fab_state_gid_set(state, g, &conf->gid[g]);
		tell(FAB_LOG_GID, dev, g);
	}
}

static int cmd_reset(uint32_t dev, char **args)
{
	struct fab_state_dev *state = &meeting.state->dev[dev];
	const struct fab_dev_conf *conf = &meeting.state->conf.dev[dev];

	(void)args;
	set_rate(state, conf->rate);
	atomic_store(&state->latency_ns, conf->latency_ns);
	atomic_store(&state->delay_max_ns, 0);
	atomic_store(&state->delay_min_ns, 0);
	atomic_store(&state->silent, 0);
	atomic_store(&state->late_ns, 0);
	atomic_store(&state->late_parts, 0);
	atomic_store(&state->unseen_ns, conf->unseen_ns);
	atomic_store(&state->unseen_parts, 0);
	atomic_store(&state->mistakes, 0);
	atomic_store(&state->cut_left, 0);
	atomic_store(&state->dead, FAB_ALIVE);
	for (unsigned int v = 0; v < FAB_VERB_MAX; v++) {
		atomic_store(&state->fail[v], 0);
		atomic_store(&state->slow_ns[v], 0);
	}
	reset_gids(state, conf, dev);
	(void)fab_meeting_port(&meeting, dev, true);
	tell(FAB_LOG_SETTINGS, dev, 0);
	return 0;
}

static void show_gid(const struct fab_gid *gid, unsigned int index)
{
	static const uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };
	bool ipv4 = memcmp(gid->raw, mapped, 12) == 0;
	char text[INET6_ADDRSTRLEN];

	if (gid->type == FAB_GID_NONE ||
	    !inet_ntop(ipv4 ? AF_INET : AF_INET6, ipv4 ? gid->raw + 12 : gid->raw, text,
		       sizeof(text)))
		return;
	(void)printf("  gid %u %s/%s\n", index, text, gid->type == FAB_GID_V2 ? "v2" : "v1");
}

static int cmd_show(uint32_t dev, char **args)
{
	struct fab_state_dev *state = &meeting.state->dev[dev];
	const struct fab_config *conf = &meeting.state->conf;
	struct fab_gid gid;

	(void)args;
	(void)printf("%s/%s port %s%s rate %" PRIu64 " latency_us %" PRIu64 " tx_bytes %" PRIu64
		     " rx_bytes %" PRIu64 "\n",
		     conf->node[conf->dev[dev].node].name, conf->dev[dev].name,
		     atomic_load(&state->port_up) ? "up" : "down",
		     atomic_load(&state->dead) ? " dead" : "", atomic_load(&state->rate),
		     atomic_load(&state->latency_ns) / 1000, atomic_load(&state->tx_bytes),
		     atomic_load(&state->rx_bytes));
	if (atomic_load(&state->silent))
		(void)printf("  silent\n");
	if (atomic_load(&state->spread_bytes))
		(void)printf("  spread_bytes %" PRIu64 "\n", atomic_load(&state->spread_bytes));
	if (atomic_load(&state->late_ns) || atomic_load(&state->late_parts))
		(void)printf("  late_us %" PRIu64 " late_parts %" PRIu64 "\n",
			     atomic_load(&state->late_ns) / 1000, atomic_load(&state->late_parts));
	if (atomic_load(&state->unseen_ns) || atomic_load(&state->unseen_parts))
		(void)printf("  unseen_us %" PRIu64 " unseen_parts %" PRIu64 "\n",
			     atomic_load(&state->unseen_ns) / 1000,
			     atomic_load(&state->unseen_parts));
	if (atomic_load(&state->mistakes))
		(void)printf("  mistakes %" PRIu64 "\n", atomic_load(&state->mistakes));
	if (atomic_load(&state->cut_left))
		(void)printf("  cut_left %" PRIu64 "\n", atomic_load(&state->cut_left));
	if (atomic_load(&state->delays))
		(void)printf("  delays %" PRIu64 " digest %016" PRIx64 "\n",
			     atomic_load(&state->delays), atomic_load(&state->delay_digest));
	for (unsigned int g = 0; g < FAB_GIDS_MAX; g++) {
		fab_state_gid_get(state, g, &gid);
		show_gid(&gid, g);
	}
	return 0;
}

static void show_processes(void)
{
	for (uint32_t slot = 1; slot < FAB_PROCS_MAX; slot++) {
		struct fab_state_proc *proc = &meeting.state->proc[slot];
		uint32_t node = atomic_load(&proc->node);

		if (node && fab_meeting_alive(&meeting, slot))
			(void)printf("process %u node %s QP numbers from 0x%x\n",
				     atomic_load(&proc->pid),
				     meeting.state->conf.node[node - 1].name, slot << FAB_QPN_BITS);
	}
}

static const struct command {
	const char *name;
	int (*run)(uint32_t dev, char **args);
	int min, max; /* words after the device */
	const char *help;
} commands[] = {
	{ "port", cmd_port, 1, 1, "NODE/DEV up|down" },
	{ "rate", cmd_rate, 1, 1, "NODE/DEV BYTES_A_SECOND (0: no limit)" },
	{ "latency", cmd_latency, 1, 1, "NODE/DEV MICROSECONDS (one way)" },
	{ "silent", cmd_silent, 1, 1,
	  "NODE/DEV on|off (what it sends is lost, and nobody is told)" },
	{ "late", cmd_late, 1, 1, "NODE/DEV MICROSECONDS (what a port's end finds under way)" },
	{ "unseen", cmd_unseen, 1, 1, "NODE/DEV MICROSECONDS (from a write's answer to memory)" },
	{ "cut", cmd_cut, 1, 1, "NODE/DEV N (port down as request N leaves; 0: not any more)" },
	{ "delay", cmd_delay, 2, 3, "NODE/DEV MIN_US MAX_US [SEED] (completions, QP by QP)" },
	{ "fail", cmd_fail, 2, 4, "NODE/DEV VERB ERRNO [COUNT [SKIP]]" },
	{ "slow", cmd_slow, 2, 2, "NODE/DEV VERB MICROSECONDS (each call; 0: not any more)" },
	{ "gid", cmd_gid, 2, 2, "NODE/DEV INDEX ADDRESS/v1|ADDRESS/v2|-" },
	{ "kill", cmd_kill, 0, 0, "NODE/DEV (for good, until reset)" },
	{ "remove", cmd_remove, 0, 1, "NODE/DEV [quiet] (unplugged: for good, until reset)" },
	{ "reset", cmd_reset, 0, 0, "[NODE/DEV] (as configured)" },
	{ "show", cmd_show, 0, 0, "[NODE/DEV]" },
};

static int usage(void)
{
	(void)fprintf(stderr, "usage: fabricctl COMMAND ...\n");
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(commands); k++)
		(void)fprintf(stderr, "  %-8s %s\n", commands[k].name, commands[k].help);
	(void)fprintf(stderr, "  %-8s %s\n", "drop", "QPN (to the error state)");
	return 2;
}

static int run(const struct command *command, int argc, char **argv)
{
	uint32_t dev;
	int r = 0;

	if (argc == 2 && command->max == 0 && command->run != cmd_kill) {
		for (dev = 0; dev < meeting.state->conf.devs; dev++)
			(void)command->run(dev, NULL);
		if (command->run == cmd_show)
			show_processes();
		return 0;
	}
	if (argc < 3 || argc - 3 < command->min || argc - 3 > command->max)
		return usage();
	if (device(argv[2], &dev) < 0)
		return 1;
	r = command->run(dev, argv + 3);
	if (r == -EINVAL)
		(void)fprintf(stderr, "fabricctl: usage: %s %s\n", command->name, command->help);
	return r < 0 ? 1 : 0;
}

int main(int argc, char **argv)
{
	static struct fab_config conf;
	char err[256], text[4608];
	uint64_t qpn;
	int r;

	if (argc < 2)
		return usage();
	r = fab_env_config(&conf, err, sizeof(err));
	if (r < 0) {
		(void)fprintf(stderr, "fabricctl: %s: %s\n", getenv("MPIB_FABRIC"), err);
		return 1;
	}
	r = fab_meeting_open(&conf, &meeting);
	if (r < 0) {
		(void)fprintf(stderr, "fabricctl: %s\n", fab_meeting_error(r, text, sizeof(text)));
		return 1;
	}
	if (strcmp(argv[1], "drop") == 0) {
		if (argc != 3 || number(argv[2], &qpn) < 0)
			return usage();
		if (qpn >> FAB_QPN_BITS >= FAB_PROCS_MAX ||
		    !fab_meeting_alive(&meeting, (uint32_t)(qpn >> FAB_QPN_BITS))) {
			(void)fprintf(stderr, "fabricctl: no process has the QP %s\n", argv[2]);
			return 1;
		}
		tell(FAB_LOG_DROP_QP, 0, (uint32_t)qpn);
		return 0;
	}
	for (size_t k = 0; k < MPIB_ARRAY_SIZE(commands); k++)
		if (strcmp(argv[1], commands[k].name) == 0)
			return run(&commands[k], argc, argv);
	return usage();
}
