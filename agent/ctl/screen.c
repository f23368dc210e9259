/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/ctl/screen.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/number.h"

static unsigned int from_environment(const char *name, unsigned int otherwise)
{
	const char *text = getenv(name);
	long number;

	if (text && mpib_number_parse(text, strlen(text), 1, 100000, &number) == 0)
		return (unsigned int)number;
	return otherwise;
}

struct mpib_screen mpib_screen_get(void)
{
	struct mpib_screen screen = { 0 };
	struct winsize size = { 0 };

	if (isatty(STDOUT_FILENO)) {
		if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0)
			size = (struct winsize){ 0 };
		screen.columns = size.ws_col ? size.ws_col : 80;
		screen.lines = size.ws_row ? size.ws_row : 24;
	}
	screen.columns = from_environment("COLUMNS", screen.columns);
	screen.lines = from_environment("LINES", screen.lines);
	return screen;
}
