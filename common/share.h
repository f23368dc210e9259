/* SPDX-License-Identifier: Apache-2.0 */
/* The three ways to write a share: 0..1024, "25%", "1:3" (SOUT:SUP). Pure. */
#ifndef MPIB_COMMON_SHARE_H
#define MPIB_COMMON_SHARE_H

#include <stdint.h>

#define MPIB_SHARE_TEXT_MAX 8 /* "100.0%" and its NUL */

/* Reads a share. N% takes whole numbers 0..100 and rounds to the nearest 1/1024; A:B takes whole
 * numbers 0..65535, not both 0 ("1:3" = 768), rounded to the nearest. -EINVAL for bad syntax,
 * -ERANGE for a value outside, *ret_share untouched then. */
int mpib_share_parse(const char *text, uint32_t *ret_share);

/* "25.0%" for people; @buf holds at least MPIB_SHARE_TEXT_MAX bytes. Returns @buf. */
char *mpib_share_format(uint32_t share, char *buf);

#endif
