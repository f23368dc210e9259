# SPDX-License-Identifier: Apache-2.0
# Paths, messages and the packages that the lab needs on the machine that runs it.
# shellcheck shell=bash

LAB_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
LAB_TREE=$(cd "$LAB_ROOT/../.." && pwd)
LAB_CACHE=${MPIB_LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mpib-lab}
LAB_BUILD=${MPIB_BUILD:-$LAB_TREE/build}

say() {
	printf '%s\n' "lab: $*" >&2
}

die() {
	say "$*"
	exit 1
}

# What building, testing and the lab need, by Debian's names.
BUILD_PACKAGES=(gcc libc6-dev meson ninja-build pkg-config libibverbs-dev libsystemd-dev systemd
	libinih-dev)
TEST_PACKAGES=(libcmocka-dev g++ clang clang-format clang-tidy jq python3 ibverbs-utils perftest git man-db
	procps valgrind)
LAB_PACKAGES=(qemu-system-x86 mmdebstrap e2fsprogs iproute2 util-linux jq meson procps)

# need_packages PACKAGE…: installs those that are missing; without root, says which.
need_packages() {
	local package
	local -a missing=()

	for package in "$@"; do
		dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed$' ||
			missing+=("$package")
	done
	[ ${#missing[@]} = 0 ] && return
	[ "$(id -u)" = 0 ] || die "not installed, and only root may: ${missing[*]}"
	apt_install "${missing[@]}"
}

lab_need_tools() {
	[ "$(id -u)" = 0 ] || die "network namespaces and the image need root"
	need_packages "${LAB_PACKAGES[@]}"
}

# apt_install PACKAGE…: quiet unless it fails; waits for whoever else holds apt's lock.
apt_install() {
	local log

	say "installing ${*}"
	log=$(mktemp)
	if ! {
		apt-get -o DPkg::Lock::Timeout=600 update &&
			DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 \
				install -y --no-install-recommends "$@"
	} >"$log" 2>&1 </dev/null; then
		tail -20 "$log" >&2
		rm -f "$log"
		die "could not install ${*}"
	fi
	rm -f "$log"
}
