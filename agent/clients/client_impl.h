/* SPDX-License-Identifier: Apache-2.0 */
/* Between the parts of a client: bytes and registrations in client.c, what mpibctl asks in
 * client_admin.c, of which the flows are in client_flows.c. */
#ifndef MPIB_AGENT_CLIENT_IMPL_H
#define MPIB_AGENT_CLIENT_IMPL_H

#include "agent/clients/client.h"

/* Bytes that the output still takes. */
size_t mpib_client_room(const struct mpib_client *client);
/* Appends to the output; the caller has looked at the room. */
void mpib_client_put(struct mpib_client *client, const void *data, size_t len);
/* Appends the contract's answer to a request of type @request_type. */
void mpib_client_answer(struct mpib_client *client, uint8_t request_type, uint8_t status,
			uint32_t slot);

/* Handles one whole frame of a type that is no registration. The output has room for
 * MPIB_ADMIN_FRAME_MAX bytes. */
void mpib_client_admin(struct mpib_client *client, uint8_t type, const uint8_t *frame, size_t len);
/* Appends a frame of events that wait. */
void mpib_client_put_events(struct mpib_client *client);
/* Appends the next frame of the dump that is going on (client->dump), or its end. */
void mpib_client_dump(struct mpib_client *client);
/* The same of slots with a flow. */
void mpib_client_dump_flows(struct mpib_client *client);

/* Append a frame of records, or the end of an answer. */
void mpib_client_put_records(struct mpib_client *client, const void *records, size_t size,
			     size_t count);
void mpib_client_put_end(struct mpib_client *client, enum mpib_admin_verdict verdict,
			 const char *text);

#endif
