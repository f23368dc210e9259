/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that changes hands while registrations come and go. The fabric runs with
 * MPIB_FABRIC_PAGES=1, so a key that leads to pages of before is an error. */
#include "tests/plugin/driver.h"

#include <string.h>
#include <sys/mman.h>

#define PAGE  ((size_t)4096)
#define PAGES 16u

static char *map_at(char *at, size_t pages)
{
	char *got = mmap(at, pages * PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

	CHECK(got != MAP_FAILED);
	return got;
}

static void *register_at(void *comm, char *at, size_t pages)
{
	void *mr = NULL;

	CHECK(net->regMr(comm, at, pages * PAGE, NCCL_PTR_HOST, &mr) == ncclSuccess);
	return mr;
}

/* P06: 16 pages are registered, then the last of them; the 16 are given back, 15 of them unmapped
 * and mapped anew. Who registers those gets a key of the new pages. At both ends. */
static void pages_mapped_anew(void)
{
	struct ends ends;
	void *ctx = NULL;

	library_open();
	CHECK(net_init(&ctx) == ncclSuccess);
	ends_open(&ends, ctx);
	for (unsigned int end = 0; end < 2; end++) {
		void *comm = end ? ends.recv : ends.send;
		char **buffer = end ? &ends.in : &ends.out, *kept = *buffer;
		void **mr = end ? &ends.recv_mr : &ends.send_mr, *kept_mr = *mr;
		char *area = map_at(NULL, PAGES);
		void *whole = register_at(comm, area, PAGES);
		void *last = register_at(comm, area + (PAGES - 1) * PAGE, 1);

		CHECK(net->deregMr(comm, whole) == ncclSuccess);
		CHECK(munmap(area, (PAGES - 1) * PAGE) == 0);
		(void)map_at(area, PAGES - 1);
		*mr = register_at(comm, area, PAGES - 1);
		*buffer = area;
		ends_move(&ends, (PAGES - 1) * PAGE - 1, (PAGES - 1) * PAGE);
		CHECK(net->deregMr(comm, *mr) == ncclSuccess);
		CHECK(net->deregMr(comm, last) == ncclSuccess);
		CHECK(munmap(area, PAGES * PAGE) == 0);
		*buffer = kept;
		*mr = kept_mr;
	}
	ends_close(&ends);
	CHECK(net->finalize(ctx) == ncclSuccess);
	CHECK(warnings == 0);
	library_close();
}

const struct trap memory_traps[] = {
	{ "pages-mapped-anew", pages_mapped_anew },
	{ NULL, NULL },
};
