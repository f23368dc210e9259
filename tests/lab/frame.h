/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What labd (in a node) and labx (beside the lab) say to each other over TCP. A connection carries
 * one command: RUN from the client, then its standard input; the server answers with the output
 * as it comes and ends with STATUS. A client that goes away takes its command with it.
 *
 * A frame is one byte of type, four of length (little-endian) and the payload.
 */
#ifndef MPIB_LAB_FRAME_H
#define MPIB_LAB_FRAME_H

#include <stddef.h>
#include <stdint.h>

#define MPIB_LAB_PORT	   7010
#define MPIB_LAB_FRAME_MAX 65536u

enum mpib_lab_frame_type {
	MPIB_LAB_RUN = 'R',    /* command line for bash, without a final zero */
	MPIB_LAB_INPUT = 'I',  /* standard input; an empty frame ends it */
	MPIB_LAB_OUTPUT = 'O', /* standard output */
	MPIB_LAB_ERROR = 'E',  /* standard error */
	MPIB_LAB_STATUS = 'S', /* one byte: exit status, 128 + signal for a killed one */
};

struct mpib_lab_frame {
	uint8_t type;
	uint32_t len;
	char data[MPIB_LAB_FRAME_MAX];
};

/* Sends one frame whole. 0 or negative errno. Never raises SIGPIPE. */
int mpib_lab_frame_send(int fd, uint8_t type, const void *data, size_t len);

/* Receives one frame. 1 for a frame, 0 where the peer closed between two, negative errno; a
 * length over the maximum is -EBADMSG. Blocks until the frame is whole. */
int mpib_lab_frame_recv(int fd, struct mpib_lab_frame *ret_frame);

/* Writes all of @data to a descriptor of any kind. 0 or negative errno. */
int mpib_lab_write_full(int fd, const void *data, size_t len);

#endif
