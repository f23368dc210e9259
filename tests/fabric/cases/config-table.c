/* SPDX-License-Identifier: Apache-2.0 */
/* The INI reader: a table of texts with the error that each must give, and the values of a good
 * one. */
#include "tests/fabric/config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/macros.h"

static const struct {
	const char *text, *err; /* NULL: must be accepted */
} table[] = {
	{ "[device a]\n[node 1]\n", NULL },
	{ "# note\n; note\n\n[fabric]\nname = x\n[device a]\n[node 1]\na.address = 10.0.0.1\n",
	  NULL },
	{ "", "a fabric needs" },
	{ "[device a]\n", "a fabric needs" },
	{ "[node 1]\n", "a fabric needs" },
	{ "name = x\n", "line 1: key outside a section" },
	{ "[fabric]\nname\n", "line 2: neither a section" },
	{ "[fabric\n", "line 1: section without" },
	{ "[other]\n", "line 1: unknown section" },
	{ "[fabric]\ncolour = red\n", "line 2: unknown key" },
	{ "[fabric]\nname = a/b\n", "line 2: no slash" },
	{ "[fabric]\nname =\n", "line 2: empty" },
	{ "[fabric]\ngpu = maybe\n", "line 2: unknown value" },
	{ "[fabric]\nring = 100000\n", "line 2: not a power of two" },
	{ "[fabric]\ncopiers = 9\n", "line 2: not a number of threads from 0 to 8" },
	{ "[device a]\nmtu = 9000\n", "line 2: not a number in range" },
	{ "[device a]\nrate = -1\n", "line 2: not a number" },
	{ "[device a]\nrate = 1x\n", "line 2: not a number" },
	{ "[device a]\nrate = 99999999999999999999\n", "line 2: not a number" },
	{ "[device a]\nrate = 99999999999999g\n", "line 2: not a number" },
	{ "[device a]\nscope = town\n", "line 2: unknown value" },
	{ "[device a]\nlink_layer = infiniband\n[node 1]\n", NULL },
	{ "[device a]\nlink_layer = infiniband\n[node 1]\na.address = 10.0.0.1\n",
	  "an InfiniBand port has no IPv4 address" },
	{ "[device a]\nlink_layer = token ring\n", "line 2: unknown value" },
	{ "[device a]\naddress = 10.0.0\n", "line 2: not an IPv4" },
	{ "[device a]\ngids = 10.0.0.1/v3\n", "line 2: bad GID" },
	{ "[device a]\ngids = 10.0.0.1\n", "line 2: bad GID" },
	{ "[device a]\ngids = - - - - - - - - - - - - - - - - -\n", "line 2: bad GID" },
	{ "[device a]\npkeys = 0x7fff 0x8003\n[node 1]\n", NULL },
	{ "[device a]\npkeys = 0x10000\n", "line 2: bad partition key" },
	{ "[device a]\npkeys = 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n",
	  "line 2: bad partition key" },
	{ "[device a]\npkeys =\n", "line 2: no partition key" },
	{ "[device a]\natomics = some\n", "line 2: unknown value" },
	{ "[device a]\nrelaxed_ordering = 2\n", "line 2: unknown value" },
	{ "[device a]\nmax_srq = 0\nactive_speed = 256\nactive_width = 2\n[node 1]\n", NULL },
	{ "[device a]\nactive_width = 256\n", "line 2: not a number in range" },
	{ "[device a]\n[device a]\n", "line 2: device given twice" },
	{ "[device ]\n", "line 1: unknown section" },
	{ "[device a]\n[node 1]\n[node 1]\n", "line 3: node given twice" },
	{ "[device a]\n[node 1]\n[device b]\n", "line 3: devices come before" },
	{ "[device a]\n[node 1]\nb.rate = 1\n", "line 3: no such device" },
	{ "[device a]\n[node 1]\ncolour = red\n", "line 3: unknown key" },
	{ "[device abcdefghijabcdefghijabcdefghijab]\n", "line 1: bad device name" },
};

static int check_errors(void)
{
	static struct fab_config conf;
	int failed = 0;

	for (size_t k = 0; k < MPIB_ARRAY_SIZE(table); k++) {
		char err[128] = "";
		int r = fab_config_parse(table[k].text, strlen(table[k].text), &conf, err,
					 sizeof(err));
		int good = table[k].err ? r == -EINVAL && strstr(err, table[k].err) : r == 0;

		if (!good)
			(void)printf("row %zu: %d '%s', expected '%s'\n", k, r, err,
				     table[k].err ? table[k].err : "success");
		failed |= !good;
	}
	return failed;
}

static int claim(int holds, const char *what)
{
	if (!holds)
		(void)printf("not so: %s\n", what);
	return !holds;
}

static int check_values(const char *eight_hosts)
{
	static const char text[] = "[device a]\nrate = 5m\nlatency_us = 7\nscope = island\n"
				   "gids = fe80::1/v1 - 10.1.2.3/v2\n"
				   "[node x]\nisland = i\na.rate = 2Ki\n[node y]\n";
	static struct fab_config conf, other;
	char err[128] = "", binary[] = "[fabric]\nna\0me = x\n";
	int f = 0;

	f |= claim(fab_config_parse(text, sizeof(text) - 1, &conf, err, sizeof(err)) == 0, err);
	f |= claim(conf.nodes == 2 && conf.devs == 2, "two nodes with a device each");
	f |= claim(conf.dev[0].rate == 2048 && conf.dev[1].rate == 5000000, "one node differs");
	f |= claim(conf.dev[1].latency_ns == 7000 && conf.dev[1].scoped == 1, "device values");
	f |= claim(strcmp(conf.node[0].island, "i") == 0, "the island");
	f |= claim(conf.dev[0].gid[0].type == FAB_GID_V1 && conf.dev[0].gid[1].type == 0 &&
			   conf.dev[0].gid[2].type == FAB_GID_V2 && conf.dev[0].gid[2].raw[15] == 3,
		   "the GID table");
	f |= claim(fab_config_parse(binary, sizeof(binary) - 1, &conf, err, sizeof(err)) < 0,
		   "a NUL is refused");
	fab_config_default(&conf);
	f |= claim(conf.nodes == 2 && conf.devs == 4 && conf.dev[3].gid[3].raw[13] == 9,
		   "the built-in fabric");
	f |= claim(fab_config_load(eight_hosts, &other, err, sizeof(err)) == 0, err);
	f |= claim(other.nodes == 8 && other.devs == 16 &&
			   strcmp(other.node[3].island, other.node[4].island) != 0,
		   "eight hosts in two islands");
	f |= claim(fab_config_hash(&conf) != fab_config_hash(&other), "hashes differ");
	f |= claim(fab_config_load("/nonexistent", &other, err, sizeof(err)) == -ENOENT,
		   "a missing file is ENOENT");
	return f;
}

int main(int argc, char **argv)
{
	int failed = argc == 2 ? 0 : 1;

	if (!failed) {
		failed |= check_errors();
		failed |= check_values(argv[1]);
	}
	(void)printf("%s\n", failed ? "FAILED" : "ok");
	return failed;
}
