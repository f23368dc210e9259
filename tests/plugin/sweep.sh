#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Each call of a kind fails once, at each place, of one end of a connection between two processes; or of
# all that one process calls from init to finalize (life).
# usage: sweep.sh KIND[-with-agent]
# shellcheck source=tests/plugin/lib.sh
. "$(dirname "$0")/lib.sh"

# A failed request ends its connection here; that a lost rail doesn't is for cuts.sh.
export MPIB_FAILOVER=0
case $name in
*-with-agent)
	start_agent 1 512
	start_agent 2 512
	export SWEEP_AGENTS=$agent_dir
	;;
esac
case $name in
life*) "$SWEEP_LIFE" >"$work/sweep" 2>&1 || die "see what it printed" ;;
*) "$SWEEP" "${name%-with-agent}" >"$work/sweep" 2>&1 || die "see what it printed" ;;
esac
cat "$work/sweep"
