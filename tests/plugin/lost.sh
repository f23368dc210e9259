#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# P04: a device is lost, at either end, on the rail in use and on the other. usage: lost.sh WHEN
# shellcheck source=tests/plugin/lib.sh
. "$(dirname "$0")/lib.sh"

export MPIB_FABRIC_NODE=1
"$DRIVER" "device-lost-$name" || die "the driver exits with $?"
