# SPDX-License-Identifier: Apache-2.0
# Paths, messages and the packages that the lab needs on the machine that runs it.
# shellcheck shell=bash

LAB_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
LAB_TREE=$(cd "$LAB_ROOT/../.." && pwd)
LAB_CACHE=${MPIB_LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mpib-lab}
LAB_BUILD=${MPIB_BUILD:-$LAB_TREE/build}

# Debian's own programs before wrappers of the same names: one that looks for the right Python each
# time (pyenv's) takes longer than most tests, and they start it hundreds of times.
PATH=/usr/bin:/bin:$PATH

say() {
	printf '%s\n' "lab: $*" >&2
}

die() {
	say "$*"
	exit 1
}

# What building, testing and the lab need, by Debian's names. All that configuring the tree looks for is
# in the first: the demo and the tests share a build folder.
# By dpkg-dev Meson knows where libraries go on Debian.
BUILD_PACKAGES=(gcc libc6-dev dpkg-dev meson ninja-build pkg-config libibverbs-dev libsystemd-dev systemd
	libinih-dev libcmocka-dev python3 jq)
TEST_PACKAGES=(g++ clang libclang-rt-dev clang-format clang-tidy ibverbs-utils perftest git man-db procps strace valgrind
	build-essential debhelper lintian prometheus rpm rpmlint python3-yaml
	podman runc slurmctld slurmd slurm-client munge openmpi-bin environment-modules iproute2)
# There are other packages of the same program, which this one can't be installed beside.
command -v kubectl >/dev/null || TEST_PACKAGES+=(kubernetes-client)
LAB_PACKAGES=(build-essential debhelper qemu-system-x86 mmdebstrap e2fsprogs iproute2 util-linux jq meson procps)

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

# set_up: what each command needs before it compiles $LAB_BUILD. A folder that MPIB_BUILD names and that
# exists is its owner's, options and all.
set_up() {
	need_packages "${BUILD_PACKAGES[@]}"
	[ -n "${MPIB_BUILD:-}" ] && [ -e "$LAB_BUILD/build.ninja" ] || "$LAB_TREE/tests/setup" "$LAB_BUILD"
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
