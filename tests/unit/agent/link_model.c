/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/agent/link_model.h"

#include <math.h>

#include "common/split.h"

double link_random(struct link *link)
{
	/* xorshift64*, for a seed that isn't 0 */
	link->random ^= link->random >> 12;
	link->random ^= link->random << 25;
	link->random ^= link->random >> 27;
	return (double)((link->random * 0x2545F4914F6CDD1Du) >> 11) / 9007199254740992.0;
}

/* When a part of @bytes that is posted now will be done. */
static double carry(struct link *link, unsigned int rail, double bytes)
{
	double time;

	if (link->lost & 1u << rail)
		rail = !rail;
	time = bytes / link->rate[rail] * (1 + link->noise * (2 * link_random(link) - 1));
	if (link->free[rail] + link->credit < link->now)
		link->free[rail] = link->now;
	link->free[rail] += time;
	return fmax(link->free[rail], link->now) + link->latency;
}

static void post(struct link *link, struct link_connection *c, unsigned int message, uint32_t share)
{
	double sup = (double)mpib_split_sup((size_t)c->size, c->fixed ? c->share : share);
	const double parts[2] = { c->size - sup, sup };

	for (unsigned int rail = 0; rail < 2; rail++) {
		if (parts[rail] <= 0)
			continue;
		c->done[message][rail] = carry(link, rail, parts[rail]);
		if (!c->timing[rail] && parts[!rail] > 0) {
			c->timing[rail] = true;
			c->busy_since[rail] = link->now;
		}
		c->counts.bytes[rail] += (uint64_t)parts[rail];
		c->counts.apart[rail] += c->timing[rail] ? 0 : (uint64_t)parts[rail];
		c->counts.posts[rail]++;
		c->under_way[rail]++;
		c->counts.under_way[rail] = c->timing[rail];
	}
	c->carried += c->size;
}

static void complete(struct link *link, struct link_connection *c, unsigned int message,
		     unsigned int rail)
{
	c->done[message][rail] = 0;
	c->under_way[rail]--;
	c->counts.done[rail]++;
	if (!c->timing[rail])
		return;
	c->busy[rail] += link->now - c->busy_since[rail];
	c->busy_since[rail] = link->now;
	c->timing[rail] = c->under_way[rail] > 0;
	c->counts.under_way[rail] = c->timing[rail];
	c->counts.busy_nsec[rail] = (uint64_t)(c->busy[rail] * 1000);
}

static void fill_windows(struct link *link, uint32_t share)
{
	for (unsigned int n = 0; n < LINK_CONNECTIONS_MAX; n++) {
		struct link_connection *c = &link->connection[n];

		for (unsigned int m = 0; m < c->window; m++)
			if (c->done[m][0] <= 0 && c->done[m][1] <= 0)
				post(link, c, m, share);
	}
}

/* The part that is done next, if any before @end. */
static bool complete_next(struct link *link, double end)
{
	struct link_connection *next = NULL;
	unsigned int next_message = 0;
	unsigned int next_rail = 0;
	double at = end;

	for (unsigned int n = 0; n < LINK_CONNECTIONS_MAX; n++) {
		struct link_connection *c = &link->connection[n];

		for (unsigned int k = 0; k < 2 * LINK_WINDOW_MAX; k++) {
			double done = c->done[k / 2][k % 2];

			if (!c->under_way[0] && !c->under_way[1])
				break;
			if (done > 0 && done < at) {
				at = done;
				next = c;
				next_message = k / 2;
				next_rail = k % 2;
			}
		}
	}
	if (!next)
		return false;
	link->now = at;
	complete(link, next, next_message, next_rail);
	return true;
}

void link_run(struct link *link, uint32_t share, double usec)
{
	double end = link->now + usec;

	do
		fill_windows(link, share);
	while (complete_next(link, end));
	link->now = end;
}

double link_bytes_of(const struct link *link, unsigned int n)
{
	return link->connection[n].carried;
}

double link_bytes(const struct link *link)
{
	double sum = 0;

	for (unsigned int n = 0; n < LINK_CONNECTIONS_MAX; n++)
		sum += link_bytes_of(link, n);
	return sum;
}
