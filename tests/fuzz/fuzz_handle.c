/* SPDX-License-Identifier: Apache-2.0 */
/* The listen handle, as the connecting side gets it from NCCL. */
#include <errno.h>
#include <string.h>

#include "plugin/wire/handshake.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mpib_handle handle, again;
	uint8_t buf[MPIB_HANDLE_SIZE];
	int r;

	memset(&handle, 0xee, sizeof(handle));
	again = handle;
	r = mpib_handle_decode(data, size, &handle);
	if (r < 0) {
		FUZZ_CHECK(r == -EBADMSG);
		FUZZ_CHECK(memcmp((const char *)&handle, (const char *)&again, sizeof(handle)) ==
			   0);
		return 0;
	}

	FUZZ_CHECK(handle.addr.ss_family == AF_INET || handle.addr.ss_family == AF_INET6);
	if (handle.version != MPIB_WIRE_VERSION)
		return 0;
	FUZZ_CHECK(handle.mode <= MPIB_MODE_ADVANCED && handle.prefix_len <= 32);
	mpib_handle_encode(buf, &handle);
	FUZZ_CHECK(mpib_handle_decode(buf, sizeof(buf), &again) == 0);
	/* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): padding is zeroed or copied */
	FUZZ_CHECK(memcmp(&handle, &again, sizeof(handle)) == 0);
	return 0;
}
