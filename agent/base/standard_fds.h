/* SPDX-License-Identifier: Apache-2.0 */
/* Standard input, output and error of a program that was started without some of them. */
#ifndef MPIB_AGENT_STANDARD_FDS_H
#define MPIB_AGENT_STANDARD_FDS_H

/* Opens /dev/null for each of descriptors 0 to 2 that is closed: else the next file that is opened
 * is the standard error, and messages are written into it. First thing in main(). 0, or a negative
 * errno. */
int mpib_standard_fds_open(void);

#endif
