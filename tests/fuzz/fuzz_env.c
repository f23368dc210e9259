/* SPDX-License-Identifier: Apache-2.0 */
/* Values of the environment: the first byte chooses the variable, its highest bit NCCL's in the
 * place of the own one; the rest is the value. */
#include <string.h>

#include "plugin/base/env.h"
#include "plugin/base/result.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct mpib_env_row *row;
	const char *variable;
	struct mpib_env env;
	char *value;
	int r;

	if (size < 1)
		return 0;
	row = &mpib_env_rows[(data[0] & 0x7f) % mpib_env_row_count];
	variable = data[0] & 0x80 && row->nccl ? row->nccl : row->name;
	value = malloc(size);
	FUZZ_CHECK(value);
	memcpy(value, data + 1, size - 1);
	value[size - 1] = '\0';
	FUZZ_CHECK(setenv(variable, value, 1) == 0);
	r = mpib_env_read(&env);
	FUZZ_CHECK(r == 0 || r == -MPIB_EUSAGE);
	if (r == 0 && row->size) {
		const char *text = (const char *)&env + row->offset;

		FUZZ_CHECK(strnlen(text, row->size) < row->size);
		FUZZ_CHECK(strcmp(text, *value ? value : row->default_text) == 0);
	} else if (r == 0) {
		int number = *(const int *)(const void *)((const char *)&env + row->offset);

		FUZZ_CHECK(number >= row->min && number <= row->max);
	}
	FUZZ_CHECK(unsetenv(variable) == 0);
	free(value);
	return 0;
}
