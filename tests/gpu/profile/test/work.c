/* SPDX-License-Identifier: Apache-2.0 */
/* A library that spends time in memcpy, for which it has to answer. */
#include <string.h>
#include <time.h>

__attribute__((visibility("default"))) void work_by_copying(double seconds);

void work_by_copying(double seconds)
{
	static char from[1 << 20], to[1 << 20];
	struct timespec now;
	double end;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	end = (double)now.tv_sec + (double)now.tv_nsec / 1e9 + seconds;
	do {
		for (int k = 0; k < 16; k++) {
			memcpy(to, from, sizeof(to));
			__asm__ volatile("" : : "r"(to) : "memory");
		}
		(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	} while ((double)now.tv_sec + (double)now.tv_nsec / 1e9 < end);
}
