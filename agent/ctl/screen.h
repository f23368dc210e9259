/* SPDX-License-Identifier: Apache-2.0 */
/* How much room there is for what mpibctl prints. */
#ifndef MPIB_AGENT_SCREEN_H
#define MPIB_AGENT_SCREEN_H

struct mpib_screen {
	unsigned int columns; /* 0: any */
	unsigned int lines;   /* likewise */
};

/* COLUMNS and LINES where they are set, otherwise the terminal at stdout (80 by 24 where it doesn't
 * say), otherwise, into a file or pipe, any. */
struct mpib_screen mpib_screen_get(void);

#endif
