#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The control connection goes through the interface of a rail that is lost. usage: control.sh lost|back|last
# shellcheck source=tests/plugin/lib.sh
. "$(dirname "$0")/lib.sh"

unshare -n true 2>/dev/null || { echo "skipped: no network namespace of one's own"; exit 77; }
export MPIB_FABRIC_NODE=1 MPIB_MODE=1 MPIB_SPLIT_MIN=0 MPIB_IB_TIMEOUT=12 MPIB_IB_RETRY_CNT=3
start_agent 1 512
export MPIB_AGENT_DIR=${agent_dir}1
unshare -n sh -c 'ip link set lo up && exec "$0" "$1"' "$DRIVER" "control-$name" 2>"$work/stderr" ||
	die "the driver exits with $?"
case $name in
lost) grep -q 'the control connection with .* is lost: .*the connection goes on over its rails' "$work/stderr" ;;
last) grep -q 'neither a rail nor the control connection is left' "$work/stderr" ;;
esac || die "no line says so"
