/* SPDX-License-Identifier: Apache-2.0 */
/* The reason of a failure, for a person. Functions that open or read something fill one and return
 * a negative errno; whoever decides what happens next prints it, once. */
#ifndef MPIB_AGENT_CAUSE_H
#define MPIB_AGENT_CAUSE_H

#include <stdarg.h>
#include <stdio.h>

struct mpib_cause {
	char text[512];
};

/* Writes the reason (cut where it is too long) and returns @error, so that a caller can say
 * "return mpib_cause_set(cause, -EPERM, ...)". */
__attribute__((format(printf, 3, 4))) static inline int mpib_cause_set(struct mpib_cause *cause,
								       int error,
								       const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(cause->text, sizeof(cause->text), format, args);
	va_end(args);
	return error;
}

#endif
