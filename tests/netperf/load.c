/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/netperf/load.h"

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "tests/netperf/log.h"

/* The loader's own list, LD_LIBRARY_PATH included; its cache is apart. */
static void say_folders(void)
{
	mpib_cleanup(mpib_freep) Dl_serinfo *info = NULL;
	char list[1024] = "";
	void *self = dlopen(NULL, RTLD_NOW);
	Dl_serinfo head;
	size_t len = 0;

	if (self && dlinfo(self, RTLD_DI_SERINFOSIZE, &head) == 0)
		info = malloc(head.dls_size);
	if (info && dlinfo(self, RTLD_DI_SERINFOSIZE, info) == 0 &&
	    dlinfo(self, RTLD_DI_SERINFO, info) == 0) {
		for (unsigned int n = 0; n < info->dls_cnt && len < sizeof(list); n++)
			len += (size_t)snprintf(list + len, sizeof(list) - len, "%s, ",
						info->dls_serpath[n].dls_name);
	}
	np_warn("the loader looks in %sand the cache of ldconfig; LD_LIBRARY_PATH adds a folder, "
		"and --plugin takes a path (with a slash)",
		list);
	if (self)
		(void)dlclose(self);
}

const char *np_plugin_path(void *opened)
{
	const struct link_map *map = NULL;

	return dlinfo(opened, RTLD_DI_LINKMAP, &map) == 0 && map ? map->l_name : "";
}

void *np_load_plugin(const char *plugin)
{
	bool file = strchr(plugin, '/') || strstr(plugin, ".so");
	void *dl = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
	char name[512] = "";

	if (!dl && !file &&
	    (size_t)snprintf(name, sizeof(name), "libnccl-net-%s.so", plugin) < sizeof(name))
		dl = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (dl)
		return dl;

	np_error("no plugin \"%s\": %s", plugin, dlerror());
	if (!strchr(plugin, '/'))
		say_folders();
	return NULL;
}
