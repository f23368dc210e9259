/* SPDX-License-Identifier: Apache-2.0 */
/* What the events (journal_events.c) need of the journal (journal.c): entries, and the bound. */
#ifndef MPIB_AGENT_JOURNAL_IMPL_H
#define MPIB_AGENT_JOURNAL_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include "agent/journal/journal.h"

#define MPIB_ENTRY_FIELDS_MAX 20

/* One entry under construction: fields as "NAME=value" in one buffer. */
struct mpib_entry {
	enum mpib_event event;
	int priority;
	char buf[2048];
	size_t used;
	struct iovec fields[MPIB_ENTRY_FIELDS_MAX];
	int n_fields;
	const char *message; /* the text behind "MESSAGE=" */
};

/* Asked before an entry is built, so that a flood costs next to nothing. False: only counted. */
bool mpib_journal_admit(struct mpib_journal *journal, enum mpib_event event);

/* The same for what no class bounds: each cause once a window, and no more than a few causes. */
bool mpib_journal_admit_cause(struct mpib_journal *journal, enum mpib_event event,
			      const char *cause);

/* An empty entry with its message; @priority as in syslog(3). */
__attribute__((format(printf, 4, 5))) void mpib_entry_start(struct mpib_entry *entry,
							    enum mpib_event event, int priority,
							    const char *format, ...);

/* One more "NAME=value"; cut or left out where the entry has no room. */
__attribute__((format(printf, 2, 3))) void mpib_entry_add(struct mpib_entry *entry,
							  const char *format, ...);

/* To listeners and the journal, newlines as blanks. False where it is lost: the journal stands
 * still, and what waits for it is as much as may. */
bool mpib_journal_emit(struct mpib_journal *journal, struct mpib_entry *entry);

#endif
