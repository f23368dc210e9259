#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A trap of the driver's, on one node. usage: traps.sh CASE
# shellcheck source=tests/plugin/lib.sh
. "$(dirname "$0")/lib.sh"

MPIB_FABRIC_NODE=1 "$DRIVER" "$name"
