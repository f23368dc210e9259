/* SPDX-License-Identifier: Apache-2.0 */
/* The one syntax of numbers that come from people: settings, ports. Pure; any thread. */
#ifndef MPIB_COMMON_NUMBER_H
#define MPIB_COMMON_NUMBER_H

#include <stdbool.h>
#include <stddef.h>

/* Reads the first @len bytes of @text as a decimal number: digits, with '-' in front of a negative
 * one. No blanks, no '+', no leading zero (010 is 8 elsewhere), nothing behind it. -EINVAL for
 * other syntax, -ERANGE for a number outside of @min to @max, however many digits it has. */
int mpib_number_parse(const char *text, size_t len, long min, long max, long *ret);

/* The same for a key: "0x" and hexadecimal digits, or a decimal number. */
int mpib_number_parse_key(const char *text, size_t len, long min, long max, long *ret);

#endif
