/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a plugin as NCCL does. */
#ifndef MPIB_NETPERF_LOAD_H
#define MPIB_NETPERF_LOAD_H

/* Opens @plugin: a path, a file's name, or NAME of libnccl-net-NAME.so, where the loader finds it.
 * NULL after np_error, and a line that says where the loader looks. */
void *np_load_plugin(const char *plugin);

/* The file that np_load_plugin @opened; "" where the loader doesn't say. Valid while it is open. */
const char *np_plugin_path(void *opened);

#endif
