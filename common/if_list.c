/* SPDX-License-Identifier: Apache-2.0 */
#include "common/if_list.h"

#include <string.h>

#define NAME_MAX_BYTES 15 /* the kernel's names with NUL have 16 */

/* The elements, behind the marks. */
static const char *skip_marks(const char *list, bool *ret_except, bool *ret_whole)
{
	*ret_except = *list == '^';
	list += *ret_except;
	*ret_whole = *list == '=';
	return list + *ret_whole;
}

bool mpib_if_list_valid(const char *list)
{
	bool except, whole;

	if (!*list)
		return true;
	for (const char *at = skip_marks(list, &except, &whole);; at++) {
		size_t len = strcspn(at, ", /^=");

		if (len == 0 || len > NAME_MAX_BYTES)
			return false;
		at += len;
		if (!*at)
			return true;
		if (*at != ',')
			return false;
	}
}

enum mpib_if_match mpib_if_list_match(const char *list, const char *name)
{
	enum mpib_if_match match = MPIB_IF_NO;
	bool except, whole;
	const char *at = skip_marks(list, &except, &whole);

	if (!*list)
		return MPIB_IF_NOT_EXCLUDED;
	while (*at && match != MPIB_IF_NAMED) {
		size_t len = strcspn(at, ",");

		if (strncmp(name, at, len) == 0) {
			if (!name[len])
				match = MPIB_IF_NAMED;
			else if (!whole)
				match = MPIB_IF_BEGINS;
		}
		at += len + (at[len] == ',');
	}
	if (except)
		return match == MPIB_IF_NO ? MPIB_IF_NOT_EXCLUDED : MPIB_IF_NO;
	return match;
}
