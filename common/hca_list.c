/* SPDX-License-Identifier: Apache-2.0 */
#include "common/hca_list.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/number.h"
#include "common/printable.h"

#define SOUT "MPIB_HCA_SOUT"
#define SUP  "MPIB_HCA_SUP"

struct list {
	const char *variable;
	const char *text; /* whole, for messages */
	char *why;
	size_t why_size;
};

__attribute__((format(printf, 2, 3))) static int refuse(const struct list *list, const char *format,
							...)
{
	char value[MPIB_PRINTABLE_MAX];
	va_list args;
	int used;

	used = snprintf(list->why, list->why_size, "%s=%s: ", list->variable,
			mpib_printable(list->text, value, sizeof(value)));
	if (used > 0 && (size_t)used < list->why_size) {
		va_start(args, format);
		(void)vsnprintf(list->why + used, list->why_size - (size_t)used, format, args);
		va_end(args);
	}
	return -EINVAL;
}

/* The kernel takes other names, too; one with these bytes would be a slip. */
static bool is_name(const char *text, size_t len)
{
	for (size_t k = 0; k < len; k++)
		if (text[k] <= ' ' || text[k] > '~' || text[k] == '/')
			return false;
	return len > 0 && text[0] != '.';
}

static int parse_element(const struct list *list, int number, const char *text, size_t len,
			 struct mpib_hca_name *ret)
{
	size_t name_len = strcspn(text, ":,");
	long port = 1;

	if (name_len == 0)
		return refuse(list, "element %d is empty: write name[:port],name[:port]", number);
	if (name_len >= sizeof(ret->device))
		return refuse(list, "element %d is longer than %zu bytes", number,
			      sizeof(ret->device) - 1);
	if (!is_name(text, name_len))
		return refuse(list,
			      "element %d must be a device's name, of printable ASCII without "
			      "blank and slash: write name[:port],name[:port]",
			      number);

	if (name_len < len &&
	    mpib_number_parse(text + name_len + 1, len - name_len - 1, 1, 255, &port) < 0)
		return refuse(list, "the port of %.*s must be a number from 1 to 255",
			      (int)name_len, text);

	memcpy(ret->device, text, name_len);
	ret->device[name_len] = '\0';
	ret->port = (unsigned int)port;
	return 0;
}

int mpib_hca_list_parse(const char *variable, const char *text, struct mpib_hca_name *names,
			char *ret_why, size_t why_size)
{
	const struct list list = { variable, text, ret_why, why_size };
	int count = 0;

	while (*text) {
		size_t len = strcspn(text, ",");
		int r;

		if (count == MPIB_DEVICES_MAX)
			return refuse(&list, "there are more than %d devices", MPIB_DEVICES_MAX);
		r = parse_element(&list, count + 1, text, len, &names[count]);
		if (r < 0)
			return r;
		count++;
		text += len;
		if (*text == ',' && !*++text)
			return refuse(&list, "it ends with a comma");
	}
	return count;
}

static bool same_port(const struct mpib_hca_name *a, const struct mpib_hca_name *b)
{
	return a->port == b->port && strcmp(a->device, b->device) == 0;
}

int mpib_hca_pairs_parse(const char *sout_text, const char *sup_text, bool advanced,
			 struct mpib_hca_name *sout, struct mpib_hca_name *sup, char *ret_why,
			 size_t why_size)
{
	int nsout = mpib_hca_list_parse(SOUT, sout_text, sout, ret_why, why_size);
	int nsup = nsout < 0 ? 0 : mpib_hca_list_parse(SUP, sup_text, sup, ret_why, why_size);

	if (nsout < 0 || nsup < 0)
		return -EINVAL;
	if (nsout != nsup) {
		(void)snprintf(ret_why, why_size,
			       SOUT " names %d devices and " SUP " %d: they pair up by position",
			       nsout, nsup);
		return -EINVAL;
	}

	for (int k = 0; k < nsout; k++) {
		if (advanced && same_port(&sout[k], &sup[k])) {
			(void)snprintf(ret_why, why_size,
				       SOUT
				       " and " SUP " both name port %s:%u: MPIB_MODE=1 divides "
				       "messages between two ports; name two, or set MPIB_MODE=0",
				       sout[k].device, sout[k].port);
			return -EINVAL;
		}
		for (int other = 0; other < k; other++) {
			if (!same_port(&sout[k], &sout[other]) || !same_port(&sup[k], &sup[other]))
				continue;
			(void)snprintf(ret_why, why_size,
				       SOUT " and " SUP " name the pair %s:%u+%s:%u twice",
				       sout[k].device, sout[k].port, sup[k].device, sup[k].port);
			return -EINVAL;
		}
	}
	return nsout;
}
