/* SPDX-License-Identifier: Apache-2.0 */
/* Every order of the model's events, depth first. Of a state that was seen its hash of 64 bits is
 * kept: of ten million states two have the same one with a probability of 3 in a million, and then
 * a part of the orders behind one of them isn't looked at. */
#include "tests/unit/plugin/failover_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH 200 /* every event uses something up: no order is that long */

struct step {
	const struct model_action *action;
	unsigned int a, b;
};

struct search {
	const struct model_config *config;
	uint64_t *seen;
	uint64_t count, room; /* a power of two */
	struct step path[DEPTH];
	unsigned int depth;
	const char *wrong;
};

static uint64_t hash(const struct model *m)
{
	const unsigned char *at = (const unsigned char *)m;
	uint64_t h = 0x9e3779b97f4a7c15ULL, word;
	size_t left = sizeof(*m);

	while (left) {
		size_t n = left < sizeof(word) ? left : sizeof(word);

		word = 0;
		memcpy(&word, at, n);
		h = (h ^ word) * 0xff51afd7ed558ccdULL;
		h ^= h >> 32;
		at += n;
		left -= n;
	}
	return h ? h : 1;
}

static bool insert(uint64_t *seen, uint64_t room, uint64_t h)
{
	uint64_t at = h & (room - 1);

	while (seen[at] && seen[at] != h)
		at = (at + 1) & (room - 1);
	if (seen[at])
		return false;
	seen[at] = h;
	return true;
}

static bool grow(struct search *s)
{
	uint64_t room = s->room * 4;
	uint64_t *seen = calloc(room, sizeof(*seen));

	if (!seen)
		return false;
	for (uint64_t k = 0; k < s->room; k++)
		if (s->seen[k])
			(void)insert(seen, room, s->seen[k]);
	free(s->seen);
	s->seen = seen;
	s->room = room;
	return true;
}

/* True where the state is new. */
static bool is_new(struct search *s, const struct model *m)
{
	if (s->count * 2 > s->room && !grow(s)) {
		s->wrong = "no memory for the search";
		return false;
	}
	if (!insert(s->seen, s->room, hash(m)))
		return false;
	s->count++;
	return true;
}

static void visit(struct search *s, const struct model *m);

/* What @action with all its numbers leads to; true where it has to come in the end. */
static bool follow(struct search *s, const struct model *m, const struct model_action *action)
{
	bool must = false;

	for (unsigned int a = 0; a < action->as; a++)
		for (unsigned int b = 0; b < action->bs && !s->wrong; b++) {
			struct model next = *m;
			enum model_can can = action->apply(s->config, &next, a, b);

			must |= can == MODEL_MUST;
			if (can == MODEL_CANT)
				continue;
			s->path[s->depth++] = (struct step){ action, a, b };
			s->wrong = model_wrong();
			if (!s->wrong && s->depth == DEPTH)
				s->wrong = "an order without an end";
			if (!s->wrong && is_new(s, &next))
				visit(s, &next);
			if (!s->wrong)
				s->depth--;
		}
	return must;
}

static void visit(struct search *s, const struct model *m)
{
	bool must = false;

	for (const struct model_action *action = model_actions; action->name; action++)
		must |= follow(s, m, action);
	if (!s->wrong && !must && !model_finished(s->config, m) && !model_cut_off(m))
		s->wrong = "nothing goes on";
}

static void tell(const struct search *s, char *text, size_t size)
{
	size_t len = 0;

	text[0] = '\0';
	for (unsigned int k = 0; k < s->depth; k++) {
		const struct step *step = &s->path[k];
		int n = snprintf(text + len, size - len, "  %s %u %u\n", step->action->name,
				 step->a, step->b);

		if (n < 0 || (size_t)n >= size - len)
			return;
		len += (size_t)n;
	}
}

const char *model_search(const struct model_config *config, char *ret_steps, size_t size,
			 uint64_t *ret_states)
{
	struct search *s = calloc(1, sizeof(*s));
	const char *wrong;
	struct model m;

	ret_steps[0] = '\0';
	*ret_states = 0;
	if (!s)
		return "no memory for the search";
	s->config = config;
	s->room = 1 << 12;
	s->seen = calloc(s->room, sizeof(*s->seen));
	if (s->seen) {
		model_init(config, &m);
		if (is_new(s, &m))
			visit(s, &m);
	} else {
		s->wrong = "no memory for the search";
	}
	wrong = s->wrong;
	*ret_states = s->count;
	if (wrong)
		tell(s, ret_steps, size);
	free(s->seen);
	free(s);
	return wrong;
}
