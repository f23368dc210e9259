#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ibv_devices and ibv_devinfo -v tell what the configuration says. Environment as for two-ends.sh.
set -eu
command -v ibv_devinfo >/dev/null || { echo "skipped: ibverbs-utils is not installed"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export MPIB_FABRIC_DIR="$dir" LD_LIBRARY_PATH="$FABRIC_LIB"
unset MPIB_FABRIC MPIB_FABRIC_NULL MPIB_FABRIC_NODE || :
[ -z "${FABRIC_PRELOAD:-}" ] || export LD_PRELOAD="$FABRIC_PRELOAD"

need() {
	grep -Eq "$2" "$1" || { echo "FAILED: no '$2' in:"; cat "$1"; exit 1; }
}

ibv_devices >"$dir/devices"
need "$dir/devices" '^[[:space:]]+sout[[:space:]]+020000000a000101$'
need "$dir/devices" '^[[:space:]]+sup[[:space:]]+020000000a090101$'
MPIB_FABRIC_NODE=2 ibv_devinfo -v >"$dir/info"
need "$dir/info" 'hca_id:.*sup'
need "$dir/info" 'state:.*PORT_ACTIVE'
need "$dir/info" 'link_layer:.*Ethernet'
need "$dir/info" 'active_mtu:.*4096'
need "$dir/info" 'GID\[ *0\]:.*fe80:.*RoCE v1'
need "$dir/info" 'GID\[ *3\]:.*::ffff:10\.9\.1\.2, RoCE v2'
MPIB_FABRIC="$1" MPIB_FABRIC_NODE=vm8 ibv_devinfo -v >"$dir/eight"
need "$dir/eight" 'GID\[ *3\]:.*::ffff:10\.9\.2\.8, RoCE v2'
echo ok
