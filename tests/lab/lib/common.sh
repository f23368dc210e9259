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

# lab_need_tools: installs what the lab runs on, if anything of it is missing.
lab_need_tools() {
	local -a want=(
		qemu-system-x86_64:qemu-system-x86 mmdebstrap:mmdebstrap mke2fs:e2fsprogs
		ip:iproute2 unshare:util-linux jq:jq
	)
	local pair
	local -a packages=()

	[ "$(id -u)" = 0 ] || die "network namespaces and the image need root"
	for pair in "${want[@]}"; do
		command -v "${pair%%:*}" >/dev/null || packages+=("${pair##*:}")
	done
	[ ${#packages[@]} = 0 ] && return
	apt_install "${packages[@]}"
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
