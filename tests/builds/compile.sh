#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What is installed compiles without a warning: compile.sh TREE BUILD NAME, NAME as below. Below BUILD/builds, which
# is kept, so that a second time takes seconds. With time that nothing else wants. Each kind of build is there once,
# beside the plain one, which is gcc's with -O2 and has the tests as well: what clang warns of doesn't depend on how
# it optimizes, and its warnings about the tests tests/tree/tidy.sh tells.
set -euo pipefail

tree=$1 build=$2 name=$3
folder=$build/builds/$name
compiler=${name%%-*}

case $name in
# With this prefix tests/builds/install.sh installs it.
gcc-release-lto) options=(--buildtype=release -Db_lto=true --prefix=/opt/mpib --sysconfdir=etc) ;;
clang-debug-lto) options=(--buildtype=debug -Db_lto=true) ;;
*)
	echo "compile.sh: $name is none of {gcc-release,clang-debug}-lto"
	exit 2
	;;
esac
command -v "$compiler" >/dev/null || {
	echo "skipped: $compiler is not installed"
	exit 77
}

mkdir -p "$build/builds"
exec 9>"$folder.lock"
flock 9
renice -n 19 $$ >/dev/null
unset CFLAGS LDFLAGS
CC=$compiler "$tree/tests/setup" "$folder" "${options[@]}"
mapfile -t targets < <(meson introspect "$folder" --targets |
	jq -r --arg folder "$folder/" '.[] | select(.installed).filename[] | ltrimstr($folder)')
[ ${#targets[@]} -gt 0 ]
log=$folder/compile.log
rc=0
ninja -C "$folder" -k 0 "${targets[@]}" >"$log" 2>&1 || rc=$?
# Warnings of a linker are no errors, and Ninja shows them once. That gcc finds no make is none of the tree's.
grep -E '(warning|error): ' "$log" | grep -v 'using serial compilation' >"$folder/told" && rc=1
if [ "$rc" != 0 ]; then
	tail -n 15 "$log"
	head -n 10 "$folder/told"
	ninja -C "$folder" -t clean >/dev/null # so that they come again
	exit 1
fi
echo "$name: no warning"
