/* SPDX-License-Identifier: Apache-2.0 */
/* Who is this process, and is it still the same one? A pid is reused; pid and start time are not.
 * The kernel's peer-pidfd socket option is newer than what we run on, so a pidfd is opened by pid
 * and the start time is read while that pidfd proves that the process lives. */
#ifndef MPIB_AGENT_PROCESS_H
#define MPIB_AGENT_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Opens a pidfd for @pid and reads its start time (clock ticks since boot). -ESRCH where it is
 * gone or changes hands meanwhile; -EPERM where none of its user ids is @uid, so that it can't be
 * the one that connected with these credentials; other errno of the calls (EMFILE...). With
 * MPIB_UID_ANY ids don't matter. The caller closes *ret_pidfd. */
#define MPIB_UID_ANY ((uid_t)-1)
int mpib_process_open(pid_t pid, uid_t uid, int *ret_pidfd, uint64_t *ret_start_time);

/* True while the process behind @pidfd has not exited. */
bool mpib_process_alive(int pidfd);

/* True where some process has @pid, even one that hides in /proc from this user. */
bool mpib_process_exists(pid_t pid);

/* Field 22 of /proc/PID/stat out of its text; the command name, which may hold anything, is
 * skipped. Pure. -EBADMSG. */
int mpib_process_parse_stat(const char *text, uint64_t *ret_start_time);

#endif
