/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl doctor: the rails' networks against the islands. A job has one idea of its island
 * (MPIB_ISLAND_PREFIX_LEN, by which it goes alone) and the agent's policy another; SUP has to reach
 * what the first one takes in. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/doctor/doctor.h"
#include "agent/policy/config.h"
#include "common/cleanup.h"
#include "common/ipv4.h"

#define CHECK "islands"

/* "10.0.1.0/24" in @buf, MPIB_CIDR_TEXT_MAX bytes. Returns @buf. */
static char *network(uint32_t addr_be, unsigned int len, char *buf)
{
	char addr[MPIB_IPV4_TEXT_MAX];

	(void)snprintf(buf, MPIB_CIDR_TEXT_MAX, "%s/%u",
		       mpib_ipv4_format(addr_be & mpib_ipv4_mask(len), addr), len);
	return buf;
}

/* ---- SUP's network -------------------------------------------------------------------------- */

static unsigned int mask_len(uint32_t mask_be)
{
	unsigned int len = 0;

	while (len < MPIB_IPV4_BITS && mpib_ipv4_mask(len) != mask_be)
		len++;
	return len;
}

/* What the kernel's table of routes says of @netdev: how long the prefix of the network is in which
 * @addr_be lies, 32 where it doesn't say; and whether a gateway leads beyond it. */
static void read_routes(const struct mpib_doctor *doctor, const char *netdev, uint32_t addr_be,
			unsigned int *ret_len, bool *ret_gateway)
{
	mpib_cleanup(mpib_fclosep) FILE *file = NULL;
	char path[512], line[512];

	/* A root of /proc/PID leads to the table of whoever reads it. */
	if (doctor->job.pid)
		(void)snprintf(path, sizeof(path), "/proc/%d/net/route", (int)doctor->job.pid);
	else
		(void)snprintf(path, sizeof(path), "%s/proc/net/route", doctor->root);
	*ret_len = MPIB_IPV4_BITS;
	*ret_gateway = false;
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		unsigned int dest_be, gateway_be, mask_be;
		char name[32];

		/* As numbers of this host's order: bytes as they lie in memory. */
		if (sscanf(line, "%31s %8x %8x %*x %*d %*d %*d %8x", name, &dest_be, &gateway_be,
			   &mask_be) != 4 ||
		    strcmp(name, netdev) != 0)
			continue;
		if (gateway_be)
			*ret_gateway = true;
		else if ((addr_be & mask_be) == dest_be && mask_len(mask_be) < *ret_len)
			*ret_len = mask_len(mask_be);
	}
}

static void check_sup(struct mpib_doctor *doctor, const struct mpib_doctor_pair *pair)
{
	const unsigned int island_len = (unsigned int)doctor->env.prefix_len;
	char island[MPIB_CIDR_TEXT_MAX], net[MPIB_CIDR_TEXT_MAX];
	unsigned int len;
	bool gateway;

	if (!pair->ipv4_be[1] || !*pair->netdev[1])
		return;
	read_routes(doctor, pair->netdev[1], pair->ipv4_be[1], &len, &gateway);
	if (len == MPIB_IPV4_BITS || len <= island_len || gateway)
		return;
	mpib_doctor_say(doctor, MPIB_DOCTOR_WARN, CHECK,
			"give SUP a network that all of the island is in, or a route; or raise "
			"MPIB_ISLAND_PREFIX_LEN",
			"SUP of %s is in %s on %s, which is smaller than the island %s: there is "
			"no way to the nodes of the island beyond it",
			pair->name, network(pair->ipv4_be[1], len, net), pair->netdev[1],
			network(pair->ipv4_be[0], island_len, island));
}

/* ---- the agent's islands -------------------------------------------------------------------- */

static void on_text(struct mpib_ctl *ctl, const void *record)
{
	const struct mpib_admin_text *piece = record;

	if (piece->len <= sizeof(piece->text))
		(void)fwrite(piece->text, 1, piece->len, ctl->memory);
}

/* The policy in force, or NULL: that no agent answers is a finding of its own. */
static struct mpib_policy *ask_policy(struct mpib_ctl *ctl)
{
	mpib_cleanup(mpib_freep) char *text = NULL;
	struct mpib_policy *policy = NULL;
	struct mpib_admin_text record;
	struct mpib_cause cause = { 0 };
	enum mpib_ctl_exit code;
	size_t len = 0;

	ctl->memory = open_memstream(&text, &len);
	if (!ctl->memory)
		return NULL;
	code = mpib_ctl_ask(ctl, MPIB_ADMIN_POLICY, NULL, &record, sizeof(record), on_text,
			    MPIB_CTL_SECONDS);
	if (fclose(ctl->memory) || code != MPIB_CTL_OK ||
	    mpib_config_parse("policy", text, len, &policy, &cause) < 0)
		return NULL;
	return policy;
}

/* The longest subnet that holds @addr_be, or NULL; they are sealed in that order. */
static const struct mpib_subnet *subnet_of(const struct mpib_policy *policy, uint32_t addr_be)
{
	for (size_t n = 0; n < policy->n_subnets; n++)
		if (mpib_ipv4_same_prefix(policy->subnets[n].addr_be, addr_be,
					  policy->subnets[n].len))
			return &policy->subnets[n];
	return NULL;
}

/* A subnet of another island inside the first @len bits of @addr_be, or NULL. */
static const struct mpib_subnet *stranger(const struct mpib_policy *policy, unsigned int island,
					  uint32_t addr_be, unsigned int len)
{
	for (size_t n = 0; n < policy->n_subnets; n++)
		if (policy->subnets[n].island != island && policy->subnets[n].len > len &&
		    mpib_ipv4_same_prefix(policy->subnets[n].addr_be, addr_be, len))
			return &policy->subnets[n];
	return NULL;
}

static void check_named(struct mpib_doctor *doctor, const struct mpib_policy *policy,
			const struct mpib_subnet *own, uint32_t addr_be)
{
	const unsigned int len = (unsigned int)doctor->env.prefix_len;
	const struct mpib_subnet *other = stranger(policy, own->island, addr_be, len);
	char addr[MPIB_IPV4_TEXT_MAX], jobs[MPIB_CIDR_TEXT_MAX], net[MPIB_CIDR_TEXT_MAX];

	if (other)
		mpib_doctor_say(doctor, MPIB_DOCTOR_WARN, CHECK,
				"raise MPIB_ISLAND_PREFIX_LEN until it separates them",
				"%s is of island %s, and %s inside the job's %s "
				"(MPIB_ISLAND_PREFIX_LEN=%u) of island %s: without the agent the "
				"job takes both for one",
				mpib_ipv4_format(addr_be, addr), policy->islands[own->island].name,
				network(other->addr_be, other->len, net),
				network(addr_be, len, jobs), len,
				policy->islands[other->island].name);
	else
		mpib_doctor_say(doctor, MPIB_DOCTOR_OK, CHECK, "",
				"%s is of island %s (%s); without the agent a job goes by %s",
				mpib_ipv4_format(addr_be, addr), policy->islands[own->island].name,
				network(own->addr_be, own->len, net), network(addr_be, len, jobs));
}

static void check_unnamed(struct mpib_doctor *doctor, const struct mpib_policy *policy,
			  uint32_t addr_be)
{
	const unsigned int len = (unsigned int)doctor->env.prefix_len;
	char addr[MPIB_IPV4_TEXT_MAX], net[MPIB_CIDR_TEXT_MAX];

	(void)mpib_ipv4_format(addr_be, addr);
	if (policy->n_islands)
		mpib_doctor_say(doctor, MPIB_DOCTOR_WARN, CHECK,
				"name its subnet in [islands] and reload",
				"%s is in none of the %zu islands that the policy names, and its "
				"island is %s",
				addr, policy->n_islands, network(addr_be, policy->prefix_len, net));
	if (policy->prefix_len != len)
		mpib_doctor_say(doctor, MPIB_DOCTOR_WARN, CHECK,
				"make MPIB_ISLAND_PREFIX_LEN and prefix_len of [islands] alike",
				"the agent's islands have a prefix of %u bits, the job's "
				"(MPIB_ISLAND_PREFIX_LEN) %u: without the agent it takes others "
				"for its island",
				policy->prefix_len, len);
	else if (!policy->n_islands)
		mpib_doctor_say(doctor, MPIB_DOCTOR_OK, CHECK, "",
				"%s is of island %s, for the agent and without it", addr,
				network(addr_be, len, net));
}

void mpib_doctor_islands(struct mpib_doctor *doctor)
{
	struct mpib_policy *policy = NULL;

	if (doctor->prefix_refused)
		return;
	if (doctor->env.mode == MPIB_MODE_ADVANCED && doctor->n_pairs)
		policy = ask_policy(doctor->ctl);
	for (unsigned int k = 0; k < doctor->n_pairs; k++) {
		const struct mpib_doctor_pair *pair = &doctor->pairs[k];
		const struct mpib_subnet *own;

		if (!pair->ipv4_be[0])
			continue;
		check_sup(doctor, pair);
		if (!policy)
			continue;
		own = subnet_of(policy, pair->ipv4_be[0]);
		if (own)
			check_named(doctor, policy, own, pair->ipv4_be[0]);
		else
			check_unnamed(doctor, policy, pair->ipv4_be[0]);
	}
	(void)mpib_policy_free(policy);
}
