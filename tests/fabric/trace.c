/* SPDX-License-Identifier: Apache-2.0 */
/* What programs asked of the fabric, for tests to read: with MPIB_FABRIC_TRACE=FILE a line for each
 * QP that is ready to send, each registration, and each question for enhanced connection
 * establishment. A line is one write, so that processes may share the file. */
#include "tests/fabric/fabric.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((format(printf, 2, 3))) static void add_line(uint32_t dev, const char *format, ...)
{
	const struct fab_dev_conf *conf = fab_dev_conf(dev);
	const char *path = getenv("MPIB_FABRIC_TRACE");
	char line[512];
	va_list args;
	int len, fd;

	if (!path || !*path)
		return;
	len = snprintf(line, sizeof(line), "%s/%s ", fab.conf->node[conf->node].name, conf->name);
	va_start(args, format);
	len += vsnprintf(line + len, sizeof(line) - (size_t)len, format, args);
	va_end(args);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	(void)!write(fd, line, (size_t)len);
	(void)close(fd);
}

void fab_trace_qp(const struct fab_qp *qp)
{
	const struct ibv_qp_attr *attr = &qp->attr;

	add_line(qp->dev,
		 "qp 0x%x tc=%u sl=%u timeout=%u retry=%u mtu=%u pkey=0x%04x sgid=%u sq=%u "
		 "inline=%u\n",
		 qp->qp.qp_num, attr->ah_attr.grh.traffic_class, attr->ah_attr.sl, attr->timeout,
		 attr->retry_cnt, 128U << attr->path_mtu, fab_pkey(qp),
		 attr->ah_attr.grh.sgid_index, qp->init.cap.max_send_wr,
		 qp->init.cap.max_inline_data);
}

void fab_trace_mr(const struct fab_mr *mr, uint32_t dev)
{
	add_line(dev, "mr bytes=%zu remote=%s relaxed=%s\n", mr->mr.length,
		 mr->access & IBV_ACCESS_REMOTE_READ	? "read"
		 : mr->access & IBV_ACCESS_REMOTE_WRITE ? "write"
							: "no",
		 mr->access & IBV_ACCESS_RELAXED_ORDERING ? "yes" : "no");
}

void fab_trace_ece(uint32_t dev)
{
	add_line(dev, "ece asked\n");
}
