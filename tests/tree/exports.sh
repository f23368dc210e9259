#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The plugin shows the world its tables and nothing else: any other symbol could collide with one of
# the program that loads it.
. "$(dirname "$0")/lib.sh"

library=$build/plugin/libnccl-net-mpib.so
[ -e "$library" ] || skip "$library isn't built"
command -v nm >/dev/null 2>&1 || skip "nm (binutils) is not installed"

# A sanitizer adds symbols of its own, which no product build has.
symbols=$(nm -D --defined-only --format=posix "$library" | cut -d' ' -f1 | sed 's/@.*//' |
	grep -Ev '^(__odr_asan|__asan_|___asan_|__start_asan|__stop_asan)')
count=0
for symbol in $symbols; do
	case $symbol in
	ncclNetPlugin_v[0-9] | ncclNetPlugin_v[0-9][0-9]) ;;
	ncclGinPlugin_v1[123] | ncclRmaPlugin_v1[45]) ;;
	*) bad "$library exports $symbol" ;;
	esac
	count=$((count + 1))
done

finish "$count"
