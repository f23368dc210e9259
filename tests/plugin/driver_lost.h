/* SPDX-License-Identifier: Apache-2.0 */
/* What driver_ends.c lists of driver_lost.c: a device that is lost, and when. */
#ifndef MPIB_TESTS_PLUGIN_DRIVER_LOST_H
#define MPIB_TESTS_PLUGIN_DRIVER_LOST_H

void lost_before_set_up(void);
void lost_in_set_up(void);
void lost_in_data(void);
void lost_at_close(void);
void lost_idle_rail(void);
void lost_receiver(void); /* the other process of these */

#endif
