/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/netperf/counters.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/ipv4.h"

#define LINK_TEXT "/memfd:" MPIB_COUNTERS_NAME

static uint64_t load64(const uint64_t *field)
{
	return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)field, memory_order_relaxed);
}

static uint32_t load32(const uint32_t *field)
{
	return atomic_load_explicit((_Atomic uint32_t *)(uintptr_t)field, memory_order_acquire);
}

/* A descriptor of our own for the plugin's memfd, or -1. */
static int find_memfd(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	int fd = -1;

	if (!dir)
		return -1;
	while (fd < 0 && (entry = readdir(dir))) {
		char path[300], target[256];
		ssize_t len;

		(void)snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
		len = readlink(path, target, sizeof(target) - 1);
		if (len < 0)
			continue;
		target[len] = '\0';
		if (!strncmp(target, LINK_TEXT, strlen(LINK_TEXT)))
			fd = open(path, O_RDONLY | O_CLOEXEC);
	}
	(void)closedir(dir);
	return fd;
}

bool np_counters_open(struct np_counters *counters)
{
	mpib_cleanup(mpib_closep) int fd = find_memfd();
	const struct mpib_counters_header *header;
	struct stat st;
	void *map;

	*counters = (struct np_counters){ 0 };
	if (fd < 0 || fstat(fd, &st) < 0 || (size_t)st.st_size < sizeof(*header))
		return false;
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return false;
	counters->header = header = map;
	counters->len = (uint64_t)st.st_size;
	if (load32(&header->magic) == MPIB_COUNTERS_MAGIC &&
	    header->version == MPIB_COUNTERS_VERSION &&
	    header->entry_size >= sizeof(struct mpib_counter_entry) &&
	    sizeof(*header) + (uint64_t)header->entries * header->entry_size <= counters->len)
		return true;
	np_counters_close(counters);
	return false;
}

void np_counters_close(struct np_counters *counters)
{
	if (counters->header)
		(void)munmap((void *)(uintptr_t)counters->header, counters->len);
	counters->header = NULL;
}

const struct mpib_counter_entry *np_counters_entry(const struct np_counters *counters, uint32_t n)
{
	const struct mpib_counters_header *header = counters->header;
	const void *at = (const char *)(header + 1) + (uint64_t)n * header->entry_size;
	const struct mpib_counter_entry *entry = at;

	return load32(&entry->state) == MPIB_COUNTER_LIVE ? entry : NULL;
}

void np_counters_ways(const struct np_counters *counters, uint64_t ret_sent[2],
		      uint64_t ret_received[2])
{
	for (int rail = 0; rail < 2; rail++)
		ret_sent[rail] = ret_received[rail] = 0;
	for (uint32_t n = 0; n < counters->header->entries; n++) {
		const struct mpib_counter_entry *entry = np_counters_entry(counters, n);
		uint64_t *sum = entry && entry->kind == MPIB_COUNTER_SEND ? ret_sent : ret_received;

		for (int rail = 0; entry && rail < 2; rail++)
			sum[rail] += load64(&entry->rail[rail].bytes);
	}
}

void np_counters_rails(const struct np_counters *counters, uint64_t ret_bytes[2])
{
	uint64_t sent[2], received[2];

	np_counters_ways(counters, sent, received);
	for (int rail = 0; rail < 2; rail++)
		ret_bytes[rail] = sent[rail] + received[rail];
}

static bool counts_failover(const struct np_counters *counters)
{
	return load32(&counters->header->features) & MPIB_COUNTERS_HAVE_FAILOVER;
}

bool np_counters_failover(const struct np_counters *counters, struct np_failover *ret)
{
	*ret = (struct np_failover){ 0 };
	if (!counts_failover(counters))
		return false;
	for (uint32_t n = 0; n < counters->header->entries; n++) {
		const struct mpib_counter_entry *entry = np_counters_entry(counters, n);

		for (int rail = 0; entry && rail < 2; rail++) {
			ret->losses[rail] += load64(&entry->losses[rail]);
			ret->returns[rail] += load64(&entry->returns[rail]);
			ret->again[rail] += load64(&entry->parts_again[rail]);
		}
	}
	return true;
}

static void put_pair(FILE *out, const char *name, const uint64_t of[2])
{
	(void)fprintf(out, ",\"%s\":[%llu,%llu]", name, (unsigned long long)load64(&of[0]),
		      (unsigned long long)load64(&of[1]));
}

static void put_entry(FILE *out, const struct mpib_counter_entry *entry, bool failover, bool first)
{
	char local[MPIB_IPV4_TEXT_MAX], remote[MPIB_IPV4_TEXT_MAX];

	(void)fprintf(out,
		      "%s{\"kind\":\"%s\",\"conn_id\":%u,\"mode\":\"%s\",\"path\":\"%s\","
		      "\"sout_local\":\"%s\",\"sout_remote\":\"%s\",\"qps\":[%u,%u],\"share\":%u,"
		      "\"messages\":%llu,\"stalls\":%llu,\"flushes\":%llu,\"rails\":[",
		      first ? "" : ",", entry->kind == MPIB_COUNTER_SEND ? "send" : "recv",
		      load32(&entry->conn_id), load32(&entry->mode) ? "advanced" : "vanilla",
		      load32(&entry->path) ? "inter" : "intra",
		      mpib_ipv4_format(load32(&entry->sout_local), local),
		      mpib_ipv4_format(load32(&entry->sout_remote), remote), load32(&entry->qps[0]),
		      load32(&entry->qps[1]), load32(&entry->share),
		      (unsigned long long)load64(&entry->messages),
		      (unsigned long long)load64(&entry->stalls),
		      (unsigned long long)load64(&entry->flushes));
	for (int rail = 0; rail < 2; rail++) {
		const struct mpib_counter_rail *at = &entry->rail[rail];

		(void)fprintf(out,
			      "%s{\"bytes\":%llu,\"requests\":%llu,\"completions\":%llu,"
			      "\"cts\":%llu}",
			      rail ? "," : "", (unsigned long long)load64(&at->bytes),
			      (unsigned long long)load64(&at->requests),
			      (unsigned long long)load64(&at->completions),
			      (unsigned long long)load64(&at->cts));
	}
	(void)fputs("]", out);
	if (failover) {
		(void)fprintf(out, ",\"rails_up\":%u", load32(&entry->rails_up));
		put_pair(out, "losses", entry->losses);
		put_pair(out, "returns", entry->returns);
		put_pair(out, "parts_again", entry->parts_again);
	}
	(void)fputs("}", out);
}

char *np_counters_text(const struct np_counters *counters)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);
	bool first = true;

	if (!out)
		return NULL;
	for (uint32_t n = 0; n < counters->header->entries; n++) {
		const struct mpib_counter_entry *entry = np_counters_entry(counters, n);

		if (!entry)
			continue;
		put_entry(out, entry, counts_failover(counters), first);
		first = false;
	}
	(void)fclose(out);
	return text;
}
