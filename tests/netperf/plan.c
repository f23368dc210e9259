/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/netperf/plan.h"

#include <stdio.h>
#include <string.h>

#include "common/macros.h"
#include "tests/netperf/pattern.h"

#define MIXED_SIZE  (64u << 10)
#define REQUESTS_V6 8u

static unsigned int fit_requests(const struct np_options *opts, int api, unsigned int channels,
				 size_t size, unsigned int group_max)
{
	uint64_t slot = size + 2 * (uint64_t)NP_PAGE;
	uint64_t fit = opts->memory / channels / slot / group_max;
	uint64_t most = opts->mode == NP_MODE_BW ? opts->window : opts->outstanding;

	if (api == 6 && most > REQUESTS_V6)
		most = REQUESTS_V6;
	if (fit < 2)
		fit = 2;
	return (unsigned int)(fit < most ? fit : most);
}

static uint64_t messages_for(const struct np_options *opts, size_t size)
{
	if (opts->messages)
		return opts->messages;
	if (size >= (8u << 20))
		return 3;
	if (size >= (256u << 10))
		return 8;
	return 96;
}

static struct np_stage *add(struct np_stage *stages, unsigned int *count, uint64_t round)
{
	struct np_stage *stage = &stages[*count];

	*stage = (struct np_stage){
		.id = round << 16 | *count,
		.group_max = 1,
		.null_sizes = true,
	};
	(*count)++;
	return stage;
}

static void add_mixed(const struct np_options *opts, int api, unsigned int max_recvs,
		      unsigned int channels, uint64_t round, struct np_stage *stages,
		      unsigned int *count)
{
	size_t top = opts->max_size < MIXED_SIZE ? opts->max_size : MIXED_SIZE;
	bool groups = !opts->no_groups && max_recvs > 1;
	static const char *const names[] = { "shorter", "groups", "groups-shorter", "optional" };

	for (unsigned int n = 0; n < MPIB_ARRAY_SIZE(names); n++) {
		bool grouped = n == 1 || n == 2;
		struct np_stage *stage;

		if ((grouped && !groups) || (n == 3 && api < 9))
			continue;
		stage = add(stages, count, round);
		(void)snprintf(stage->name, sizeof(stage->name), "%s", names[n]);
		stage->max_size = top;
		stage->shorter = n == 0 || n == 2;
		stage->group_max = grouped ? max_recvs : 1;
		stage->optional = n == 3;
		stage->churn = n != 1;
		stage->requests = fit_requests(opts, api, channels, top, stage->group_max);
		stage->messages = opts->messages ? opts->messages : grouped ? 256 : 96;
	}
}

unsigned int np_plan_stages(const struct np_options *opts, int api, unsigned int max_recvs,
			    unsigned int channels, uint64_t round, struct np_stage *stages)
{
	unsigned int count = 0;
	struct np_stage *stage;

	if (max_recvs > NP_RECVS_MAX)
		max_recvs = NP_RECVS_MAX;
	if (opts->mode == NP_MODE_BW) {
		stage = add(stages, &count, round);
		(void)snprintf(stage->name, sizeof(stage->name), "bw");
		stage->min_size = stage->max_size = opts->size;
		stage->requests = fit_requests(opts, api, channels, opts->size, 1);
		stage->messages = opts->messages ? opts->messages : NP_NO_TARGET;
		stage->light = !opts->check;
		stage->in_order = true;
		stage->null_sizes = false;
		return count;
	}

	for (size_t n = 0; n < opts->size_count; n++) {
		size_t size = opts->sizes[n];

		if (size > opts->max_size)
			continue;
		stage = add(stages, &count, round);
		(void)snprintf(stage->name, sizeof(stage->name), "size-%zu", size);
		stage->min_size = stage->max_size = size;
		stage->requests = fit_requests(opts, api, channels, size, 1);
		stage->messages = messages_for(opts, size);
		stage->in_order = n % 2 == 0;
	}
	add_mixed(opts, api, max_recvs, channels, round, stages, &count);
	return count;
}

/* Sizes near powers of two are where borders lie; the rest is anything. */
static size_t draw_size(const struct np_stage *stage, struct np_random *random)
{
	size_t span = stage->max_size - stage->min_size, size;

	if (!span)
		return stage->max_size;
	if (np_random_below(random, 2))
		return stage->min_size + np_random_below(random, span + 1);
	size = (size_t)1 << np_random_below(random, 17);
	size += np_random_below(random, 3);
	size -= 1;
	return size < stage->min_size || size > stage->max_size ? stage->max_size : size;
}

static void shuffle(unsigned int *order, unsigned int n, struct np_random *random)
{
	for (unsigned int k = 0; k < n; k++)
		order[k] = k;
	for (unsigned int k = n; k > 1; k--) {
		unsigned int other = (unsigned int)np_random_below(random, k);
		unsigned int keep = order[k - 1];

		order[k - 1] = order[other];
		order[other] = keep;
	}
}

/* A shuffle may turn round two entries with one tag; they meet in order, so turn them back. */
static void order_equal_tags(struct np_group *group)
{
	for (unsigned int a = 0; a < group->n; a++) {
		for (unsigned int b = a + 1; b < group->n; b++) {
			unsigned int first = group->send_order[a], second = group->send_order[b];

			if (group->recv[first].tag != group->recv[second].tag || first < second)
				continue;
			group->send_order[a] = second;
			group->send_order[b] = first;
		}
	}
}

void np_plan_group(const struct np_stage *stage, uint64_t seed, unsigned int channel,
		   uint64_t number, uint64_t first, uint64_t left, struct np_group *ret)
{
	struct np_random random = np_random_make(seed ^ stage->id << 40, channel, number);
	bool repeats;

	*ret = (struct np_group){ .n = 1 };
	if (stage->group_max > 1) /* full groups often: they are the hard case */
		ret->n = np_random_below(&random, 3)
				 ? stage->group_max
				 : 1 + (unsigned int)np_random_below(&random, stage->group_max);
	if (ret->n > left)
		ret->n = (unsigned int)left;
	repeats = np_random_below(&random, 4) == 0;

	for (unsigned int k = 0; k < ret->n; k++) {
		struct np_message *message = &ret->recv[k];

		/* ranks of a communicator: small numbers, unlike each other unless they repeat */
		message->tag = (int)(repeats ? np_random_below(&random, 2)
					     : k + NP_RECVS_MAX * np_random_below(&random, 512));
		message->room = draw_size(stage, &random);
		message->size = message->room;
		if (stage->shorter)
			message->size = np_random_below(&random, message->room + 1);
	}
	shuffle(ret->send_order, ret->n, &random);
	order_equal_tags(ret);
	for (unsigned int k = 0; k < ret->n; k++)
		ret->recv[ret->send_order[k]].number = first + k;
}
