/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/ctl/screen.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/number.h"

/* Of a terminal that doesn't say. */
#define COLUMNS	 80
#define LINES	 24
#define SIDE_MAX 100000 /* of what the environment says */

static unsigned int from_environment(const char *name, unsigned int otherwise)
{
	const char *text = getenv(name);
	long number;

	if (text && mpib_number_parse(text, strlen(text), 1, SIDE_MAX, &number) == 0)
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
		screen.columns = size.ws_col ? size.ws_col : COLUMNS;
		screen.lines = size.ws_row ? size.ws_row : LINES;
	}
	screen.columns = from_environment("COLUMNS", screen.columns);
	screen.lines = from_environment("LINES", screen.lines);
	return screen;
}
