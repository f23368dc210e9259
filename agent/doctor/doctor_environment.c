/* SPDX-License-Identifier: Apache-2.0 */
/* mpibctl doctor: limits of the job, the libraries as the loader would find them, and
 * variables of NCCL that lead past MPIB. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/doctor/doctor.h"
#include "common/cleanup.h"
#include "common/printable.h"

#define PLUGIN_NAME "libnccl-net-mpib.so"
#define VERBS_NAME  "libibverbs.so.1"

/* Less than this fails the first buffers; all that is not unlimited may fail a large one. */
#define MEMLOCK_LEAST (64u << 20)

/* A loader's cache that is longer is none. */
#define CACHE_MAX (64 << 20)

/* A file of the job's process. */
static FILE *process_file(const struct mpib_doctor *doctor, const char *name)
{
	char path[64];

	if (doctor->job.pid)
		(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)doctor->job.pid, name);
	else
		(void)snprintf(path, sizeof(path), "/proc/self/%s", name);
	return fopen(path, "re");
}

/* CAP_IPC_LOCK: the limit doesn't bind this process. */
static bool may_lock(const struct mpib_doctor *doctor)
{
	mpib_cleanup(mpib_fclosep) FILE *file = process_file(doctor, "status");
	unsigned long long caps = 0;
	char line[256];

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "CapEff: %llx", &caps) == 1)
			break;
	}
	return caps >> CAP_IPC_LOCK & 1;
}

/* Bytes that the process may pin; RLIM_INFINITY also where that can't be found out. */
static rlim_t memlock_limit(const struct mpib_doctor *doctor)
{
	mpib_cleanup(mpib_fclosep) FILE *file = process_file(doctor, "limits");
	unsigned long long bytes;
	char line[256];

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "Max locked memory %llu", &bytes) == 1)
			return (rlim_t)bytes;
	}
	return RLIM_INFINITY;
}

static void check_memlock(struct mpib_doctor *doctor)
{
	static const char cure[] = "ulimit -l unlimited, /etc/security/limits.conf, or "
				   "LimitMEMLOCK= of the unit that starts the job";
	const char *who = doctor->job.pid ? "the job" : "this shell";
	const rlim_t limit = memlock_limit(doctor);

	if (limit == RLIM_INFINITY)
		mpib_doctor_say(doctor, MPIB_DOCTOR_OK, "memlock", "", "unlimited");
	else if (may_lock(doctor))
		mpib_doctor_say(doctor, MPIB_DOCTOR_OK, "memlock", "",
				"%llu KiB, which doesn't bind this user",
				(unsigned long long)limit / 1024);
	else if (limit < MEMLOCK_LEAST)
		mpib_doctor_say(doctor, MPIB_DOCTOR_FAIL, "memlock", cure,
				"%s may pin %llu KiB only", who, (unsigned long long)limit / 1024);
	else
		mpib_doctor_say(doctor, MPIB_DOCTOR_WARN, "memlock", cure,
				"%s may pin %llu MiB; large buffers may need more", who,
				(unsigned long long)limit >> 20);
}

/* ---- libraries ---------------------------------------------------------------------------- */

static bool is_elf64(const char *path)
{
	mpib_cleanup(mpib_closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char head[5] = { 0 };

	return fd >= 0 && read(fd, head, sizeof(head)) == sizeof(head) &&
	       memcmp(head, "\177ELF\2", sizeof(head)) == 0;
}

/* File @name in a list of directories with colons, each below @root. */
static bool find_in_list(const char *root, const char *list, const char *name, char *ret,
			 size_t size)
{
	while (list && *list) {
		size_t len = strcspn(list, ":");

		(void)snprintf(ret, size, "%s%.*s/%s", root, (int)len, list, name);
		if (access(ret, F_OK) == 0)
			return true;
		list += len + (list[len] == ':');
	}

	return false;
}

/* The loader's cache holds each path as a string behind its tables. */
static bool find_in_cache(const struct mpib_doctor *doctor, const char *name, char *ret,
			  size_t size)
{
	mpib_cleanup(mpib_closep) int fd = -1;
	bool found = false;
	char path[512], tail[64];
	struct stat st;
	char *map;

	(void)snprintf(path, sizeof(path), "%s/etc/ld.so.cache", doctor->root);
	(void)snprintf(tail, sizeof(tail), "/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size > CACHE_MAX)
		return false;
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		return false;

	const char *hit =
		memmem(map, (size_t)st.st_size, tail, strlen(tail) + 1); /* with its NUL */
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

/* Where the loader would find @name for the job; NULL: nowhere. The path goes to @ret. */
static const char *find_library(const struct mpib_doctor *doctor, const char *name, char *ret,
				size_t size)
{
	static const char standard[] =
		"/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu:/lib/aarch64-linux-gnu:"
		"/usr/lib/aarch64-linux-gnu:/lib64:/usr/lib64:/lib:/usr/lib";

	if (find_in_list(doctor->job.pid ? doctor->root : "",
			 mpib_job_get(&doctor->job, "LD_LIBRARY_PATH"), name, ret, size))
		return "LD_LIBRARY_PATH";
	if (find_in_cache(doctor, name, ret, size))
		return "the loader's cache";
	return find_in_list(doctor->root, standard, name, ret, size) ? "a standard directory"
								     : NULL;
}

static void check_library(struct mpib_doctor *doctor, const char *check, const char *name,
			  const char *cure)
{
	char path[1024];
	const char *where = find_library(doctor, name, path, sizeof(path));

	if (!where)
		mpib_doctor_say(doctor, MPIB_DOCTOR_FAIL, check, cure, "the loader finds no %s",
				name);
	else if (!is_elf64(path))
		mpib_doctor_say(doctor, MPIB_DOCTOR_FAIL, check, "install it again",
				"%s (%s) can't be read, or is no library of 64 bits", path, where);
	else
		mpib_doctor_say(doctor, MPIB_DOCTOR_OK, check, "", "%s (%s)", path, where);
}

/* ---- NCCL ----------------------------------------------------------------------------------- */

static void check_choice(struct mpib_doctor *doctor)
{
	const char *net = mpib_job_get(&doctor->job, "NCCL_NET");
	const char *plugin = mpib_job_get(&doctor->job, "NCCL_NET_PLUGIN");
	char value[MPIB_PRINTABLE_MAX];

	if (net && *net && strcasecmp(net, "MPIB") != 0)
		mpib_doctor_say(doctor, MPIB_DOCTOR_FAIL, "NCCL_NET",
				"unset NCCL_NET, or set it to MPIB",
				"NCCL_NET=%s makes NCCL take that network and not MPIB",
				mpib_printable(net, value, sizeof(value)));

	if (!plugin || !*plugin)
		mpib_doctor_say(doctor, MPIB_DOCTOR_WARN, "NCCL_NET_PLUGIN", "NCCL_NET_PLUGIN=mpib",
				"it is not set here: NCCL looks for another plugin's name");
	else if (strstr(plugin, "mpib"))
		mpib_doctor_say(doctor, MPIB_DOCTOR_OK, "NCCL_NET_PLUGIN", "", "%s",
				mpib_printable(plugin, value, sizeof(value)));
	else
		mpib_doctor_say(doctor, MPIB_DOCTOR_FAIL, "NCCL_NET_PLUGIN", "NCCL_NET_PLUGIN=mpib",
				"NCCL_NET_PLUGIN=%s leads past MPIB",
				mpib_printable(plugin, value, sizeof(value)));
}

void mpib_doctor_environment(struct mpib_doctor *doctor)
{
	check_memlock(doctor);
	check_library(doctor, "plugin", PLUGIN_NAME,
		      "install it and run ldconfig, or name its directory in LD_LIBRARY_PATH");
	check_library(doctor, "verbs", VERBS_NAME,
		      "install rdma-core's libibverbs, with the NIC's provider");
	check_choice(doctor);
}
