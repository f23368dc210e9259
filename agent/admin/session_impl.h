/* SPDX-License-Identifier: Apache-2.0 */
/* Between the parts of a session: requests in session.c, the flows in session_flows.c. */
#ifndef MPIB_AGENT_SESSION_IMPL_H
#define MPIB_AGENT_SESSION_IMPL_H

#include "agent/admin/session.h"

/* Append a frame of records, or the end of an answer. */
void mpib_session_put_records(struct mpib_session *session, const void *records, size_t size,
			      size_t count);
void mpib_session_put_end(struct mpib_session *session, enum mpib_admin_verdict verdict,
			  const char *text);

/* Answers EXPLAIN. */
void mpib_session_explain(struct mpib_session *session,
			  const struct mpib_admin_flow_request *request);
/* The next frame of slots with a flow, or the end. */
void mpib_session_dump_flows(struct mpib_session *session);

#endif
