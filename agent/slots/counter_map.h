/* SPDX-License-Identifier: Apache-2.0 */
/* A process's counter table, handed over as a sealed memfd. It is the process's memory: every
 * number in it may be wrong or change at any moment, and none of them can harm the reader. */
#ifndef MPIB_AGENT_COUNTER_MAP_H
#define MPIB_AGENT_COUNTER_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A table of more bytes is refused: reading it costs the agent memory. */
#define MPIB_COUNTER_MAP_MAX (2u << 20)

struct mpib_counter_map;

/* Maps @size bytes of @fd, which stays the caller's, for reading. -EPERM: not a memfd that can't
 * shrink; -EBADMSG: no counter table of this version, or of another size; errno of the calls. */
int mpib_counter_map_new(int fd, size_t size, struct mpib_counter_map **ret);
struct mpib_counter_map *mpib_counter_map_free(struct mpib_counter_map *map);

/* Bytes of one connection. Index 0 is SOUT, 1 is SUP. */
struct mpib_counter_bytes {
	uint64_t sent[2];
	uint64_t received[2];
};

/* What one connection says of its rails, see common/counters.h. */
struct mpib_counter_rails {
	uint64_t losses[2];
	uint64_t returns[2];
	uint64_t parts_again[2];
	uint32_t up; /* a mask */
};

uint32_t mpib_counter_map_entries(const struct mpib_counter_map *map);
/* The entry at @index: whose it is, and its bytes. False where it is free or there is none. */
bool mpib_counter_map_at(const struct mpib_counter_map *map, uint32_t index, uint32_t *ret_conn_id,
			 struct mpib_counter_bytes *ret);
/* The same entry's rails. False where the process doesn't keep these numbers: it has an older
 * plugin. */
bool mpib_counter_map_rails(const struct mpib_counter_map *map, uint32_t index,
			    struct mpib_counter_rails *ret);

/* Whether the same entry is of a mesh (device-initiated communication); puts by rail, of which one
 * that is divided counts on both. */
bool mpib_counter_map_gin(const struct mpib_counter_map *map, uint32_t index, uint64_t ret_puts[2]);

/* What a sender tells of its parts, see common/counters.h; nanoseconds. */
struct mpib_counter_times {
	uint32_t timed;	   /* 0: it doesn't keep busy times */
	uint64_t bytes[2]; /* posted */
	uint64_t apart[2]; /* of these, posted while no busy time went on */
	uint32_t posts[2]; /* that complete on their own, modulo 2^32 */
	uint32_t done[2];  /* of these, completed; before the others were read */
	uint64_t busy_nsec[2];
	bool under_way[2]; /* busy time goes on */
	uint32_t speed[2]; /* of the ports, Mbit/s, 0: not known */
	unsigned int lost; /* rails that it had and hasn't got at present, a mask */
};

enum mpib_counter_time {
	MPIB_COUNTER_TIMES,	 /* here they are */
	MPIB_COUNTER_NO_SENDER,	 /* the entry is not one, not this connection's, or has one rail */
	MPIB_COUNTER_NO_FEATURE, /* its plugin doesn't keep these numbers: it is older */
};

/* The same entry's times. */
enum mpib_counter_time mpib_counter_map_times(const struct mpib_counter_map *map, uint32_t index,
					      uint32_t conn_id, struct mpib_counter_times *ret);

#endif
