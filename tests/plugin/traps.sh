#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A trap of the driver's, on one node. usage: traps.sh CASE
# shellcheck source=tests/plugin/lib.sh
. "$(dirname "$0")/lib.sh"

# A child that exits gives nothing back that is its parent's; a leak check there would complain.
[ "$name" != fork-exit ] || export ASAN_OPTIONS=detect_leaks=0
MPIB_FABRIC_NODE=1 "$DRIVER" "$name"
