# SPDX-License-Identifier: Apache-2.0
# nodes: 2
# limit: 300
# What docs/operators.md tells an operator to do, done: the metrics timer, bytes of each rail as the
# agent sees them, the Slurm prolog with doctor, and the queries of the journal.
# shellcheck shell=bash

page=$LAB_TREE/docs/operators.md
agent_policy 1 "[islands]" "A = $(sout 1)/32" "B = $(sout 2)/32" "[pair A B]" "share = 25%"
agent_start 1 2
# What the queries find is this case's.
on 1 "journalctl -q --rotate --vacuum-time=1s && systemctl restart mpib-agentd"

# Bytes of each rail: 8 MiB at a quarter, held until the agent has taken the last count.
count=8 size=$((1 << 20))
sup=$((count * size / 4)) sout=$((count * size * 3 / 4))
export LAB_TIMEOUT=200
perf_start bytes 1 2 "$ADVANCED" bw --messages $count --size $size --warmup 0 --check --hold 180
bytes_of() { # NODE FLOW WAY: "SOUT SUP"
	on "$1" mpibctl --json flows | jq -r --arg flow "$2" --arg way "$3" \
		'.flows[] | select(.flow == $flow) | "\(.["sout_" + $way]) \(.["sup_" + $way])"'
}
for _ in $(seq 60); do
	sent=$(bytes_of 1 "$(flow 1 2)" sent)
	received=$(bytes_of 2 "$(flow 2 1)" received)
	[ "$sent $received" = "$sout $sup $sout $sup" ] && break
	sleep 0.5
done
on 1 "systemctl stop mpib-metrics.timer; rm -rf /var/lib/prometheus; mkdir -p /var/lib/prometheus/node-exporter && systemctl start mpib-metrics.timer"
expect_eq "bytes sent by the agent" "$sent" "$sout $sup"
expect_eq "bytes received by the peer's agent" "$received" "$sout $sup"
top=$(on 1 "mpibctl --count 2 top && mpibctl flows && COLUMNS=80 mpibctl --peer $(sout 2) flows")
printf '%s\n' "$top"
expect_eq "lines of top and flows" "$(grep -cE "^$(flow 1 2) +25\.0% " <<<"$top" || true)" 4
expect_eq "bytes in flows" "$(grep -cE "^$(flow 1 2) +25\.0% +(both|-) +pair:4 +6\.3MB +2\.1MB +0B +0B " <<<"$top" || true)" 2
now=$(on 1 date +%s)
age=$((now - $(on 1 mpibctl --json flows | jq '.flows[0].last_byte_usec / 1000000 | floor')))
expect_le "age of the last byte" $age 90
metrics=$(on 1 mpibctl metrics)
for line in "rail=\"sout\",direction=\"sent\"} $sout" "rail=\"sup\",direction=\"sent\"} $sup"; do
	grep -qxF "mpib_flow_bytes_total{flow=\"$(flow 1 2)\",$line" <<<"$metrics" ||
		fail "no line of the metrics ends in $line: $metrics"
done
measured "bytes by the agents: sent $sent, received $received (SOUT SUP)"

# The timer's file, by its collector's grammar.
file=/var/lib/prometheus/node-exporter/mpib.prom
for _ in $(seq 60); do
	on 1 "grep -q \"^mpib_agent_up 1\" $file" 2>/dev/null && break
	sleep 0.5
done
get 1 "$file" >"$CASE_DIR/mpib.prom"
expect_eq "mode of the file" "$(on 1 "stat -c '%a %U' $file; ls /var/lib/prometheus/node-exporter | wc -l" | paste -sd' ')" "644 root 1"
python3 "$LAB_TREE/tests/agent/openmetrics.py" "$CASE_DIR/mpib.prom" || fail "no OpenMetrics"
expect_match "metrics" "$(cat "$CASE_DIR/mpib.prom")" '^mpib_agent_up 1$'
expect_match "metrics" "$(cat "$CASE_DIR/mpib.prom")" "^mpib_flow_share\{flow=\"$(flow 1 2)\",rule=\"pair\"\} 0.2500\$"
written=$(on 1 stat -c %Y "$file")

# The prolog as the page has it, by a job's user.
sed -n '/^# TaskProlog=/,/^```$/p' "$page" | sed '1i #!/bin/sh
	$d' | put 1 /tmp/prolog
prolog() { # SETTINGS: what it says and its exit code
	on 1 "chmod 755 /tmp/prolog
		setpriv --reuid nobody --regid nogroup --clear-groups env SLURM_JOB_ID=7 \
			NCCL_NET_PLUGIN=mpib MPIB_MODE=1 MPIB_HCA_SOUT=sout MPIB_HCA_SUP=sup $1 /tmp/prolog; echo \$?"
}
expect_eq "prolog on a good node" "$(prolog "")" 0
expect_eq "what the prolog leaves in /tmp" "$(on 1 'ls /tmp | grep -c doctor || true')" 0
expect_match "what doctor finds" "$(on 1 'MPIB_MODE=1 MPIB_HCA_SOUT=sout MPIB_HCA_SUP=sup mpibctl doctor || true')" \
	'^OK +SUP sup:1 +GID 1: 10\.9\.1\.1, RoCE v2 on eth1'
said=$(prolog MPIB_HCA_SUP=sup9)
expect_match "prolog with a wrong device" "$said" \
	'^print mpib: this node needs a person: FAIL +SUP sup9:1 +no RDMA device sup9; there are: (sout, sup|sup, sout)'
expect_eq "its exit code" "$(tail -n 1 <<<"$said")" 1
measured "$(tr -s ' ' <<<"$said" | head -1)"
on 1 'mkdir -p /tmp/tools && ln -sf /usr/bin/grep /usr/bin/tail /tmp/tools'
said=$(prolog PATH=/tmp/tools)
expect_match "prolog without mpibctl" "$said" '^print mpib: this node needs a person: .*mpibctl.*not found'
# Its two islands are hosts.
codes=$(on 1 'export MPIB_MODE=1 MPIB_HCA_SOUT=sout MPIB_HCA_SUP=sup MPIB_ISLAND_PREFIX_LEN=32
	for settings in NCCL_NET_PLUGIN=mpib x= "NCCL_NET_PLUGIN=mpib MPIB_HCA_SUP=sup9" MPIB_HCA_SUP=sup9; do
		rc=0; env $settings mpibctl doctor >/dev/null 2>&1 || rc=$?; echo $rc
	done' | paste -sd' ')
expect_eq "doctor's exit codes: good, a warning, a failure, both" "$codes" "0 5 1 1"

# One event of each kind, and then the queries as they stand, for this flow and this process.
pid=$(on 1 mpibctl --json flows | jq '.flows[0].pid')
flow=$(flow 1 2)
agent_policy 1 "[policy]" "inter = lots"
on 1 "mpibctl set $flow 10 --for 1h >/dev/null && ! mpibctl reload 2>/dev/null &&
	! setpriv --reuid nobody --clear-groups mpibctl set $flow 20 2>/dev/null" || fail "set, reload"
# A registration without a source address.
on 1 "setpriv --reuid nobody --clear-groups perl -MIO::Socket::UNIX -e '
	\$s = IO::Socket::UNIX->new(\"/tmp/mpib/agent.sock\") or die; \$s->autoflush(1);
	print \$s pack(\"LSCCL5\", 0x4D504952, 28, 1, 0, 7, 0, 1, 0, 0); read(\$s, \$_, 16);
	exit(unpack(\"x8C\") != 2)'" || fail "a wrong registration isn't refused"
agent_policy 1 "[islands]" "A = $(sout 1)/32" "B = $(sout 2)/32" "[pair A B]" "share = 75%"
on 1 "mpibctl unset $flow >/dev/null && systemctl reload mpib-agentd && systemctl restart mpib-agentd"
# A rail that is lost and comes back, by the counters of a job.
bg 1 holder "exec /lab/hold --rail $(sout 1) $(sout 2)"
for _ in $(seq 40); do
	[ "$(agent_log 1 MPIB_EVENT=rail-back | wc -l)" -gt 0 ] && break
	sleep 0.5
done
bg_stop holder
queries=0
while read -r query; do
	queries=$((queries + 1))
	query=${query//10.0.1.1-10.0.2.5/$flow}
	said=$(on 1 "${query//4711/$pid} -b --no-pager -q") || fail "$query"
	printf '%s\n%s\n' "== $query" "$said" | cut -c1-300
	lines=$(grep -c . <<<"$said" || true)
	case $queries in
	1) want='^░░ .*Subject: |^░░ Subject: The MPIB agent has started' ;;
	2) want="flow $flow registered" ;;
	3) want='256 .*768|768' ;;
	4) want="pid $pid" ;;
	5) want='refused.* pid [0-9]+|pid [0-9]+.*refused' ;;
	6) want='inter = lots' ;;
	7) want='started: .*1 flow re-adopted' ;;
	8) want='"MPIB_OVERRIDE" ?: ?"' ;;
	9) want='inter = lots' ;;
	10) want="flow $flow " ;;
	11) want="^flow $flow has SUP back: 1 time on 1 connection of pid [0-9]+; both rails are in use" ;;
	esac
	expect_match "query $queries ($query)" "$said" "$want"
	summary+=" $lines"
done < <(grep '^journalctl ' "$page")
expect_eq "queries" $queries 11
measured "lines of the queries:$summary"

# The timer has come again meanwhile.
for _ in $(seq 40); do
	[ "$(on 1 stat -c %Y "$file")" != "$written" ] && break
	sleep 0.5
done
expect_ge "seconds between two files" $(($(on 1 stat -c %Y "$file") - written)) 1
on 1 "systemctl stop mpib-metrics.timer; pkill -x mpib-netperf; rm -rf /var/lib/prometheus" || true
