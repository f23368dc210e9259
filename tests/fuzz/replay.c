/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over saved inputs, for builds without a fuzzer: each argument is a file or a
 * folder of files. Every input is also tried cut short at each length, from a heap block of exactly
 * that length. An empty folder is an error: a replay of nothing proves nothing. */
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "tests/fuzz/fuzz.h"

#define INPUT_MAX ((size_t)1 << 20)

/* Every cut of a long input would take for ever; the decoders' headers are all shorter. */
#define CUTS_MAX 512

MPIB_DEFINE_CLEANUP(DIR *, closedir);

static unsigned long replayed;

/* The input ends with its block, and starts at an odd address: decoders may not care. */
static bool replay_bytes(const uint8_t *bytes, size_t size)
{
	mpib_cleanup(mpib_freep) uint8_t *block = malloc(size + 1);

	if (!block)
		return false;
	memcpy(block + 1, bytes, size);
	(void)LLVMFuzzerTestOneInput(block + 1, size);
	replayed++;
	return true;
}

static bool replay_file(const char *path)
{
	mpib_cleanup(mpib_fclosep) FILE *file = fopen(path, "re");
	mpib_cleanup(mpib_freep) uint8_t *bytes = malloc(INPUT_MAX);
	size_t size;

	if (!file || !bytes) {
		(void)fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return false;
	}

	size = fread(bytes, 1, INPUT_MAX, file);
	if (ferror(file) || !feof(file)) {
		(void)fprintf(stderr, "%s: can't be read whole\n", path);
		return false;
	}

	for (size_t cut = 0; cut < size && cut < CUTS_MAX; cut++)
		if (!replay_bytes(bytes, cut))
			return false;
	return replay_bytes(bytes, size);
}

static bool replay_folder(const char *path)
{
	mpib_cleanup(closedirp) DIR *folder = opendir(path);
	unsigned int files = 0;
	struct dirent *entry;

	if (!folder) {
		(void)fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return false;
	}

	while ((entry = readdir(folder))) {
		mpib_cleanup(mpib_freep) char *name = NULL;

		if (entry->d_name[0] == '.')
			continue;
		if (asprintf(&name, "%s/%s", path, entry->d_name) < 0 || !replay_file(name))
			return false;
		files++;
	}

	if (files == 0)
		(void)fprintf(stderr, "%s: no inputs\n", path);
	return files > 0;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		(void)fprintf(stderr, "usage: %s FILE-OR-FOLDER...\n", argv[0]);
		return 2;
	}

	for (int k = 1; k < argc; k++) {
		struct stat status;

		if (stat(argv[k], &status) < 0) {
			(void)fprintf(stderr, "%s: %s\n", argv[k], strerror(errno));
			return 1;
		}
		if (!(S_ISDIR(status.st_mode) ? replay_folder(argv[k]) : replay_file(argv[k])))
			return 1;
	}

	(void)printf("%lu inputs\n", replayed);
	return 0;
}
