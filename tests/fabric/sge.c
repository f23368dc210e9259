/* SPDX-License-Identifier: Apache-2.0 */
/* Scatter and gather lists of posted sends: checking their keys, and copying by them. */
#include "tests/fabric/fabric.h"

#include <assert.h>
#include <string.h>

/* True if every byte of [@from, @from + @len) of the message may be touched with @access. */
bool fab_sge_fit(struct fab_qp *qp, const struct fab_wqe *w, uint64_t from, uint64_t len,
		 unsigned int access)
{
	for (int k = 0; k < w->sges && len; k++) {
		const struct ibv_sge *sge = &w->sge[k];
		struct fab_mr *mr;
		uint64_t n;

		if (from >= sge->length) {
			from -= sge->length;
			continue;
		}
		n = sge->length - from < len ? sge->length - from : len;
		mr = fab_mr_find(sge->lkey, qp->qp.pd, sge->addr + from, n, access);
		if (!mr || !fab_pages_kept(mr, sge->addr + from, n))
			return false;
		len -= n;
		from = 0;
	}
	return true;
}

void fab_sge_gather(struct fab_qp *qp, const struct fab_wqe *w, uint64_t from, uint64_t len,
		    uint8_t *to)
{
	if (w->is_inline) {
		memcpy(to, w->inline_data + from, len);
		return;
	}
	for (int k = 0; k < w->sges && len; k++) {
		const struct ibv_sge *sge = &w->sge[k];
		struct fab_mr *mr;
		uint64_t n;

		if (from >= sge->length) {
			from -= sge->length;
			continue;
		}
		n = sge->length - from < len ? sge->length - from : len;
		mr = fab_mr_find(sge->lkey, qp->qp.pd, sge->addr + from, n, 0);
		assert(mr); /* the caller has checked */
		fab_copy_out(mr, to, fab_mr_at(mr, sge->addr + from), n);
		to += n;
		len -= n;
		from = 0;
	}
}

bool fab_sge_scatter(struct fab_qp *qp, const struct fab_wqe *w, uint64_t from, uint64_t len,
		     const uint8_t *data)
{
	if (!fab_sge_fit(qp, w, from, len, IBV_ACCESS_LOCAL_WRITE))
		return false;
	for (int k = 0; k < w->sges && len; k++) {
		const struct ibv_sge *sge = &w->sge[k];
		struct fab_mr *mr;
		uint64_t n;

		if (from >= sge->length) {
			from -= sge->length;
			continue;
		}
		n = sge->length - from < len ? sge->length - from : len;
		mr = fab_mr_find(sge->lkey, qp->qp.pd, sge->addr + from, n, 0);
		assert(mr); /* the caller has checked */
		fab_copy_in(mr, fab_mr_at(mr, sge->addr + from), data, n);
		data += n;
		len -= n;
		from = 0;
	}
	return true;
}
