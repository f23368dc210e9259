/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/agent/link_model.h"

#include <math.h>

#include "common/split.h"

#define LINK_QPS_MAX 4u

double link_random(struct link *link)
{
	/* xorshift64*, for a seed that isn't 0 */
	link->random ^= link->random >> 12;
	link->random ^= link->random << 25;
	link->random ^= link->random >> 27;
	return (double)((link->random * 0x2545F4914F6CDD1Du) >> 11) / 9007199254740992.0;
}

static void send(struct link *link, struct link_part *part, unsigned int rail, double bytes)
{
	double at_once;

	part->on = link->lost & 1u << rail ? !rail : rail;
	part->left = bytes * (1 + link->noise * (2 * link_random(link) - 1));
	at_once = fmin(part->left, link->saved[part->on]);
	link->saved[part->on] -= at_once;
	part->left -= at_once;
	part->done = part->left > 0 ? 0 : link->now + link->latency;
}

static void post(struct link *link, struct link_connection *c, unsigned int message, uint32_t share)
{
	double sup = (double)mpib_split_sup((size_t)c->size, c->fixed ? c->share : share);
	const double parts[2] = { c->size - sup, sup };

	for (unsigned int rail = 0; rail < 2; rail++) {
		if (parts[rail] <= 0)
			continue;
		send(link, &c->part[message][rail], rail, parts[rail]);
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
	c->number[message] = ++c->messages;
	c->carried += c->size;
}

static void complete(struct link *link, struct link_connection *c, unsigned int message,
		     unsigned int rail)
{
	c->part[message][rail].done = 0;
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

static bool is_free(const struct link_part *part)
{
	return part->left <= 0 && part->done <= 0;
}

static bool is_silent(const struct link *link)
{
	for (unsigned int n = 0; n < LINK_CONNECTIONS_MAX; n++)
		if (link->connection[n].under_way[0] || link->connection[n].under_way[1])
			return false;
	return true;
}

/* True where messages may be posted. */
static bool in_step(struct link *link)
{
	if (!link->in_step)
		return true;
	if (!is_silent(link)) {
		link->next_step = 0;
		return false;
	}
	if (link->next_step <= 0)
		link->next_step = link->now + link->pause;
	return link->next_step <= link->now;
}

static void fill_windows(struct link *link, uint32_t share)
{
	if (!in_step(link))
		return;
	for (unsigned int n = 0; n < LINK_CONNECTIONS_MAX; n++) {
		struct link_connection *c = &link->connection[n];

		for (unsigned int m = 0; m < c->window; m++)
			if (is_free(&c->part[m][0]) && is_free(&c->part[m][1]))
				post(link, c, m, share);
	}
}

/* Parts that the rails carry at the moment, the oldest of each queue pair. */
struct heads {
	struct link_part *part[2][LINK_CONNECTIONS_MAX * LINK_QPS_MAX];
	unsigned int n[2];
};

static void add_heads(struct link *link, struct link_connection *c, struct heads *heads)
{
	unsigned int under_way = c->under_way[0] + c->under_way[1];
	struct link_part *oldest[2][LINK_QPS_MAX] = { 0 };
	uint64_t number[2][LINK_QPS_MAX];

	for (unsigned int k = 0; under_way; k++) {
		struct link_part *part = &c->part[k / 2][k % 2];
		unsigned int qp = c->number[k / 2] % (c->qps[k % 2] ? c->qps[k % 2] : 1);

		under_way -= !is_free(part);
		if (part->left <= 0 ||
		    (oldest[part->on][qp] && number[part->on][qp] < c->number[k / 2]))
			continue;
		oldest[part->on][qp] = part;
		number[part->on][qp] = c->number[k / 2];
	}
	for (unsigned int k = 0; k < 2 * LINK_QPS_MAX; k++)
		if (oldest[k % 2][k / 2])
			heads->part[k % 2][heads->n[k % 2]++] = oldest[k % 2][k / 2];
}

/* Completes what is done; when the next is, or 0. */
static double complete_parts(struct link *link, struct link_connection *c)
{
	unsigned int under_way = c->under_way[0] + c->under_way[1];
	double next = 0;

	for (unsigned int k = 0; under_way; k++) {
		struct link_part *part = &c->part[k / 2][k % 2];

		under_way -= !is_free(part);
		if (part->done > 0 && part->done <= link->now)
			complete(link, c, k / 2, k % 2);
		else if (part->done > 0 && (next <= 0 || part->done < next))
			next = part->done;
	}
	return next;
}

/* Up to @at at most, and to the next moment when all of a part is on the wire. */
static void advance(struct link *link, double at)
{
	struct heads heads = { 0 };
	const struct link_part *next = NULL;

	for (unsigned int n = 0; n < LINK_CONNECTIONS_MAX; n++)
		add_heads(link, &link->connection[n], &heads);
	for (unsigned int rail = 0; rail < 2; rail++)
		for (unsigned int k = 0; k < heads.n[rail]; k++) {
			const struct link_part *part = heads.part[rail][k];
			double end = link->now + part->left * heads.n[rail] / link->rate[rail];

			if (end > at)
				continue;
			at = end;
			next = part;
		}
	for (unsigned int rail = 0; rail < 2; rail++) {
		double bytes = (at - link->now) * link->rate[rail];

		if (!heads.n[rail])
			link->saved[rail] =
				fmin(link->saved[rail] + bytes, link->credit * link->rate[rail]);
		for (unsigned int k = 0; k < heads.n[rail]; k++) {
			struct link_part *part = heads.part[rail][k];

			part->left -= bytes / heads.n[rail];
			if (part != next && part->left > 1)
				continue;
			part->left = 0;
			part->done = at + link->latency;
		}
	}
	link->now = at;
}

void link_run(struct link *link, uint32_t share, double usec)
{
	double end = link->now + usec;

	do {
		double at = end;

		for (unsigned int n = 0; n < LINK_CONNECTIONS_MAX; n++)
			(void)complete_parts(link, &link->connection[n]);
		fill_windows(link, share);
		if (link->next_step > link->now && link->next_step < at)
			at = link->next_step;
		for (unsigned int n = 0; n < LINK_CONNECTIONS_MAX; n++) {
			double next = complete_parts(link, &link->connection[n]);

			if (next > 0 && next < at)
				at = next;
		}
		advance(link, at);
	} while (link->now < end);
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
