/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the model share. */
#ifndef MPIB_TESTS_UNIT_PLUGIN_FAILOVER_IMPL_H
#define MPIB_TESTS_UNIT_PLUGIN_FAILOVER_IMPL_H

#include "tests/unit/plugin/failover_model.h"

/* The first one of a step counts. */
void model_fail(const char *text);

/* Whether an end's queue pairs of @epoch can still take packets. */
bool model_lives(const struct model *m, unsigned int end, unsigned int rail, unsigned int epoch);

void model_tidy(const struct model_config *config, struct model *m);
void model_credit(struct model *m, unsigned int row, unsigned int part);

/* The receiver takes what its completion queue of @rail has. */
void model_poll(const struct model_config *config, struct model *m, unsigned int rail);

/* Receives that a row needs on @rail, as the receiver's rails are. */
uint8_t model_receives(const struct model_config *config, const struct model *m, unsigned int rail,
		       bool is_new);

/* failover_exchange.c; struct model_action says what they return. */
enum model_can model_do_frame(const struct model_config *config, struct model *m, unsigned int end,
			      unsigned int b);
enum model_can model_do_lose(const struct model_config *config, struct model *m, unsigned int end,
			     unsigned int rail);
enum model_can model_do_late(const struct model_config *config, struct model *m, unsigned int end,
			     unsigned int rail);
enum model_can model_do_repeat(const struct model_config *config, struct model *m, unsigned int end,
			       unsigned int b);
enum model_can model_do_return(const struct model_config *config, struct model *m,
			       unsigned int rail, unsigned int b);
enum model_can model_do_probe(const struct model_config *config, struct model *m, unsigned int rail,
			      unsigned int b);

#endif
