/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the library, uses it and unloads it, many times: nothing of it may stay behind. Exit: 0
 * held, 1 didn't. */
#include <dirent.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

static int open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	while (dir && readdir(dir))
		count++;
	if (dir)
		(void)closedir(dir);
	return count;
}

/* The runtime of a sanitizer maps memory as it goes: there, only the library and its files count.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLACK 0
#else
#define SLACK 10
#endif

static bool counts(const char *line)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	const char *dir = getenv("MPIB_FABRIC_DIR");

	return strstr(line, "libibverbs") || strstr(line, "memfd:") ||
	       strstr(line, dir ? dir : "/dev/shm/");
#else
	return *line != '\0';
#endif
}

/* Mappings of this process. */
static int maps(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	char line[4352];
	int count = 0;

	while (file && fgets(line, sizeof(line), file))
		count += counts(line);
	if (file)
		(void)fclose(file);
	return count;
}

static int use_once(void)
{
	void *lib = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	struct ibv_device **(*list_get)(int *);
	void (*list_free)(struct ibv_device **);
	struct ibv_context *(*open_device)(struct ibv_device *);
	int (*close_device)(struct ibv_context *);
	struct ibv_context *ctx = NULL;
	struct ibv_device **list;

	if (!lib)
		return -1;
	*(void **)&list_get = dlsym(lib, "ibv_get_device_list");
	*(void **)&list_free = dlsym(lib, "ibv_free_device_list");
	*(void **)&open_device = dlsym(lib, "ibv_open_device");
	*(void **)&close_device = dlsym(lib, "ibv_close_device");
	list = list_get(NULL);
	if (list && list[0])
		ctx = open_device(list[0]);
	list_free(list);
	return ctx && close_device(ctx) == 0 && dlclose(lib) == 0 ? 0 : -1;
}

int main(void)
{
	int files = 0, mapped = 0;

	for (int k = 0; k < 100; k++) {
		if (use_once() < 0) {
			(void)fprintf(stderr, "round %d: %s\n", k, dlerror());
			return 1;
		}
		if (k == 9) { /* what the first rounds leave in libc is there by now */
			files = open_files();
			mapped = maps();
		}
	}
	(void)printf("files %d then %d, mappings %d then %d\n", files, open_files(), mapped,
		     maps());
	return open_files() > files || maps() > mapped + SLACK;
}
