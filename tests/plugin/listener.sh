#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One listener and several peers: whatever became of one, the next one gets its connection.
# usage: listener.sh CASE
# shellcheck source=tests/plugin/lib.sh
. "$(dirname "$0")/lib.sh"

"$LISTENER" "$name" >"$work/out" 2>&1 || die "listener exits with $?"
cat "$work/out"
