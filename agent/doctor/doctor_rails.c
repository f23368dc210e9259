/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl doctor: both rails as sysfs shows them. No verbs library: what a broken one would hide
 * is what a person needs to see. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/doctor/doctor.h"
#include "common/hca_list.h"
#include "common/ipv4.h"

#define IB "/sys/class/infiniband"

/* Indices that verbs can name. */
#define GID_MAX 256u

/* RoCE's headers in a packet of the netdev: GRH or IPv4 + UDP, BTH, RETH, ICRC, rounded up. */
#define ROCE_OVERHEAD 74u

/* Packets of RDMA, in bytes of data. */
#define ROCE_MTU_MIN 256u
#define ROCE_MTU_MAX 4096u

/* Character devices that the kernel may number. */
#define UVERBS_MAX 256u

/* Two rails whose addresses share so many bits are hardly of two networks. */
#define NETWORK_LEN 24u

struct rail_port {
	const char *rail; /* "SOUT", "SUP" */
	char device[64];
	char port[8];
	char check[96]; /* "SOUT mlx5_0:1" */
	uint32_t ipv4_be;
	char netdev[32];
	unsigned int mtu;
	double gbps; /* 0: unknown */
	char numa[16];
};

/* ---- names ---------------------------------------------------------------------------------- */

static void list_devices(const struct mpib_doctor *doctor, char *buf, size_t size)
{
	char path[512];
	size_t used = 0;
	const struct dirent *entry;
	DIR *dir;

	(void)snprintf(path, sizeof(path), "%s" IB, doctor->root);
	(void)snprintf(buf, size, "none");
	dir = opendir(path);
	while (dir && used < size && (entry = readdir(dir))) {
		if (entry->d_name[0] != '.')
			used += (size_t)snprintf(buf + used, size - used, "%s%s", used ? ", " : "",
						 entry->d_name);
	}
	if (dir)
		(void)closedir(dir);
}

static void name_port(struct rail_port *p, const struct mpib_hca_name *name)
{
	(void)snprintf(p->device, sizeof(p->device), "%.*s", (int)sizeof(p->device) - 1,
		       name->device);
	(void)snprintf(p->port, sizeof(p->port), "%u", name->port);
	(void)snprintf(p->check, sizeof(p->check), "%s %s:%s", p->rail, p->device, p->port);
}

/* ---- one port ------------------------------------------------------------------------------- */

static int read_port(const struct mpib_doctor *doctor, const struct rail_port *p, const char *name,
		     char *buf, size_t size)
{
	return mpib_doctor_read(doctor, buf, size, IB "/%s/ports/%s/%s", p->device, p->port, name);
}

static bool check_link(struct mpib_doctor *doctor, struct rail_port *p)
{
	char state[64];
	char phys[64];
	char rate[64];
	char layer[64];

	if (read_port(doctor, p, "state", state, sizeof(state)) < 0) {
		mpib_doctor_say(doctor, MPIB_DOCTOR_FAIL, p->check, "name a port that exists",
				"device %s has no port %s", p->device, p->port);
		return false;
	}

	(void)read_port(doctor, p, "phys_state", phys, sizeof(phys));
	(void)read_port(doctor, p, "rate", rate, sizeof(rate));
	(void)read_port(doctor, p, "link_layer", layer, sizeof(layer));
	p->gbps = strtod(rate, NULL);
	if (!strstr(state, "ACTIVE")) {
		mpib_doctor_say(doctor, MPIB_DOCTOR_FAIL, p->check,
				"ip link set its netdev up; look at cable and switch",
				"port is %s (physically %s)", state, phys);
		return true;
	}
	mpib_doctor_say(doctor, MPIB_DOCTOR_OK, p->check, "", "%s, %s, %s", state, layer, rate);
	return true;
}

/* The IPv4 address of a GID "0000:0000:0000:0000:0000:ffff:0a00:0101", 0 for any other. */
static uint32_t gid_ipv4(const char *gid)
{
	unsigned int high;
	unsigned int low;

	if (strncmp(gid, "0000:0000:0000:0000:0000:ffff:", 30) != 0 ||
	    sscanf(gid + 30, "%4x:%4x", &high, &low) != 2)
		return 0;
	return htonl(high << 16 | low);
}

static bool gid_serves(const struct mpib_doctor *doctor, const struct rail_port *p,
		       unsigned int index, uint32_t *ret_ipv4)
{
	char gid[64];
	char type[64];

	if (mpib_doctor_read(doctor, gid, sizeof(gid), IB "/%s/ports/%s/gids/%u", p->device,
			     p->port, index) < 0 ||
	    mpib_doctor_read(doctor, type, sizeof(type), IB "/%s/ports/%s/gid_attrs/types/%u",
			     p->device, p->port, index) < 0)
		return false;

	*ret_ipv4 = gid_ipv4(gid);
	return strstr(type, "v2") && mpib_ipv4_routable(*ret_ipv4);
}

static void check_gid(struct mpib_doctor *doctor, struct rail_port *p)
{
	const int wanted = doctor->env.gid_index;
	char at[24] = "";
	char addr[MPIB_IPV4_TEXT_MAX];
	uint32_t ipv4 = 0;

	for (unsigned int index = 0; index < GID_MAX; index++) {
		if (wanted >= 0 && (unsigned int)wanted != index)
			continue;
		if (!gid_serves(doctor, p, index, &ipv4))
			continue;
		(void)mpib_doctor_read(doctor, p->netdev, sizeof(p->netdev),
				       IB "/%s/ports/%s/gid_attrs/ndevs/%u", p->device, p->port,
				       index);
		p->ipv4_be = ipv4;
		mpib_doctor_say(doctor, MPIB_DOCTOR_OK, p->check, "", "GID %u: %s, RoCE v2 on %s",
				index, mpib_ipv4_format(ipv4, addr),
				*p->netdev ? p->netdev : "no netdev");
		return;
	}

	if (wanted >= 0)
		(void)snprintf(at, sizeof(at), " at index %d", wanted);
	mpib_doctor_say(doctor, MPIB_DOCTOR_FAIL, p->check,
			"give its netdev an IPv4 address (ip addr add), or correct "
			"MPIB_IB_GID_INDEX",
			"no RoCE v2 GID with an IPv4 address%s", at);
}

/* The largest RDMA packet that fits. */
static unsigned int roce_mtu(unsigned int netdev_mtu)
{
	unsigned int mtu = ROCE_MTU_MAX;

	while (mtu > ROCE_MTU_MIN && mtu + ROCE_OVERHEAD > netdev_mtu)
		mtu /= 2;
	return mtu;
}

static void check_netdev(struct mpib_doctor *doctor, struct rail_port *p)
{
	char state[32];
	char mtu[16];

	if (!*p->netdev)
		return;

	(void)mpib_doctor_read(doctor, state, sizeof(state), "/sys/class/net/%s/operstate",
			       p->netdev);
	(void)mpib_doctor_read(doctor, mtu, sizeof(mtu), "/sys/class/net/%s/mtu", p->netdev);
	p->mtu = (unsigned int)strtoul(mtu, NULL, 10);
	if (strcmp(state, "down") == 0)
		mpib_doctor_say(doctor, MPIB_DOCTOR_FAIL, p->check, "ip link set it up",
				"netdev %s is down", p->netdev);
	if (p->mtu < ROCE_MTU_MAX + ROCE_OVERHEAD)
		mpib_doctor_say(doctor, MPIB_DOCTOR_WARN, p->check,
				"ip link set it mtu 9000, on switch and peers too",
				"netdev %s has MTU %u: RDMA packets of %u bytes where %u are the "
				"best",
				p->netdev, p->mtu, roce_mtu(p->mtu), ROCE_MTU_MAX);
	else
		mpib_doctor_say(doctor, MPIB_DOCTOR_OK, p->check, "",
				"netdev %s, MTU %u: RDMA packets of %u bytes", p->netdev, p->mtu,
				roce_mtu(p->mtu));
}

static void check_pci(struct mpib_doctor *doctor, struct rail_port *p)
{
	char link[512];
	char path[1024];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "%s" IB "/%s/device", doctor->root, p->device);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0) {
		mpib_doctor_say(doctor, MPIB_DOCTOR_OK, p->check, "",
				"a device without PCI (software RDMA?)");
		return;
	}

	path[n] = '\0';
	(void)mpib_doctor_read(doctor, p->numa, sizeof(p->numa), IB "/%s/device/numa_node",
			       p->device);
	mpib_doctor_say(doctor, MPIB_DOCTOR_OK, p->check, "", "PCI %s, NUMA node %s",
			strrchr(path, '/') ? strrchr(path, '/') + 1 : path,
			*p->numa ? p->numa : "unknown");
}

/* The character device through which the verbs library talks to the kernel. */
static void check_node(struct mpib_doctor *doctor, const struct rail_port *p)
{
	char path[512];
	char name[64];

	for (unsigned int n = 0; n < UVERBS_MAX; n++) {
		if (mpib_doctor_read(doctor, name, sizeof(name),
				     "/sys/class/infiniband_verbs/uverbs%u/ibdev", n) < 0 ||
		    strcmp(name, p->device) != 0)
			continue;
		(void)snprintf(path, sizeof(path), "%s/dev/infiniband/uverbs%u", doctor->root, n);
		if (access(path, R_OK | W_OK) == 0)
			mpib_doctor_say(doctor, MPIB_DOCTOR_OK, p->check, "", "%s is accessible",
					path);
		else
			mpib_doctor_say(doctor, MPIB_DOCTOR_FAIL, p->check,
					"give this user, or container, read and write access to "
					"/dev/infiniband",
					"%s: %s", path, strerror(errno));
		return;
	}

	mpib_doctor_say(doctor, MPIB_DOCTOR_FAIL, p->check, "modprobe ib_uverbs",
			"device %s has no uverbs node", p->device);
}

static void check_port(struct mpib_doctor *doctor, struct rail_port *p)
{
	char layer[64];
	char path[512];
	char list[256];

	(void)snprintf(path, sizeof(path), "%s" IB "/%s", doctor->root, p->device);
	if (access(path, F_OK) < 0) {
		list_devices(doctor, list, sizeof(list));
		mpib_doctor_say(doctor, MPIB_DOCTOR_FAIL, p->check,
				"correct MPIB_HCA_SOUT or MPIB_HCA_SUP, or load the driver",
				"no RDMA device %s; there are: %s", p->device, list);
		return;
	}
	if (!check_link(doctor, p))
		return;

	(void)read_port(doctor, p, "link_layer", layer, sizeof(layer));
	if (strcmp(layer, "InfiniBand") != 0) {
		check_gid(doctor, p);
		check_netdev(doctor, p);
	} else if (strcmp(p->rail, "SOUT") == 0) {
		(void)mpib_ipv4_parse(doctor->env.node_addr, &p->ipv4_be);
	}
	check_pci(doctor, p);
	check_node(doctor, p);
}

/* ---- both rails ----------------------------------------------------------------------------- */

static void check_pair(struct mpib_doctor *doctor, const struct rail_port *sout,
		       const struct rail_port *sup)
{
	if (strcmp(sout->device, sup->device) == 0 && strcmp(sout->port, sup->port) == 0) {
		mpib_doctor_say(doctor, MPIB_DOCTOR_WARN, "rails",
				"name two ports where the machine has them",
				"both rails are %s:%s, which MPIB_MODE=1 refuses", sout->device,
				sout->port);
		return;
	}
	if (sout->ipv4_be && sup->ipv4_be &&
	    mpib_ipv4_same_prefix(sout->ipv4_be, sup->ipv4_be, NETWORK_LEN))
		mpib_doctor_say(doctor, MPIB_DOCTOR_WARN, "rails",
				"pair ports of the two networks, SOUT's and SUP's",
				"%s and %s have addresses of one /%u network: are they the right "
				"pair?",
				sout->device, sup->device, NETWORK_LEN);
	if (sout->gbps > 0 && sup->gbps > 0)
		mpib_doctor_say(doctor, MPIB_DOCTOR_OK, "rails", "",
				"by their speeds %s and %s share a message as %.0f:%.0f (%.0f%% on "
				"SUP)",
				sout->device, sup->device, sout->gbps, sup->gbps,
				100 * sup->gbps / (sout->gbps + sup->gbps));
	if (sup->gbps > 0 && sup->gbps < sout->gbps)
		mpib_doctor_say(doctor, MPIB_DOCTOR_WARN, "rails", "exchange them if so",
				"SUP %s (%g Gb/s) is slower than SOUT %s (%g Gb/s): are they "
				"swapped?",
				sup->device, sup->gbps, sout->device, sout->gbps);
	if (*sout->numa && *sup->numa && strcmp(sout->numa, sup->numa) != 0)
		mpib_doctor_say(doctor, MPIB_DOCTOR_WARN, "rails",
				"pair NICs of one NUMA node where the machine has them",
				"%s is at NUMA node %s, %s at %s", sout->device, sout->numa,
				sup->device, sup->numa);
}

/* What later checks need of it. */
static void keep_pair(struct mpib_doctor *doctor, const struct rail_port *sout,
		      const struct rail_port *sup)
{
	struct mpib_doctor_pair *pair = &doctor->pairs[doctor->n_pairs++];

	(void)snprintf(pair->name, sizeof(pair->name), "%s:%s+%s:%s", sout->device, sout->port,
		       sup->device, sup->port);
	pair->ipv4_be[0] = sout->ipv4_be;
	pair->ipv4_be[1] = sup->ipv4_be;
	(void)snprintf(pair->netdev[0], sizeof(pair->netdev[0]), "%s", sout->netdev);
	(void)snprintf(pair->netdev[1], sizeof(pair->netdev[1]), "%s", sup->netdev);
}

void mpib_doctor_rails(struct mpib_doctor *doctor)
{
	struct mpib_hca_name sout_names[MPIB_DEVICES_MAX], sup_names[MPIB_DEVICES_MAX];
	const struct mpib_env *env = &doctor->env;
	char why[MPIB_ENV_WHY_MAX];
	char list[256];
	int count;

	if (doctor->hcas_refused)
		return;
	if (!env->hca_sout[0] || !env->hca_sup[0]) {
		list_devices(doctor, list, sizeof(list));
		mpib_doctor_say(doctor, MPIB_DOCTOR_FAIL, "rails",
				"set both as the job does, MPIB_HCA_SOUT=name MPIB_HCA_SUP=name",
				"MPIB_HCA_SOUT or MPIB_HCA_SUP is not set; RDMA devices: %s", list);
		return;
	}

	count = mpib_hca_pairs_parse(env->hca_sout, env->hca_sup, env->mode == MPIB_MODE_ADVANCED,
				     sout_names, sup_names, why, sizeof(why));
	if (count < 0)
		mpib_doctor_say(doctor, MPIB_DOCTOR_FAIL, "rails",
				"name two ports a pair, as many for SOUT as for SUP, and each pair "
				"once",
				"%s", why);
	for (int k = 0; k < count; k++) {
		struct rail_port sout = { .rail = "SOUT" };
		struct rail_port sup = { .rail = "SUP" };

		name_port(&sout, &sout_names[k]);
		name_port(&sup, &sup_names[k]);
		check_port(doctor, &sout);
		check_port(doctor, &sup);
		check_pair(doctor, &sout, &sup);
		keep_pair(doctor, &sout, &sup);
	}
}
