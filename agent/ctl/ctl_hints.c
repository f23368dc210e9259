/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl hints: what the table says, read as a plugin reads it; no agent is needed. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/ctl/ctl.h"
#include "common/cleanup.h"
#include "common/hint.h"
#include "common/ipv4.h"
#include "common/share.h"

static int open_table(const struct mpib_ctl *ctl, const struct mpib_hint_header **ret_header,
		      size_t *ret_size)
{
	mpib_cleanup(mpib_closep) int dir_fd = -1;
	mpib_cleanup(mpib_closep) int fd = -1;
	struct stat st;
	void *map;

	dir_fd = open(ctl->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		return -errno;
	fd = openat(dir_fd, MPIB_HINTS_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size < MPIB_HINTS_SIZE(1) ||
	    (uint64_t)st.st_size > 2 * MPIB_HINTS_SIZE(MPIB_HINT_ENTRIES_MAX))
		return -EBADMSG;

	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return -errno;

	*ret_header = map;
	*ret_size = (size_t)st.st_size;
	return 0;
}

void mpib_ctl_unmap_hints(const struct mpib_hint_header *header, size_t size)
{
	(void)munmap((void *)(uintptr_t)header, size);
}

int mpib_ctl_map_hints(const struct mpib_ctl *ctl, const struct mpib_hint_header **ret_header,
		       size_t *ret_size)
{
	const struct mpib_hint_header *header = NULL;
	uint32_t count;
	int r = open_table(ctl, &header, ret_size);

	if (r < 0)
		return r;

	count = mpib_hint_load(&header->max_entries);
	if (mpib_hint_load(&header->magic) != MPIB_HINT_MAGIC || count < 1 ||
	    count > MPIB_HINT_ENTRIES_MAX || MPIB_HINTS_SIZE(count) > *ret_size) {
		mpib_ctl_unmap_hints(header, *ret_size);
		return -EBADMSG;
	}

	*ret_header = header;
	return 0;
}

static void add_slot(struct mpib_ctl *ctl, uint32_t index, const struct mpib_hint_entry *entry)
{
	struct mpib_hint_entry copy = { 0 };
	char flow[MPIB_FLOW_TEXT_MAX] = "-";
	char percent[MPIB_SHARE_TEXT_MAX];
	bool stable = mpib_hint_read_entry(entry, &copy);

	if (!stable) {
		copy.sup_bw = mpib_hint_load(&entry->sup_bw);
		copy.seq = mpib_hint_load(&entry->seq);
		copy.src_ip = mpib_hint_load(&entry->src_ip);
		copy.dst_ip = mpib_hint_load(&entry->dst_ip);
	}
	if (!ctl->all && !copy.src_ip && stable)
		return;
	if (copy.src_ip)
		(void)mpib_flow_format(copy.src_ip, copy.dst_ip, flow);

	mpib_output_row(ctl->output);
	mpib_output_number(ctl->output, "slot", "SLOT", index);
	mpib_output_text(ctl->output, "flow", "FLOW", flow);
	mpib_output_number(ctl->output, "share", "SHARE", copy.sup_bw);
	mpib_output_note(ctl->output, "SUP", mpib_share_format(copy.sup_bw, percent));
	mpib_output_number(ctl->output, "seq", "SEQ", copy.seq);
	mpib_output_bool(ctl->output, "stable", "STABLE", stable);
}

enum mpib_ctl_exit mpib_ctl_hints(struct mpib_ctl *ctl)
{
	const struct mpib_hint_header *header = NULL;
	const struct mpib_hint_entry *entries;
	uint32_t count;
	size_t size = 0;
	int r;

	r = mpib_ctl_map_hints(ctl, &header, &size);
	if (r < 0)
		return mpib_ctl_fail(ctl, r, MPIB_HINTS_NAME);

	count = mpib_hint_load(&header->max_entries);
	if (MPIB_HINTS_SIZE(count) > size)
		count = (uint32_t)((size - sizeof(*header)) / sizeof(*entries));
	mpib_output_number(ctl->output, "max_entries", "slots", count);
	mpib_output_number(ctl->output, "generation", "generation",
			   mpib_hint_load(&header->generation));
	mpib_output_number(ctl->output, "heartbeat", "heartbeat",
			   mpib_hint_load(&header->heartbeat));
	mpib_output_list(ctl->output, "hints", "no flows");
	entries = (const struct mpib_hint_entry *)(const void *)(header + 1);
	for (uint32_t index = 0; index < count; index++)
		add_slot(ctl, index, &entries[index]);

	mpib_ctl_unmap_hints(header, size);
	return MPIB_CTL_OK;
}
