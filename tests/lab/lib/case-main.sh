#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs one case in a process of its own; $CASE_* and $LAB_* are set by the runner.
set -euo pipefail

# shellcheck source=tests/lab/lib/guest.sh
. "$LAB_ROOT/lib/guest.sh"
# shellcheck source=tests/lab/lib/case.sh
. "$LAB_ROOT/lib/case.sh"
# shellcheck source=tests/lab/lib/perf.sh
. "$LAB_ROOT/lib/perf.sh"
# shellcheck source=tests/lab/lib/agent.sh
. "$LAB_ROOT/lib/agent.sh"
# shellcheck source=tests/lab/lib/nic.sh
. "$LAB_ROOT/lib/nic.sh"
if [ "$LAB_GROUND" = fabric ]; then
	# shellcheck source=tests/lab/lib/fabric.sh
	. "$LAB_ROOT/lib/fabric.sh"
fi

# What a case left running ends with it.
case_end() {
	local rc=$? pid

	set +e
	trap - ERR
	for pid in "$CASE_DIR"/*.pid; do
		[ -e "$pid" ] && kill "$(cat "$pid")" 2>/dev/null
	done
	return "$rc"
}
trap case_end EXIT
trap 'printf "%s:%s: failed: %s\n" "${BASH_SOURCE[0]##*/}" "$LINENO" "$BASH_COMMAND" >&2' ERR
set -E

# shellcheck source=/dev/null
. "$1"
