/* SPDX-License-Identifier: Apache-2.0 */
/* The INI reader of the fabric. Sections: [fabric], [device NAME] (a rail that every node has),
 * [node NAME] with keys of its own and DEVICE.KEY for what differs there. Strict: an unknown key, a
 * long line or a value out of range is an error with its line number. */
#include "tests/fabric/config.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/macros.h"

#define TEMPLATES_MAX 16
#define LINE_BYTES    512
#define FILE_BYTES    (1 << 20)

struct parser {
	struct fab_config *conf;
	struct fab_dev_conf template[TEMPLATES_MAX];
	uint32_t templates;
	enum { SEC_NONE, SEC_FABRIC, SEC_DEVICE, SEC_NODE } section;
	uint32_t node_devs; /* index of the current node's first device */
	char *err;
	size_t err_len;
	unsigned int line;
};

struct key {
	const char *name;
	enum {
		K_U32,
		K_U64,
		K_SIZE,
		K_USEC,
		K_NAME,
		K_PCI,
		K_GIDS,
		K_ADDR,
		K_SCOPE,
		K_LAYER,
		K_PKEYS,
		K_HAS
	} type;
	size_t offset;
	uint64_t min, max;
};

#define DEV(field) offsetof(struct fab_dev_conf, field)

static const struct key dev_keys[] = {
	{ "network", K_NAME, DEV(network), 0, 0 },
	{ "scope", K_SCOPE, DEV(scoped), 0, 0 },
	{ "address", K_ADDR, DEV(gid), 0, 0 },
	{ "gids", K_GIDS, DEV(gid), 0, 0 },
	{ "pci", K_PCI, DEV(pci), 0, 0 },
	{ "rate", K_SIZE, DEV(rate), 0, 1ULL << 40 },
	{ "latency_us", K_USEC, DEV(latency_ns), 0, 60 * 1000 * 1000 },
	{ "unseen_us", K_USEC, DEV(unseen_ns), 0, 60 * 1000 * 1000 },
	{ "mtu", K_U32, DEV(mtu), 256, 4096 },
	{ "speed_gbps", K_U32, DEV(speed_gbps), 1, 800 },
	{ "active_width", K_U32, DEV(active_width), 1, 255 },
	{ "active_speed", K_U32, DEV(active_speed), 1, 65535 },
	{ "pkeys", K_PKEYS, DEV(pkey), 0, 0 },
	{ "atomics", K_HAS, DEV(atomics), 0, 0 },
	{ "relaxed_ordering", K_HAS, DEV(relaxed_ordering), 0, 0 },
	{ "adaptive", K_HAS, DEV(adaptive), 0, 0 },
	{ "link_layer", K_LAYER, DEV(infiniband), 0, 0 },
	{ "max_msg", K_U32, DEV(max_msg), 1, 1U << 31 },
	{ "max_qp", K_U32, DEV(max_qp), 1, 65000 },
	{ "max_qp_wr", K_U32, DEV(max_qp_wr), 1, 1 << 20 },
	{ "max_srq", K_U32, DEV(max_srq), 0, 1 << 20 },
	{ "max_srq_wr", K_U32, DEV(max_srq_wr), 1, 1 << 20 },
	{ "max_sge", K_U32, DEV(max_sge), 1, FAB_SGE_MAX },
	{ "max_cq", K_U32, DEV(max_cq), 1, 1 << 20 },
	{ "limit_errno", K_U32, DEV(limit_errno), 1, 133 },
	{ "max_cqe", K_U32, DEV(max_cqe), 1, 1 << 24 },
	{ "max_mr", K_U32, DEV(max_mr), 1, 1 << 24 },
	{ "max_rd_atomic", K_U32, DEV(max_rd_atomic), 1, 255 },
	{ "max_inline", K_U32, DEV(max_inline), 0, 1024 },
	{ "inline_step", K_U32, DEV(inline_step), 1, 1024 },
	{ "guid", K_U64, DEV(guid), 1, UINT64_MAX },
};

static int fail(struct parser *p, const char *what, const char *arg)
{
	if (p->err_len)
		(void)snprintf(p->err, p->err_len, "line %u: %s '%s'", p->line, what, arg);
	return -EINVAL;
}

static void dev_init(struct fab_dev_conf *dev, const char *name)
{
	memset(dev, 0, sizeof(*dev));
	(void)snprintf(dev->name, sizeof(dev->name), "%s", name);
	(void)snprintf(dev->network, sizeof(dev->network), "%s", name);
	dev->mtu = 4096;
	dev->speed_gbps = 100;
	dev->max_msg = 1U << 30;
	dev->max_qp = 32768;
	dev->max_qp_wr = 32768;
	dev->max_sge = FAB_SGE_MAX;
	dev->max_cq = 1 << 20;
	dev->limit_errno = ENOMEM;
	dev->max_cqe = 1 << 22;
	dev->max_mr = 1 << 20;
	dev->max_rd_atomic = 16;
	dev->max_inline = 1024;
	dev->inline_step = 1;
	dev->max_srq = 1 << 20;
	dev->max_srq_wr = 32768;
	dev->atomics = 1;
	dev->relaxed_ordering = 1;
	dev->pkeys = 1;
	dev->pkey[0] = 0xffff;
}

static int set_gids(struct parser *p, struct fab_dev_conf *dev, char *value)
{
	char *save = NULL;
	unsigned int k = 0;

	memset(dev->gid, 0, sizeof(dev->gid));
	for (char *word = strtok_r(value, " \t", &save); word;
	     word = strtok_r(NULL, " \t", &save)) {
		if (k == FAB_GIDS_MAX || fab_gid_parse(word, &dev->gid[k]) < 0)
			return fail(p, "bad GID or too many:", word);
		k++;
	}
	return 0;
}

/* A whole number with an optional k, m, g (thousands) or Ki, Mi, Gi suffix. */
static int parse_number(const char *value, bool suffix, uint64_t *ret_number)
{
	static const struct {
		const char *name;
		uint64_t factor;
	} units[] = {
		{ "k", 1000 },	{ "m", 1000000 },  { "g", 1000000000 },
		{ "Ki", 1024 }, { "Mi", 1 << 20 }, { "Gi", 1 << 30 },
	};
	uint64_t number;
	char *end;

	if (!isdigit((unsigned char)value[0]))
		return -EINVAL;
	errno = 0;
	number = strtoull(value, &end, 0);
	if (errno)
		return -EINVAL;
	for (size_t k = 0; suffix && *end && k < MPIB_ARRAY_SIZE(units); k++) {
		if (strcmp(end, units[k].name) != 0 && strcasecmp(end, units[k].name) != 0)
			continue;
		if (__builtin_mul_overflow(number, units[k].factor, &number))
			return -EINVAL;
		end += strlen(end);
	}
	if (*end)
		return -EINVAL;
	*ret_number = number;
	return 0;
}

static int set_pkeys(struct parser *p, struct fab_dev_conf *dev, char *value)
{
	char *save = NULL;

	memset(dev->pkey, 0, sizeof(dev->pkey));
	dev->pkeys = 0;
	for (char *word = strtok_r(value, " \t", &save); word;
	     word = strtok_r(NULL, " \t", &save)) {
		uint64_t number;

		if (dev->pkeys == FAB_PKEYS_MAX || parse_number(word, false, &number) < 0 ||
		    number > 0xffff)
			return fail(p, "bad partition key or too many:", word);
		dev->pkey[dev->pkeys++] = (uint16_t)number;
	}
	return dev->pkeys ? 0 : fail(p, "no partition key in", value);
}

static int set_word(struct parser *p, char *to, size_t size, const char *value)
{
	if (!value[0] || strlen(value) >= size)
		return fail(p, "empty or too long:", value);
	memset(to, 0, size);
	(void)snprintf(to, size, "%s", value);
	return 0;
}

static int set_number(struct parser *p, const struct key *key, void *field, const char *value)
{
	uint64_t number;

	if (parse_number(value, key->type != K_U64, &number) < 0 || number < key->min ||
	    number > key->max)
		return fail(p, "not a number in range:", value);
	if (key->type == K_U32)
		*(uint32_t *)field = (uint32_t)number;
	else
		*(uint64_t *)field = key->type == K_USEC ? number * 1000 : number;
	return 0;
}

/* One of two words; stores 0 or 1. */
static int set_choice(struct parser *p, uint32_t *field, const char *value, const char *zero,
		      const char *one)
{
	if (strcmp(value, zero) == 0)
		*field = 0;
	else if (strcmp(value, one) == 0)
		*field = 1;
	else
		return fail(p, "unknown value", value);
	return 0;
}

static int set_dev(struct parser *p, struct fab_dev_conf *dev, const char *name, char *value)
{
	const struct key *key = NULL;
	struct in_addr ip;
	void *field;

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(dev_keys) && !key; k++)
		if (strcmp(dev_keys[k].name, name) == 0)
			key = &dev_keys[k];
	if (!key)
		return fail(p, "unknown key", name);
	field = (char *)dev + key->offset;
	switch (key->type) {
	case K_NAME:
		return set_word(p, field, FAB_NAME_MAX, value);
	case K_PCI:
		return set_word(p, field, sizeof(dev->pci), value);
	case K_GIDS:
		dev->has_address = 0;
		return set_gids(p, dev, value);
	case K_ADDR:
		if (inet_pton(AF_INET, value, &ip) != 1)
			return fail(p, "not an IPv4 address:", value);
		fab_gids_from_ipv4(dev, &ip);
		dev->has_address = 1;
		return 0;
	case K_SCOPE:
		return set_choice(p, field, value, "all", "island");
	case K_LAYER:
		return set_choice(p, field, value, "ethernet", "infiniband");
	case K_PKEYS:
		return set_pkeys(p, dev, value);
	case K_HAS:
		return set_choice(p, field, value, "no", "yes");
	case K_U32:
	case K_U64:
	case K_SIZE:
	case K_USEC:
		break;
	}
	return set_number(p, key, field, value);
}

static int set_fabric(struct parser *p, const char *name, const char *value)
{
	struct fab_config *conf = p->conf;
	uint64_t number;

	if (strcmp(name, "name") == 0)
		return strchr(value, '/') ? fail(p, "no slash allowed in", value)
					  : set_word(p, conf->name, sizeof(conf->name), value);
	if (strcmp(name, "gpu") == 0)
		return set_choice(p, &conf->gpu, value, "no", "yes");
	if (strcmp(name, "null") == 0)
		return set_choice(p, &conf->null, value, "no", "yes");
	if (strcmp(name, "memlock") == 0)
		return set_choice(p, &conf->memlock, value, "no", "yes");
	if (strcmp(name, "ring") == 0) {
		if (parse_number(value, true, &number) < 0 || number < 65536 || number > 1 << 28 ||
		    (number & (number - 1)))
			return fail(p, "not a power of two from 64Ki to 256Mi:", value);
		conf->ring = (uint32_t)number;
		return 0;
	}
	if (strcmp(name, "copiers") == 0) {
		if (parse_number(value, false, &number) < 0 || number > FAB_COPIERS_MAX)
			return fail(p, "not a number of threads from 0 to 8:", value);
		conf->copiers = (uint32_t)number;
		return 0;
	}
	return fail(p, "unknown key", name);
}

static int set_node(struct parser *p, char *name, char *value)
{
	struct fab_config *conf = p->conf;
	char *dot = strchr(name, '.');

	if (!dot) {
		if (strcmp(name, "island") == 0)
			return set_word(p, conf->node[conf->nodes - 1].island, FAB_NAME_MAX, value);
		return fail(p, "unknown key", name);
	}
	*dot = '\0';
	for (uint32_t d = p->node_devs; d < conf->devs; d++)
		if (strcmp(conf->dev[d].name, name) == 0)
			return set_dev(p, &conf->dev[d], dot + 1, value);
	return fail(p, "no such device:", name);
}

static int begin_device(struct parser *p, const char *name)
{
	if (p->conf->nodes)
		return fail(p, "devices come before nodes:", name);
	if (p->templates == TEMPLATES_MAX || !name[0] || strlen(name) >= FAB_NAME_MAX)
		return fail(p, "bad device name, or too many:", name);
	for (uint32_t k = 0; k < p->templates; k++)
		if (strcmp(p->template[k].name, name) == 0)
			return fail(p, "device given twice:", name);
	dev_init(&p->template[p->templates++], name);
	p->section = SEC_DEVICE;
	return 0;
}

static int begin_node(struct parser *p, const char *name)
{
	struct fab_config *conf = p->conf;

	if (conf->nodes == FAB_NODES_MAX || conf->devs + p->templates > FAB_DEVS_MAX || !name[0] ||
	    strlen(name) >= FAB_NAME_MAX)
		return fail(p, "bad node name, or too many:", name);
	for (uint32_t n = 0; n < conf->nodes; n++)
		if (strcmp(conf->node[n].name, name) == 0)
			return fail(p, "node given twice:", name);
	(void)snprintf(conf->node[conf->nodes].name, FAB_NAME_MAX, "%s", name);
	(void)snprintf(conf->node[conf->nodes].island, FAB_NAME_MAX, "1");
	p->node_devs = conf->devs;
	for (uint32_t k = 0; k < p->templates; k++) {
		conf->dev[conf->devs] = p->template[k];
		conf->dev[conf->devs++].node = conf->nodes;
	}
	conf->nodes++;
	p->section = SEC_NODE;
	return 0;
}

static char *trim(char *text)
{
	char *end = text + strlen(text);

	while (isspace((unsigned char)*text))
		text++;
	while (end > text && isspace((unsigned char)end[-1]))
		*--end = '\0';
	return text;
}

static int parse_section(struct parser *p, char *line)
{
	size_t len = strlen(line);

	if (line[len - 1] != ']')
		return fail(p, "section without ]:", line);
	line[len - 1] = '\0';
	line = trim(line + 1);
	if (strcmp(line, "fabric") == 0) {
		p->section = SEC_FABRIC;
		return 0;
	}
	if (strncmp(line, "device ", 7) == 0)
		return begin_device(p, trim(line + 7));
	if (strncmp(line, "node ", 5) == 0)
		return begin_node(p, trim(line + 5));
	return fail(p, "unknown section", line);
}

static int parse_line(struct parser *p, char *line)
{
	char *value;

	line = trim(line);
	if (!line[0] || line[0] == '#' || line[0] == ';')
		return 0;
	if (line[0] == '[')
		return parse_section(p, line);
	value = strchr(line, '=');
	if (!value)
		return fail(p, "neither a section nor key = value:", line);
	*value++ = '\0';
	line = trim(line);
	value = trim(value);
	switch (p->section) {
	case SEC_FABRIC:
		return set_fabric(p, line, value);
	case SEC_DEVICE:
		return set_dev(p, &p->template[p->templates - 1], line, value);
	case SEC_NODE:
		return set_node(p, line, value);
	case SEC_NONE:
		break;
	}
	return fail(p, "key outside a section:", line);
}

/* What one line can't tell: every device needs an identity of its own, and the GID table of an
 * InfiniBand port follows from it unless `gids` gave one. */
static int finish(struct parser *p)
{
	struct fab_config *conf = p->conf;

	if (!conf->nodes || !conf->devs)
		return fail(p, "a fabric needs", "[device NAME] and [node NAME]");
	for (uint32_t d = 0; d < conf->devs; d++) {
		struct fab_dev_conf *dev = &conf->dev[d];

		if (dev->infiniband && dev->has_address)
			return fail(p, "an InfiniBand port has no IPv4 address:", dev->name);
		if (!dev->guid)
			dev->guid = 0x0200000000010000ULL + d;
		if (dev->infiniband && dev->gid[0].type == FAB_GID_NONE)
			fab_gids_from_guid(dev);
	}
	return 0;
}

static int parse_all(struct parser *p, const char *text, size_t len)
{
	const char *end = text + len;

	while (text < end) {
		const char *eol = memchr(text, '\n', end - text);
		size_t n = (eol ? eol : end) - text;
		char line[LINE_BYTES];
		int r;

		p->line++;
		if (n >= sizeof(line) || memchr(text, '\0', n))
			return fail(p, "line too long or binary", "");
		memcpy(line, text, n);
		line[n] = '\0';
		r = parse_line(p, line);
		if (r < 0)
			return r;
		text += n + 1;
	}
	return finish(p);
}

int fab_config_parse(const char *text, size_t len, struct fab_config *ret_conf, char *err,
		     size_t err_len)
{
	struct fab_config *conf = calloc(1, sizeof(*conf));
	struct parser *p = calloc(1, sizeof(*p));
	int r = -ENOMEM;

	if (p && conf) {
		*p = (struct parser){ .conf = conf, .err = err, .err_len = err_len };
		(void)snprintf(conf->name, sizeof(conf->name), "fabric");
		conf->ring = 1 << 20;
		r = parse_all(p, text, len);
		if (r == 0)
			memcpy(ret_conf, conf, sizeof(*conf));
	}
	free(p);
	free(conf);
	return r;
}

int fab_config_load(const char *path, struct fab_config *ret_conf, char *err, size_t err_len)
{
	char *text = malloc(FILE_BYTES);
	FILE *file;
	size_t len = 0;
	int r = 0;

	if (!text)
		return -ENOMEM;
	file = fopen(path, "re");
	if (file)
		len = fread(text, 1, FILE_BYTES, file);
	if (!file || ferror(file)) {
		r = -errno;
		(void)snprintf(err, err_len, "%s", strerror(errno));
	} else if (len == FILE_BYTES) {
		r = -EFBIG;
		(void)snprintf(err, err_len, "larger than 1 MiB");
	} else {
		r = fab_config_parse(text, len, ret_conf, err, err_len);
	}
	if (file)
		(void)fclose(file);
	free(text);
	return r;
}
