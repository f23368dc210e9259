#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every header of the product compiles alone and twice; the installed one also as strict C11 and, if
# there is a C++ compiler, as C++11.
. "$(dirname "$0")/lib.sh"

cc=${CC:-cc}
packages="libibverbs libsystemd inih"
cflags="-D_GNU_SOURCE -I."
for package in $packages; do
	cflags="$cflags $(pkg-config --cflags "$package" 2>/dev/null)"
done

# compile NAME COMMAND...: the command gets a source that includes the header NAME twice.
compile() {
	header=$1
	shift
	printf '#include "%s"\n#include "%s"\nint main(void) { return 0; }\n' "$header" "$header" |
		"$@" -fsyntax-only - || bad "$header: not with '$*'"
}

count=0
for header in $(tree_files | grep -E '^(common|plugin|agent)/.*\.h$'); do
	# shellcheck disable=SC2086 # lists of options
	compile "$header" $cc -x c -std=gnu17 -Wall -Wextra -Werror $cflags
	count=$((count + 1))
done

installed=common/mpib_agent_iface.h
# shellcheck disable=SC2086
compile "$installed" $cc -x c -std=c11 -Wall -Wextra -Wpedantic -Werror -I.
for cxx in g++ clang++; do
	if command -v "$cxx" >/dev/null 2>&1; then
		compile "$installed" "$cxx" -x c++ -std=c++11 -Wall -Wextra -Wpedantic -Werror -I.
		compile "$installed" "$cxx" -x c++ -std=c++20 -Wall -Wextra -Wpedantic -Werror -I.
		echo "C++: $cxx"
	fi
done

# The assertions in it are alive: with integers of another size it has to be refused.
for language in "c -std=c11" "c++ -std=c++11"; do
	# shellcheck disable=SC2086
	if printf '#include <stddef.h>\n#include <stdint.h>\n#define uint32_t uint64_t\n#include "%s"\n' \
		"$installed" | $cc -x $language -I. -fsyntax-only - 2>/dev/null; then
		bad "$installed: its assertions let another layout pass ($language)"
	fi
done

finish "$count"
