# SPDX-License-Identifier: Apache-2.0
# grounds: lab fabric
# nodes: 2
# Advanced mode without an agent: the plugin refuses at once, in one clear line.
# shellcheck shell=bash

rc=0
started=$SECONDS
perf_listen peer 2 "$VANILLA"
on 1 "$PERF_RUN $ADVANCED mpib-netperf --plugin $PERF_PLUGIN --connect $(oob 2):$(perf_port 2) \
	--json --log warn bw --messages 1" >"$CASE_DIR/out" 2>"$CASE_DIR/err" || rc=$?
bg_stop peer
cat "$CASE_DIR/out" "$CASE_DIR/err"

lines=$(grep 'WARN NET/MPIB' "$CASE_DIR/err" || true)
measured "exit $rc after $((SECONDS - started)) s: $lines"
expect_eq "exit status" "$rc" 1
expect_eq "warnings" "$(grep -c WARN <<<"$lines")" 1
expect_match "the line" "$lines" "$(agent_dir 1)"
expect_le "seconds" $((SECONDS - started)) 15
