/* SPDX-License-Identifier: Apache-2.0 */
#include "common/printable.h"

#include <stdio.h>
#include <string.h>

static bool is_plain(char c)
{
	return c >= ' ' && c <= '~';
}

bool mpib_is_printable(const char *text)
{
	for (; *text; text++)
		if (!is_plain(*text))
			return false;
	return true;
}

char *mpib_printable(const char *text, char *buf, size_t size)
{
	static const char cut[] = "...";
	size_t used = 0, fits = 0; /* @fits: where the text still leaves room for the dots */

	for (; *text; text++) {
		size_t len = is_plain(*text) ? 1 : 4;

		if (used + len >= size) {
			memcpy(buf + fits, cut, sizeof(cut));
			return buf;
		}
		if (len == 1)
			buf[used] = *text;
		else
			(void)snprintf(buf + used, size - used, "\\x%02x", (unsigned char)*text);
		used += len;
		if (used + sizeof(cut) <= size)
			fits = used;
	}
	buf[used] = '\0';
	return buf;
}
