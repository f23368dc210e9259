/* SPDX-License-Identifier: Apache-2.0 */
/* The rails of a flow's connections, and what they put (GIN), as people and programs read them. */
#ifndef MPIB_AGENT_FLOW_RAILS_H
#define MPIB_AGENT_FLOW_RAILS_H

#include <stddef.h>
#include <stdint.h>

#include "agent/admin/admin.h"
#include "agent/ctl/output.h"
#include "common/share.h"

/* Room for mpib_rails_format() and mpib_rails_format_share(). */
#define MPIB_RAILS_TEXT_MAX 64

enum mpib_in_force {
	MPIB_IN_FORCE_NONE, /* both rails are lost */
	MPIB_IN_FORCE_SOUT,
	MPIB_IN_FORCE_SUP,
	MPIB_IN_FORCE_BOTH, /* on some connection at least */
	MPIB_IN_FORCE_UNKNOWN,
};

/* The rails that the connections are on, all together. */
enum mpib_in_force mpib_rails_in_force(const struct mpib_admin_rails *rails);
/* The share that they go by, where the table's is @share; 0 where they have no rail. */
uint32_t mpib_rails_share(const struct mpib_admin_rails *rails, uint32_t share);

/* "both", "SOUT" (there never was another), "SUP lost", "SUP lost 3/4" (of 4 connections), "-"
 * where no connection tells. Returns @buf. */
const char *mpib_rails_format(const struct mpib_admin_rails *rails, char buf[MPIB_RAILS_TEXT_MAX]);
/* "25.0%", or "25.0% now 0.0%" where another share is in force. Returns @buf. */
const char *mpib_rails_format_share(const struct mpib_admin_rails *rails, uint32_t share,
				    char buf[MPIB_RAILS_TEXT_MAX]);

/* All of it, for JSON alone. */
void mpib_rails_output(struct mpib_output *output, const struct mpib_admin_rails *rails);
/* Adds @from to @sum, field by field. */
void mpib_rails_sum(struct mpib_admin_rails *sum, const struct mpib_admin_rails *from);

/* "net", "gin", "net+gin": what the flow's @connections are; "-" where there is none. */
const char *mpib_gin_kind(const struct mpib_admin_gin *gin, uint32_t connections);
/* All of it, for JSON alone. */
void mpib_gin_output(struct mpib_output *output, const struct mpib_admin_gin *gin);
/* Adds @from to @sum, field by field. */
void mpib_gin_sum(struct mpib_admin_gin *sum, const struct mpib_admin_gin *from);

#endif
