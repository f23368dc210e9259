/* SPDX-License-Identifier: Apache-2.0 */
/* What every fuzz target has in common. */
#ifndef MPIB_TESTS_FUZZ_FUZZ_H
#define MPIB_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Judges one input; 0. A wrong result aborts. @data holds exactly @size bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An assertion that every build keeps. */
#define FUZZ_CHECK(cond)                                                                           \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			(void)fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #cond);  \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

#endif
