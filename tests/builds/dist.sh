#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A release, as docs/install.md makes it: dist.sh TREE BUILD. A commit of the tree as it is now is cloned, and
# `meson dist` makes its tarball, which has to have each file; what is installed builds from it in a folder of
# another depth, and is byte for byte what BUILD installs.
set -euo pipefail

tree=$1 build=$2
command -v git >/dev/null || {
	echo "skipped: git is not installed"
	exit 77
}
cd "$tree"
git rev-parse --git-dir >/dev/null 2>&1 || {
	echo "skipped: $tree is no checkout of git"
	exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GIT_AUTHOR_NAME=dist GIT_AUTHOR_EMAIL=dist@localhost GIT_COMMITTER_NAME=dist GIT_COMMITTER_EMAIL=dist@localhost
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'

wrong() {
	echo "$*"
	exit 1
}

# checkout: of what git knows or would take, changes that aren't committed included.
checkout() {
	mkdir "$work/checkout"
	git ls-files -z -co --exclude-standard | tar --null --ignore-failed-read -T - -cf - 2>/dev/null |
		tar -C "$work/checkout" -xf -
	cd "$work/checkout"
	git init -q .
	git add -A
	git commit -q -m tree
}

# tarball: prints its path.
tarball() {
	"$work/checkout/tests/setup" "$work/setup" >&2
	meson dist -C "$work/setup" --no-tests >"$work/dist.log" 2>&1 || {
		cat "$work/dist.log" >&2
		return 1
	}
	ls "$work"/setup/meson-dist/mpib-*.tar.xz
}

installed() {
	DESTDIR='' meson install -C "$1" --no-rebuild --destdir "$2" >"$2.log" 2>&1 || {
		cat "$2.log"
		wrong "$1 can't be installed"
	}
}

options=$(meson introspect "$build" --buildoptions | jq -r '[.[] |
	select(.name == ("buildtype", "prefix", "b_sanitize", "sysconfdir")).value] | sort | join(" ")')
[ "$options" = "/etc /usr debugoptimized none" ] || {
	echo "skipped: $build is no plain build"
	exit 77
}
checkout
file=$(tarball)
version=$(meson introspect "$work/setup" --projectinfo | jq -r .version)
[ "${file##*/}" = "mpib-$version.tar.xz" ] || wrong "the tarball is $file"
(cd "${file%/*}" && sha256sum --quiet -c "${file##*/}.sha256sum")
mkdir -p "$work/unpacked/one/deeper"
tar -C "$work/unpacked/one/deeper" -xf "$file"
source=$work/unpacked/one/deeper/mpib-$version
diff <(git -C "$work/checkout" ls-files | sort) <(cd "$source" && find . ! -type d -printf '%P\n' | sort) ||
	wrong "the tarball lacks files (<), or has others (>)"

# The folder of the build isn't below the sources, either.
"$source/tests/setup" "$work/b"
ninja -C "$work/b" installed >"$work/compile.log" 2>&1 || {
	tail -n 30 "$work/compile.log"
	wrong "the tarball doesn't build"
}
installed "$build" "$work/first"
installed "$work/b" "$work/second"
for path in /usr/sbin/mpib-agentd /usr/bin/mpibctl; do
	[ -s "$work/second$path" ] || wrong "$path isn't installed from the tarball"
	! grep -qaF -e "$tree" -e "$work" "$work/first$path" "$work/second$path" || wrong "$path names a folder of its build"
done
diff -r "$work/first" "$work/second" || wrong "two builds in two folders differ"
echo "${file##*/}: $(find "$work/second" -type f | wc -l) files, the same from two folders"
