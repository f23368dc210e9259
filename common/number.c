/* SPDX-License-Identifier: Apache-2.0 */
#include "common/number.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>

static int digit_value(char c, unsigned int base)
{
	int value = -1;

	if (c >= '0' && c <= '9')
		value = c - '0';
	else if (base == 16 && c >= 'a' && c <= 'f')
		value = c - 'a' + 10;
	else if (base == 16 && c >= 'A' && c <= 'F')
		value = c - 'A' + 10;
	return value;
}

/* A number too large for the type stays at ULONG_MAX, which is out of every range. */
static int read_digits(const char *text, size_t len, unsigned int base, unsigned long *ret)
{
	unsigned long value = 0;

	if (len == 0)
		return -EINVAL;
	for (size_t k = 0; k < len; k++) {
		int digit = digit_value(text[k], base);

		if (digit < 0)
			return -EINVAL;
		if (value > (ULONG_MAX - (unsigned long)digit) / base)
			value = ULONG_MAX;
		else
			value = value * base + (unsigned long)digit;
	}
	*ret = value;
	return 0;
}

static int in_range(unsigned long value, bool negative, long min, long max, long *ret)
{
	long number;

	if (value > LONG_MAX)
		return -ERANGE;
	number = negative ? -(long)value : (long)value;
	if (number < min || number > max)
		return -ERANGE;
	*ret = number;
	return 0;
}

int mpib_number_parse(const char *text, size_t len, long min, long max, long *ret)
{
	bool negative = len > 0 && text[0] == '-';
	unsigned long value;

	text += negative;
	len -= negative;
	/* One spelling of each number: "-0" and "01" are none. */
	if (len > 0 && text[0] == '0' && (len > 1 || negative))
		return -EINVAL;
	if (read_digits(text, len, 10, &value) < 0)
		return -EINVAL;
	return in_range(value, negative, min, max, ret);
}

int mpib_number_parse_key(const char *text, size_t len, long min, long max, long *ret)
{
	unsigned long value;

	if (len < 2 || text[0] != '0' || text[1] != 'x')
		return mpib_number_parse(text, len, min, max, ret);
	if (read_digits(text + 2, len - 2, 16, &value) < 0)
		return -EINVAL;
	return in_range(value, false, min, max, ret);
}
