/* SPDX-License-Identifier: Apache-2.0 */
/* What mesh.c and join.c share: a mesh that comes up. Service thread. */
#ifndef MPIB_PLUGIN_GIN_MESH_IMPL_H
#define MPIB_PLUGIN_GIN_MESH_IMPL_H

#include "plugin/gin/gin_impl.h"

#define MPIB_GIN_GUESTS	  64 /* that have had their turn and not said JOIN yet */
#define MPIB_GIN_RETRY_MS 100

struct mpib_gin_guest {
	struct mpib_ctl ctl;
	struct mpib_peer hello;
	bool used;
};

struct mpib_gin_mesh {
	struct mpib_gin *gin;
	struct mpib_listener *listener;
	uint32_t up, under_way, distance; /* the next peer's from this rank */
	uint64_t deadline_ms;
	bool moved; /* something happened since the last pause */
	struct mpib_gin_guest guest[MPIB_GIN_GUESTS];
};

/* join.c. Negative errno, with one warning: the whole set-up fails then. */
void mpib_gin_name_peer(struct mpib_gin_peer *peer);
int mpib_gin_begin(struct mpib_gin_mesh *mesh, struct mpib_gin_peer *peer); /* connects to it */
int mpib_gin_step(struct mpib_gin_mesh *mesh,
		  struct mpib_gin_peer *peer);	      /* what can be done now */
int mpib_gin_hear_guests(struct mpib_gin_mesh *mesh); /* who connects to this end */
int mpib_gin_is_up(struct mpib_gin_mesh *mesh, struct mpib_gin_peer *peer);

#endif
