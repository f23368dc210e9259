/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/verbs/device.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "common/hca_list.h"
#include "common/ipv4.h"
#include "plugin/base/log.h"
#include "plugin/base/result.h"
#include "plugin/verbs/async.h"
#include "plugin/verbs/device_pair.h"
#include "plugin/verbs/gdr.h"
#include "plugin/verbs/limit.h"
#include "plugin/verbs/mr.h"
#include "plugin/verbs/port.h"
#include "plugin/verbs/srq.h"

static struct {
	int count;
	struct mpib_device *device[MPIB_DEVICES_MAX];
} devices;

static const char *variable(unsigned int rail)
{
	return rail == MPIB_SOUT ? "MPIB_HCA_SOUT" : "MPIB_HCA_SUP";
}

/* Devices that the kernel has but libibverbs doesn't show: their provider library is missing, which
 * happens in containers. */
static bool kernel_has_devices(void)
{
	DIR *dir = opendir("/sys/class/infiniband");
	const struct dirent *entry;
	bool found = false;

	while (dir && !found && (entry = readdir(dir)))
		found = entry->d_name[0] != '.';
	if (dir)
		(void)closedir(dir);
	return found;
}

static void list_names(struct ibv_device **list, int count, char *buf, size_t size)
{
	size_t used = 0;

	buf[0] = '\0';
	for (int k = 0; k < count && used < size; k++)
		used += (size_t)snprintf(buf + used, size - used, "%s%s", k ? ", " : "",
					 mpib_verbs_device_name(list[k]));
	if (count == 0)
		(void)snprintf(buf, size, "none%s",
			       kernel_has_devices()
				       ? ", though the kernel has some: install their provider "
					 "libraries (ibverbs-providers) and give this process "
					 "/dev/infiniband"
				       : "");
}

static struct ibv_device *find(struct ibv_device **list, int count, const char *name)
{
	for (int k = 0; k < count; k++)
		if (strcmp(mpib_verbs_device_name(list[k]), name) == 0)
			return list[k];
	return NULL;
}

static void read_pci_path(struct mpib_hca *hca)
{
	char link[IBV_SYSFS_PATH_MAX + 16], path[PATH_MAX];

	/* The library's word for /sys/class/infiniband/NAME. */
	(void)snprintf(link, sizeof(link), "%s/device", hca->ctx->device->ibdev_path);
	if (realpath(link, path) && strlen(path) < sizeof(hca->pci_path))
		memcpy(hca->pci_path, path, strlen(path) + 1);
}

static void hca_close(struct mpib_hca *hca)
{
	if (!hca->ctx)
		return;
	mpib_watch_del(&hca->async);
	mpib_srq_fini(hca);
	mpib_mr_cache_free(hca->mrs);
	mpib_verbs_dealloc_pd(hca->pd);
	mpib_verbs_close(hca->ctx);
	hca->ctx = NULL;
}

static int check_port(struct mpib_hca *hca)
{
	int r = mpib_verbs_query_port(hca->ctx, hca->port, &hca->port_attr);

	if (r < 0) {
		MPIB_WARN("%s: port %s can't be queried (%s); the device has %u ports",
			  variable(hca->rail), hca->name, strerror(-r), hca->attr.phys_port_cnt);
		return mpib_error_of_host(r);
	}
	if (hca->port_attr.state != IBV_PORT_ACTIVE) {
		MPIB_WARN("%s=%s: the port is down; bring its link up (ip link, rdma link)",
			  variable(hca->rail), hca->name);
		return -MPIB_EUSAGE;
	}
	return 0;
}

static void read_speed(struct mpib_hca *hca)
{
	uint32_t speed = mpib_verbs_port_speed(hca->ctx, hca->port, &hca->port_attr);
	bool known;

	hca->speed_mbps = mpib_speed_mbps(hca->port_attr.active_width, speed, &known);
	if (!known)
		MPIB_WARN("%s rail %s: speed code %u with width code %u is newer than this "
			  "release: taken for %u Mbit/s",
			  mpib_rail_name(hca->rail), hca->name, speed, hca->port_attr.active_width,
			  hca->speed_mbps);
}

static int hca_open(struct mpib_hca *hca, const struct mpib_hca_name *name, unsigned int rail,
		    struct ibv_device **list, int count)
{
	struct ibv_device *device = find(list, count, name->device);
	char names[512];
	int r;

	(void)snprintf(hca->name, sizeof(hca->name), "%.*s:%u", (int)sizeof(name->device) - 1,
		       name->device, name->port);
	hca->rail = rail;
	hca->port = name->port;
	(void)pthread_mutex_init(&hca->srq_lock, NULL);
	if (!device) {
		list_names(list, count, names, sizeof(names));
		MPIB_WARN("%s=%s: no such RDMA device; there are: %s", variable(rail), name->device,
			  names);
		return -MPIB_EUSAGE;
	}

	r = mpib_verbs_open(device, &hca->ctx);
	if (r < 0) {
		hca->ctx = NULL;
		MPIB_WARN("%s=%s can't be opened: %s%s", variable(rail), name->device, strerror(-r),
			  r == -EACCES || r == -EPERM
				  ? "; this user needs read and write access to /dev/infiniband"
				  : "");
		return mpib_error_of_host(r);
	}

	r = mpib_verbs_query_device(hca->ctx, &hca->attr);
	if (r < 0) {
		MPIB_WARN("%s=%s: the device can't be queried: %s", variable(rail), name->device,
			  strerror(-r));
		r = mpib_error_of_host(r);
		goto fail;
	}
	r = check_port(hca);
	if (r < 0)
		goto fail;
	r = mpib_verbs_alloc_pd(hca->ctx, &hca->pd);
	if (r == 0)
		r = mpib_mr_cache_new(hca, &hca->mrs);
	if (r < 0) {
		MPIB_WARN("%s=%s: no protection domain: %s", variable(rail), name->device,
			  strerror(-r));
		r = mpib_error_of_host(r);
		goto fail;
	}

	hca->guid =
		be64toh(hca->attr.sys_image_guid ? hca->attr.sys_image_guid : hca->attr.node_guid);
	read_speed(hca);
	read_pci_path(hca);
	return 0;

fail:
	hca_close(hca);
	return r;
}

/* A wrong device would show at the first connection only: look at its GIDs now. */
static int check_gids(struct mpib_device *dev, const struct mpib_env *env,
		      uint32_t ret_ipv4_be[MPIB_RAIL_MAX])
{
	struct mpib_peer peer;
	struct mpib_source source;
	char text[MPIB_IPV4_TEXT_MAX];
	int r;

	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		struct mpib_hca *hca = &dev->hca[rail];

		r = mpib_hca_describe(hca, env, &peer, &source);
		if (r < 0)
			return r;
		ret_ipv4_be[rail] = source.gid.ipv4_be;
		MPIB_INFO("%s %s: GID %u %s, MTU %u, %u Mbit/s", mpib_rail_name(rail), hca->name,
			  source.gid.index, mpib_ipv4_format(source.gid.ipv4_be, text),
			  128u << peer.rail[rail].mtu, hca->speed_mbps);
	}
	return 0;
}

static void device_free(struct mpib_device *dev)
{
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		hca_close(&dev->hca[rail]);
	free(dev);
}

/* "sout+sup", with ":port" where it isn't the first one: NCCL finds devices by name. */
static void device_name(struct mpib_device *dev, const struct mpib_hca_name names[MPIB_RAIL_MAX])
{
	char port[MPIB_RAIL_MAX][16] = { "", "" };

	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++)
		if (names[rail].port != 1)
			(void)snprintf(port[rail], sizeof(port[rail]), ":%u", names[rail].port);
	(void)snprintf(dev->name, sizeof(dev->name), "%s%s+%s%s", names[MPIB_SOUT].device,
		       port[MPIB_SOUT], names[MPIB_SUP].device, port[MPIB_SUP]);
}

/* The library's part of relaxed ordering; a device that refuses it shows at the first buffer. */
static int choose_ordering(struct mpib_hca *hca, const struct mpib_env *env)
{
	hca->relaxed = (enum mpib_relaxed)env->relaxed_ordering;
	if (hca->relaxed == MPIB_RELAXED_OFF || mpib_verbs_has_iova2())
		return 0;
	if (hca->relaxed == MPIB_RELAXED_MAY) {
		hca->relaxed = MPIB_RELAXED_OFF;
		return 0;
	}
	MPIB_WARN("%s=1: this libibverbs has no relaxed ordering (ibv_reg_mr_iova2): take a newer "
		  "rdma-core, or set it to 2",
		  mpib_env_variable(env, &env->relaxed_ordering));
	return -MPIB_EUSAGE;
}

static int device_open(const struct mpib_hca_name names[MPIB_RAIL_MAX], struct ibv_device **list,
		       int count, const struct mpib_env *env, struct mpib_device **ret)
{
	struct mpib_device *dev = calloc(1, sizeof(*dev));
	uint32_t ipv4_be[MPIB_RAIL_MAX];
	int r;

	if (!dev)
		return -ENOMEM;
	device_name(dev, names);

	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		r = hca_open(&dev->hca[rail], &names[rail], rail, list, count);
		if (r == 0)
			r = mpib_limit_check(&dev->hca[rail], env);
		if (r == 0)
			r = choose_ordering(&dev->hca[rail], env);
		if (r < 0)
			goto fail;
	}
	r = check_gids(dev, env, ipv4_be);
	if (r < 0)
		goto fail;
	for (unsigned int rail = 0; rail < MPIB_RAIL_MAX; rail++) {
		r = mpib_async_watch(&dev->hca[rail]);
		if (r < 0)
			goto fail;
	}

	mpib_device_check_pair(dev, ipv4_be);
	dev->ptr_support = mpib_gdr_probe(dev, env);
	*ret = dev;
	return 0;

fail:
	device_free(dev);
	return r;
}

static int open_all(const struct mpib_env *env, struct ibv_device **list, int count)
{
	struct mpib_hca_name sout[MPIB_DEVICES_MAX], sup[MPIB_DEVICES_MAX];
	char names[512];
	char why[MPIB_ENV_WHY_MAX];
	int count_pairs, r;

	list_names(list, count, names, sizeof(names));
	if (!env->hca_sout[0] || !env->hca_sup[0]) {
		MPIB_WARN("%s is not set: name both rails' RDMA devices, as in MPIB_HCA_SOUT=name "
			  "MPIB_HCA_SUP=name; there are: %s",
			  variable(env->hca_sout[0] ? MPIB_SUP : MPIB_SOUT), names);
		return -MPIB_EUSAGE;
	}

	count_pairs =
		mpib_hca_pairs_parse(env->hca_sout, env->hca_sup, env->mode == MPIB_MODE_ADVANCED,
				     sout, sup, why, sizeof(why));
	if (count_pairs < 0) {
		MPIB_WARN("%s", why);
		return -MPIB_EUSAGE;
	}

	for (int k = 0; k < count_pairs; k++) {
		const struct mpib_hca_name pair[MPIB_RAIL_MAX] = { sout[k], sup[k] };
		struct mpib_device *dev = NULL;

		r = device_open(pair, list, count, env, &dev);
		if (r < 0)
			return r;
		dev->index = k;
		/* Both ports of a card have one system image GUID, and NCCL takes devices of equal
		 * GUID and port for one. */
		dev->guid = dev->hca[MPIB_SOUT].guid ^ (uint64_t)k << 56;
		devices.device[devices.count++] = dev;
	}
	return 0;
}

int mpib_devices_open(const struct mpib_env *env)
{
	struct ibv_device **list;
	int count, r;

	r = mpib_verbs_load();
	if (r < 0)
		return r;
	r = mpib_verbs_list(&list, &count);
	if (r < 0) {
		MPIB_WARN("RDMA devices can't be listed: %s; load the drivers and check "
			  "/sys/class/infiniband",
			  strerror(-r));
		return mpib_error_of_host(r);
	}

	r = open_all(env, list, count);
	mpib_verbs_free_list(list);
	if (r < 0)
		mpib_devices_close();
	return r;
}

void mpib_devices_close(void)
{
	for (int k = 0; k < devices.count; k++)
		device_free(devices.device[k]);
	devices.count = 0;
}

int mpib_device_count(void)
{
	return devices.count;
}

struct mpib_device *mpib_device_get(int index)
{
	return index >= 0 && index < devices.count ? devices.device[index] : NULL;
}
