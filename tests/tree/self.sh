#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tests of the tree on small trees that are wrong on purpose, each in one way: a check that lets
# its fault pass is no check.
. "$(dirname "$0")/lib.sh"

here=$top/tests/tree
tree=$(mktemp -d) || exit 1
trap 'rm -rf "$tree"' EXIT
spdx='/* SPDX-License-Identifier: Apache-2.0 */'
count=0

# A small tree in which every test passes.
fresh() {
	rm -rf "$tree"
	mkdir -p "$tree/common" "$tree/plugin/base" "$tree/plugin/wire" "$tree/docs" "$tree/agent/base" "$tree/tests"
	cp "$top/.clang-format" "$tree"
	cp "$top/common/mpib_agent_iface.h" "$tree/common"
	printf '%s\n#include <stdint.h>\n' "$spdx" >"$tree/plugin/base/good.h"
	printf '%s\n#include "plugin/base/good.h"\n\n#include <infiniband/verbs.h>\n' "$spdx" \
		>"$tree/plugin/base/good.c"
	printf '%s\n' "$spdx" >"$tree/tests/test.h"
	{ echo "$spdx" && "$here/rooms.py" --print; } >"$tree/docs/architecture.md"
}

# expect pass|fail TEST WHY: the tree as it is now.
expect() {
	count=$((count + 1))
	if "$here/$2.sh" "$tree" "$build" >"$tree.out" 2>&1; then result=pass; else result=fail; fi
	[ "$result" = "$1" ] || {
		cat "$tree.out"
		bad "$2: $3: $result, not $1"
	}
	rm -f "$tree.out"
}

# plant TEST FILE TEXT WHY: a good tree with one file more, which has to be refused.
plant() {
	fresh
	printf '%s\n%b' "$spdx" "$3" >"$tree/$2"
	expect fail "$1" "$4"
}

fresh
for test in headers includes spdx words; do
	expect pass "$test" "a good tree"
done

plant headers common/bad.h 'static inline uint32_t f(void) { return 1; }\n' "needs another header"
plant headers plugin/base/bad.h 'struct twice { int x; };\n' "no include guard"
plant includes common/bad.c '#include <infiniband/verbs.h>\n' "verbs in common"
plant includes common/bad.c '#include "plugin/base/good.h"\n' "plugin in common"
plant includes common/bad.c '#include <ini.h>\n' "inih in common"
plant includes common/bad.c '#include <systemd/sd-daemon.h>\n' "libsystemd in common"
plant includes plugin/base/bad.c '#include <systemd/sd-daemon.h>\n' "libsystemd in plugin"
plant includes plugin/base/bad.c '#include "tests/test.h"\n' "tests in plugin"
plant includes plugin/base/bad.c '  #  include "agent/base/good.h"\n' "agent in plugin"
plant includes plugin/base/bad.c '#include "good.h"\n' "a name from its own folder"
plant includes plugin/base/bad.c '#include "common/absent.h"\n' "no such header"
plant includes plugin/base/good.c '#include <stdint.h>\n#include "plugin/base/good.h"\n' "own header second"
plant includes agent/base/bad.c '#include "plugin/base/good.h"\n' "plugin in agent"
plant includes agent/base/bad.c '#include <infiniband/verbs.h>\n' "verbs in agent"
plant includes plugin/wire/imm.h '#include <infiniband/verbs.h>\n' "verbs in a pure file"
fresh
printf '%s\n#include <infiniband/verbs.h>\n' "$spdx" >"$tree/plugin/base/far.h"
printf '%s\n#include "plugin/base/far.h"\n' "$spdx" >"$tree/plugin/base/near.h"
printf '%s\n#include "plugin/base/near.h"\n' "$spdx" >"$tree/plugin/wire/handshake.h"
expect fail includes "verbs in a pure file, through others"
plant includes plugin/base/good.h '#include "plugin/base/bad.h"\n' "no such header, from a header"
fresh
printf '%s\n#include "agent/base/two.h"\n' "$spdx" >"$tree/agent/base/one.h"
printf '%s\n#include "agent/base/one.h"\n' "$spdx" >"$tree/agent/base/two.h"
expect fail includes "two headers in a circle"
plant includes plugin/bad.c '#include <stdint.h>\n' "a file in no room"
fresh
printf '%s\n' "$spdx" >"$tree/plugin/wire/ctl.h"
printf '%s\n#include "plugin/base/good.h"\n' "$spdx" >"$tree/plugin/wire/net.c"
expect pass includes "an arrow that is allowed"
printf '%s\n#include "plugin/wire/ctl.h"\n' "$spdx" >"$tree/plugin/base/bad.c"
expect fail includes "an arrow that is not"
fresh
printf '%s\n' "$spdx" >"$tree/plugin/wire/one.h"
printf '%s\n#include "plugin/wire/one.h"\n' "$spdx" >"$tree/plugin/wire/two.h"
expect pass includes "one file above another"
printf '%s\n#include "plugin/wire/one.h"\n#include "plugin/wire/two.h"\n' "$spdx" >"$tree/plugin/wire/one.c"
expect fail includes "a circle through a .c file"
fresh
sed -i 's/-> base$/-> base verbs/' "$tree/docs/architecture.md"
expect fail includes "a picture with another arrow"
fresh
for k in $(seq 26); do
	printf '%s\n' "$spdx" >"$tree/plugin/base/many$k.c"
done
expect fail includes "a room with too many files"
plant words common/bad.c "/* TO""DO: more */\n" "work put off"
plant words common/bad.c 'int x; \n' "blanks at the end"

fresh
echo 'int x;' >"$tree/common/bad.c"
expect fail spdx "no licence"

# export_library SOURCE: a plugin with these symbols, where the build would have put it.
export_library() {
	fresh
	mkdir -p "$tree/build/plugin"
	printf '%s\n' "$1" | ${CC:-cc} -x c -shared -fPIC -o "$tree/build/plugin/libnccl-net-mpib.so" - ||
		bad "can't make a library"
}

tables='int ncclNetPlugin_v8, ncclNetPlugin_v11, ncclNetPlugin_v12;'
if command -v nm >/dev/null 2>&1; then
	build=$tree/build
	export_library "$tables static int hidden(void) { return 1; } int (*one_too_many)(void) = hidden;"
	expect fail exports "a pointer too many"
	export_library "$tables"
	expect pass exports "tables alone"
	export_library 'int ncclNetPlugin_vx;'
	expect fail exports "a table without a version"
fi

if command -v clang-format >/dev/null 2>&1 && clang-format --version | grep -q 'version 14\.'; then
	fresh
	expect pass format "a good tree"
	plant format common/bad.c 'int   x ;\n' "not formatted"
fi

finish "$count"
