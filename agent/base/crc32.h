/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32 as Ethernet has it. */
#ifndef MPIB_AGENT_CRC32_H
#define MPIB_AGENT_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Of @len bytes; one thread. */
uint32_t mpib_crc32(const void *data, size_t len);

#endif
