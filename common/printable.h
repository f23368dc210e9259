/* SPDX-License-Identifier: Apache-2.0 */
/* Text from outside, made fit for a line that a person reads. Pure; any thread. */
#ifndef MPIB_COMMON_PRINTABLE_H
#define MPIB_COMMON_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>

#define MPIB_PRINTABLE_MAX 104 /* bytes of a quoted value with its NUL */

/* True where every byte is printable ASCII, blanks included. */
bool mpib_is_printable(const char *text);

/* @text in @buf: what isn't printable ASCII becomes \xNN, what doesn't fit is cut and ends in
 * "...". @size is at least 8. Returns @buf. */
char *mpib_printable(const char *text, char *buf, size_t size);

#endif
