/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/journal/journal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <syslog.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/journal/journal_impl.h"
#include "agent/journal/journal_socket.h"

enum class {
	CLASS_ALWAYS, /* rare by nature */
	CLASS_FLOW,
	CLASS_RAIL,
	CLASS_CLIENT,
	CLASS_MAX,
};

/* Causes told apart in one window. */
#define CAUSES_MAX 16u

struct mpib_journal {
	uint64_t (*now_usec)(void);
	struct mpib_journal_socket *socket;
	uint64_t window_start;
	uint32_t in_window[CLASS_MAX];
	uint32_t held_back[MPIB_EVENT_MAX]; /* of this window */
	uint64_t said[CAUSES_MAX];	    /* hashes of the causes of this window */
	uint32_t n_said;
	uint64_t written;
	uint64_t suppressed;
	mpib_journal_listener listener;
	void *listener_user;
};

static const struct {
	const char *name;
	const char *message_id;
	enum class class;
} events[MPIB_EVENT_MAX] = {
	[MPIB_EVENT_START] = { "start", "db0f19cfe29e4bf98abfc8f5779b011e", CLASS_ALWAYS },
	[MPIB_EVENT_STOP] = { "stop", "73ef895ea00b4bff9eaab965ebd54dc2", CLASS_ALWAYS },
	[MPIB_EVENT_REGISTER] = { "register", "4e8f3d0af42a4d1baa59d60f9de11cf8", CLASS_FLOW },
	[MPIB_EVENT_DEREGISTER] = { "deregister", "8d1c54cf26094d9eb546bddef0aa376c", CLASS_FLOW },
	[MPIB_EVENT_HINT] = { "hint", "9f65c83613a8435397befe58659f9549", CLASS_FLOW },
	[MPIB_EVENT_RELOAD] = { "reload", "6bd24ba52a14498989a580ad0eb9f348", CLASS_ALWAYS },
	[MPIB_EVENT_RELOAD_REFUSED] = { "reload-refused", "d9a566fab4a04301965b5ceee39442b6",
					CLASS_ALWAYS },
	[MPIB_EVENT_REFUSAL] = { "refusal", "bd9529d04fce487a96f49aecffdccdbd", CLASS_CLIENT },
	[MPIB_EVENT_CLIENT] = { "client", "1adcb36c35f54b2282ed57ec24da9bbd", CLASS_CLIENT },
	[MPIB_EVENT_LIMIT] = { "limit", "4aa10fa658a349d4b227e65c35514bf2", CLASS_ALWAYS },
	[MPIB_EVENT_ADOPT] = { "adopt", "a8905c3f080144aba051a6e516595174", CLASS_ALWAYS },
	[MPIB_EVENT_SUPPRESSED] = { "suppressed", "7e1b3c0d42b6486d9e7902946f54cdb2",
				    CLASS_ALWAYS },
	[MPIB_EVENT_OVERRIDE] = { "override", "5b1f6a0f2c1c4a68a3e0f5a1d9a7c3be", CLASS_ALWAYS },
	[MPIB_EVENT_RAIL_LOST] = { "rail-lost", "820e32dfe43e4d9eac4e85a1a927b474", CLASS_RAIL },
	[MPIB_EVENT_RAIL_BACK] = { "rail-back", "4e30a6abe2914d148ddbdee0502252dc", CLASS_RAIL },
};

static const uint32_t bursts[CLASS_MAX] = {
	[CLASS_ALWAYS] = UINT32_MAX,
	[CLASS_FLOW] = MPIB_JOURNAL_BURST_FLOW,
	[CLASS_RAIL] = MPIB_JOURNAL_BURST_RAIL,
	[CLASS_CLIENT] = MPIB_JOURNAL_BURST_CLIENT,
};

#define JOURNAL_SOCKET "/run/systemd/journal/socket"

const char *mpib_event_name(enum mpib_event event)
{
	return event < MPIB_EVENT_MAX ? events[event].name : "unknown";
}

const char *mpib_event_message_id(enum mpib_event event)
{
	return event < MPIB_EVENT_MAX ? events[event].message_id : "";
}

/* True where stderr is the stream that the service manager connected to the journal. */
static bool stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	struct stat st;
	uint64_t device;
	uint64_t inode;

	return stream && sscanf(stream, "%" SCNu64 ":%" SCNu64, &device, &inode) == 2 &&
	       fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

int mpib_journal_new(uint64_t (*now_usec)(void), struct mpib_journal **ret)
{
	struct mpib_journal *journal = calloc(1, sizeof(*journal));
	int r;

	if (!journal)
		return -ENOMEM;

	journal->now_usec = now_usec;
	r = mpib_journal_socket_new(stderr_is_journal() ? JOURNAL_SOCKET : NULL, STDERR_FILENO,
				    &journal->socket);
	if (r < 0) {
		free(journal);
		return r;
	}

	journal->window_start = now_usec();
	*ret = journal;
	return 0;
}

uint64_t mpib_journal_written(const struct mpib_journal *journal)
{
	return journal->written;
}

uint64_t mpib_journal_suppressed(const struct mpib_journal *journal)
{
	return journal->suppressed;
}

/* ---- building an entry ---------------------------------------------------------------------- */

void mpib_entry_add(struct mpib_entry *entry, const char *format, ...)
{
	size_t room = sizeof(entry->buf) - entry->used;
	va_list args;
	int len;

	if (room < 2 || entry->n_fields == MPIB_ENTRY_FIELDS_MAX)
		return;

	va_start(args, format);
	len = vsnprintf(entry->buf + entry->used, room, format, args);
	va_end(args);
	if (len < 0)
		return;
	if ((size_t)len >= room)
		len = (int)room - 1;

	entry->fields[entry->n_fields++] = (struct iovec){
		.iov_base = entry->buf + entry->used,
		.iov_len = (size_t)len,
	};
	entry->used += (size_t)len + 1;
}

void mpib_entry_start(struct mpib_entry *entry, enum mpib_event event, int priority,
		      const char *format, ...)
{
	char text[1024];
	va_list args;

	entry->event = event;
	entry->priority = priority;
	entry->used = 0;
	entry->n_fields = 0;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	mpib_entry_add(entry, "MESSAGE=%s", text);
	entry->message = entry->buf + strlen("MESSAGE=");
	mpib_entry_add(entry, "PRIORITY=%d", priority);
	mpib_entry_add(entry, "MESSAGE_ID=%s", events[event].message_id);
	mpib_entry_add(entry, "MPIB_EVENT=%s", events[event].name);
}

static const char *entry_flow(const struct mpib_entry *entry)
{
	static const char name[] = "MPIB_FLOW=";

	for (int n = 0; n < entry->n_fields; n++) {
		const char *field = entry->fields[n].iov_base;

		if (strncmp(field, name, sizeof(name) - 1) == 0)
			return field + sizeof(name) - 1;
	}

	return "";
}

void mpib_journal_listen(struct mpib_journal *journal, mpib_journal_listener listener, void *user)
{
	journal->listener = listener;
	journal->listener_user = user;
}

bool mpib_journal_emit(struct mpib_journal *journal, struct mpib_entry *entry)
{
	if (journal->listener)
		journal->listener(journal->listener_user, entry->event, entry->priority,
				  entry_flow(entry), entry->message);
	/* A newline ends a field: names of files may have one. */
	for (size_t n = 0; n < entry->used; n++) {
		if (entry->buf[n] == '\n')
			entry->buf[n] = ' ';
	}
	if (!mpib_journal_socket_put(journal->socket, entry->fields, entry->n_fields,
				     entry->message)) {
		journal->held_back[entry->event]++;
		journal->suppressed++;
		return false;
	}

	journal->written++;
	/* One a connection, and its answer is what a job waits for: these go when it is out. */
	if (entry->event != MPIB_EVENT_REGISTER && entry->event != MPIB_EVENT_DEREGISTER)
		mpib_journal_flush(journal);
	return true;
}

/* ---- the bound ------------------------------------------------------------------------------ */

static void forget_window(struct mpib_journal *journal)
{
	memset(journal->in_window, 0, sizeof(journal->in_window));
	journal->n_said = 0;
}

static void end_window(struct mpib_journal *journal, uint64_t now)
{
	struct mpib_entry entry;
	uint32_t total = 0;
	char list[256] = "";
	size_t used = 0;

	for (unsigned int event = 0; event < MPIB_EVENT_MAX; event++) {
		if (!journal->held_back[event])
			continue;
		total += journal->held_back[event];
		if (used < sizeof(list))
			used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%u %s",
						 used ? ", " : "", journal->held_back[event],
						 events[event].name);
	}

	if (total) {
		mpib_entry_start(&entry, MPIB_EVENT_SUPPRESSED, LOG_NOTICE,
				 "%u more entries within %" PRIu64 " s were not written: %s", total,
				 (now - journal->window_start) / MPIB_CLOCK_SECOND, list);
		mpib_entry_add(&entry, "MPIB_SUPPRESSED=%u", total);
		journal->window_start = now;
		if (!mpib_journal_emit(journal, &entry)) {
			/* said with a later window's */
			journal->held_back[MPIB_EVENT_SUPPRESSED]--;
			forget_window(journal);
			return;
		}
	}

	forget_window(journal);
	memset(journal->held_back, 0, sizeof(journal->held_back));
	journal->window_start = now;
}

void mpib_journal_flush(struct mpib_journal *journal)
{
	mpib_journal_socket_flush(journal->socket);
}

void mpib_journal_tick(struct mpib_journal *journal)
{
	uint64_t now = journal->now_usec();

	if (now - journal->window_start >= MPIB_JOURNAL_WINDOW_USEC)
		end_window(journal, now);
}

struct mpib_journal *mpib_journal_free(struct mpib_journal *journal)
{
	if (!journal)
		return NULL;

	end_window(journal, journal->now_usec());
	(void)mpib_journal_socket_free(journal->socket);
	free(journal);
	return NULL;
}

bool mpib_journal_admit(struct mpib_journal *journal, enum mpib_event event)
{
	enum class class = events[event].class;

	mpib_journal_tick(journal);
	if (journal->in_window[class] < bursts[class]) {
		journal->in_window[class]++;
		return true;
	}

	journal->held_back[event]++;
	journal->suppressed++;
	return false;
}

bool mpib_journal_admit_cause(struct mpib_journal *journal, enum mpib_event event,
			      const char *cause)
{
	uint64_t hash = 0xCBF29CE484222325u; /* FNV-1a */
	uint32_t n = 0;

	mpib_journal_tick(journal);
	for (const char *c = cause; *c; c++)
		hash = (hash ^ (uint8_t)*c) * 0x100000001B3u;
	while (n < journal->n_said && journal->said[n] != hash)
		n++;
	if (n == journal->n_said && n < CAUSES_MAX) {
		journal->said[journal->n_said++] = hash;
		return true;
	}

	journal->held_back[event]++;
	journal->suppressed++;
	return false;
}
