/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl doctor: limits of this shell, the plugin's file as the loader would find it, and
 * variables of NCCL that lead past MPIB. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/doctor.h"
#include "common/cleanup.h"
#include "common/macros.h"

#define PLUGIN_NAME "libnccl-net-mpib.so"

/* Less than this fails the first buffers; all that is not unlimited may fail a large one. */
#define MEMLOCK_LEAST (64u << 20)

/* CAP_IPC_LOCK: the limit doesn't bind this process. */
static bool may_lock(void)
{
	unsigned long long caps = 0;
	char line[256];
	FILE *file = fopen("/proc/self/status", "re");

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "CapEff: %llx", &caps) == 1)
			break;
	}
	if (file)
		(void)fclose(file);
	return caps >> 14 & 1;
}

static void check_memlock(struct mpib_doctor *doctor)
{
	static const char cure[] = "ulimit -l unlimited, /etc/security/limits.conf, or "
				   "LimitMEMLOCK= of the unit that starts the job";
	struct rlimit limit = { 0 };

	if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
		mpib_doctor_say(doctor, MPIB_DOCTOR_OK, "memlock", "", "unlimited");
	else if (may_lock())
		mpib_doctor_say(doctor, MPIB_DOCTOR_OK, "memlock", "",
				"%llu KiB, which doesn't bind this user",
				(unsigned long long)limit.rlim_cur / 1024);
	else if (limit.rlim_cur < MEMLOCK_LEAST)
		mpib_doctor_say(doctor, MPIB_DOCTOR_FAIL, "memlock", cure,
				"this shell may pin %llu KiB only",
				(unsigned long long)limit.rlim_cur / 1024);
	else
		mpib_doctor_say(doctor, MPIB_DOCTOR_WARN, "memlock", cure,
				"this shell may pin %llu MiB; large buffers may need more",
				(unsigned long long)limit.rlim_cur >> 20);
}

/* ---- plugin file ---------------------------------------------------------------------------- */

static bool is_elf64(const char *path)
{
	mpib_cleanup(mpib_closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char head[5] = { 0 };

	return fd >= 0 && read(fd, head, sizeof(head)) == sizeof(head) &&
	       memcmp(head, "\177ELF\2", sizeof(head)) == 0;
}

/* In a list of directories with colons, each below @root. */
static bool find_in_list(const char *root, const char *list, char *ret, size_t size)
{
	while (list && *list) {
		size_t len = strcspn(list, ":");

		(void)snprintf(ret, size, "%s%.*s/" PLUGIN_NAME, root, (int)len, list);
		if (access(ret, F_OK) == 0)
			return true;
		list += len + (list[len] == ':');
	}

	return false;
}

/* The loader's cache holds each path as a string behind its tables. */
static bool find_in_cache(const struct mpib_doctor *doctor, char *ret, size_t size)
{
	static const char tail[] = "/" PLUGIN_NAME; /* with its NUL */
	mpib_cleanup(mpib_closep) int fd = -1;
	bool found = false;
	char path[512];
	struct stat st;
	char *map;

	(void)snprintf(path, sizeof(path), "%s/etc/ld.so.cache", doctor->root);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size > 64 << 20)
		return false;
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		return false;

	const char *hit = memmem(map, (size_t)st.st_size, tail, sizeof(tail));
	const char *start = hit;

	while (start && start > map && start[-1])
		start--;
	if (hit) {
		(void)snprintf(ret, size, "%s%s", doctor->root, start);
		found = access(ret, F_OK) == 0;
	}
	(void)munmap(map, (size_t)st.st_size);
	return found;
}

static void check_plugin(struct mpib_doctor *doctor)
{
	static const char standard[] =
		"/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu:/lib/aarch64-linux-gnu:"
		"/usr/lib/aarch64-linux-gnu:/lib64:/usr/lib64:/lib:/usr/lib";
	char path[1024];
	const char *where = NULL;

	if (find_in_list("", getenv("LD_LIBRARY_PATH"), path, sizeof(path)))
		where = "LD_LIBRARY_PATH";
	else if (find_in_cache(doctor, path, sizeof(path)))
		where = "the loader's cache";
	else if (find_in_list(doctor->root, standard, path, sizeof(path)))
		where = "a standard directory";

	if (!where)
		mpib_doctor_say(doctor, MPIB_DOCTOR_FAIL, "plugin",
				"install it and run ldconfig, or name its directory in "
				"LD_LIBRARY_PATH",
				"the loader finds no " PLUGIN_NAME);
	else if (!is_elf64(path))
		mpib_doctor_say(doctor, MPIB_DOCTOR_FAIL, "plugin", "install it again",
				"%s (%s) can't be read, or is no library of 64 bits", path, where);
	else
		mpib_doctor_say(doctor, MPIB_DOCTOR_OK, "plugin", "", "%s (%s)", path, where);
}

/* ---- NCCL ----------------------------------------------------------------------------------- */

/* A variable as NCCL sees it: the environment, or else a line of /etc/nccl.conf. */
static bool nccl_value(const struct mpib_doctor *doctor, const char *name, char *ret, size_t size)
{
	const char *value = getenv(name);
	size_t len = strlen(name);
	char text[4096];
	char *next = text;
	char *line;

	if (value) {
		(void)snprintf(ret, size, "%s", value);
		return true;
	}
	if (mpib_doctor_read(doctor, text, sizeof(text), "/etc/nccl.conf") < 0)
		return false;

	while ((line = strsep(&next, "\n"))) {
		if (strncmp(line, name, len) == 0 && line[len] == '=') {
			(void)snprintf(ret, size, "%s", line + len + 1);
			return true;
		}
	}

	return false;
}

static void check_choice(struct mpib_doctor *doctor)
{
	char value[256];

	if (nccl_value(doctor, "NCCL_NET", value, sizeof(value)) && *value &&
	    strcasecmp(value, "MPIB") != 0)
		mpib_doctor_say(doctor, MPIB_DOCTOR_FAIL, "NCCL_NET",
				"unset NCCL_NET, or set it to MPIB",
				"NCCL_NET=%s makes NCCL take that network and not MPIB", value);

	if (!nccl_value(doctor, "NCCL_NET_PLUGIN", value, sizeof(value)) || !*value)
		mpib_doctor_say(doctor, MPIB_DOCTOR_WARN, "NCCL_NET_PLUGIN", "NCCL_NET_PLUGIN=mpib",
				"it is not set here: NCCL looks for another plugin's name");
	else if (strstr(value, "mpib"))
		mpib_doctor_say(doctor, MPIB_DOCTOR_OK, "NCCL_NET_PLUGIN", "", "%s", value);
	else
		mpib_doctor_say(doctor, MPIB_DOCTOR_FAIL, "NCCL_NET_PLUGIN", "NCCL_NET_PLUGIN=mpib",
				"NCCL_NET_PLUGIN=%s leads past MPIB", value);
}

static void check_nccl(struct mpib_doctor *doctor)
{
	/* They steer NCCL's own InfiniBand transport; who sets them expects more of them. */
	static const struct {
		const char *name;
		const char *cure;
	} idle[] = {
		{ "NCCL_IB_HCA", "set MPIB_HCA_SOUT and MPIB_HCA_SUP" },
		{ "NCCL_IB_GID_INDEX", "set MPIB_IB_GID_INDEX" },
		{ "NCCL_IB_QPS_PER_CONNECTION", "set MPIB_SOUT_QP and MPIB_SUP_QP" },
		{ "NCCL_IB_DISABLE", "nothing, where MPIB is meant" },
	};
	char value[256];

	check_choice(doctor);
	for (size_t n = 0; n < MPIB_ARRAY_SIZE(idle); n++) {
		if (nccl_value(doctor, idle[n].name, value, sizeof(value)))
			mpib_doctor_say(doctor, MPIB_DOCTOR_WARN, idle[n].name, idle[n].cure,
					"%s=%s says nothing to MPIB", idle[n].name, value);
	}
}

void mpib_doctor_environment(struct mpib_doctor *doctor)
{
	check_memlock(doctor);
	check_plugin(doctor);
	check_nccl(doctor);
}
