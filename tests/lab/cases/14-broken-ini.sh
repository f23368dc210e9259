# SPDX-License-Identifier: Apache-2.0
# nodes: 2
# A broken policy file: a reload is refused with file and line, the agent stays active with the
# old shares, byte for byte; a start with it fails with the same line.
# shellcheck shell=bash

hints() {
	on 1 "mpibctl --json hints"
}

agent_policy 1 "[flow $(sout 1) $(sout 2)]" "share = 25%"
agent_start 1 2
# A connection that holds the slot meanwhile.
perf_start holder 1 2 "$ADVANCED" bw --messages 4 --size 64K --warmup 0 --hold 30
for _ in $(seq 20); do
	hints | jq -e '.hints[] | select(.share == 256)' >/dev/null && break
	sleep 0.5
done
table=$(on 1 "tail -c +17 /tmp/mpib/hints | sha256sum")
hints >"$CASE_DIR/hints.before"
expect_eq "share" "$(jq -r '.hints[0].share' "$CASE_DIR/hints.before")" 256

cursor=$(agent_cursor 1)
agent_policy 1 "[policy]" "intra = 512" "inter = many"
if on 1 systemctl reload mpib-agentd; then
	fail "systemctl reload took a broken file"
fi
said=$(agent_since 1 "$cursor")
line=$(grep -F "$INI:3:" <<<"$said" | head -1)
measured "reload refused: $line"
[ -n "$line" ] || fail "no line names $INI:3: $said"
expect_eq "state" "$(on 1 systemctl is-active mpib-agentd)" active
expect_eq "hint table" "$(on 1 "tail -c +17 /tmp/mpib/hints | sha256sum")" "$table"
expect_match "status" "$(on 1 systemctl status --no-pager mpib-agentd || true)" "$INI:3:"

# A good file is taken again.
agent_policy 1 "[flow $(sout 1) $(sout 2)]" "share = 75%"
agent_reload 1
expect_eq "share" "$(hints | jq -r '.hints[0].share')" 768
on 1 pkill -x mpib-netperf || true
bg_stop holder
bg_stop holder-peer

agent_policy 1 "[policy]" "intra = 512" "inter = many"
on 1 systemctl stop mpib-agentd
cursor=$(agent_cursor 1)
if on 1 systemctl start mpib-agentd; then
	fail "systemctl start took a broken file"
fi
said=$(agent_since 1 "$cursor")
line=$(grep -F "$INI:3:" <<<"$said" | head -1)
measured "start refused: $line"
[ -n "$line" ] || fail "no line names $INI:3: $said"
expect_eq "state" "$(on 1 systemctl is-active mpib-agentd || true)" failed
