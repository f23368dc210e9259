#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Which rail carries what: vanilla and advanced mode, every table. usage: paths.sh CASE
# shellcheck source=tests/plugin/lib.sh
. "$(dirname "$0")/lib.sh"

quick=(--comms 2 --max-size 1M --memory 32M)

case $name in
verify-*) # every table version, every size, groups, both directions
	start_listener
	run_pair --api "${name#verify-}" verify "${quick[@]}" --seed "${name#verify-}"
	want 0 0
	hold connector 'r["ok"] and r["table"] == "v'"${name#verify-}"'"'
	hold listener 'r["ok"]'
	;;
vanilla-intra) # C04 too: the odd sizes and the empty one
	start_listener
	run_pair verify "${quick[@]}"
	want 0 0
	for side in connector listener; do
		hold $side 'len(c) == 4 and all(e["path"] == "intra" and
			not any(e["rails"][0][k] for k in ("bytes", "requests", "cts")) and
			e["rails"][1]["bytes"] and (e["kind"] == "send" or e["rails"][1]["cts"])
			for e in c)'
	done
	;;
vanilla-inter) # a prefix of 32 bits makes two nodes two islands
	export MPIB_ISLAND_PREFIX_LEN=32
	start_listener
	run_pair verify "${quick[@]}"
	want 0 0
	for side in connector listener; do
		hold $side 'len(c) == 4 and all(e["path"] == "inter" and e["qps"] == [2, 0] and
			not any(e["rails"][1][k] for k in ("bytes", "requests", "cts")) and
			e["rails"][0]["bytes"] for e in c)'
	done
	;;
vanilla-prefix-0) # everybody is one island
	export MPIB_ISLAND_PREFIX_LEN=0
	start_listener
	run_pair verify --sizes 1,4096
	want 0 0
	hold connector 'all(e["path"] == "intra" for e in c)'
	;;
vanilla-needs-no-agent) # it never looks at the agent's directory
	command -v strace >/dev/null || { echo "skipped: strace is not installed"; exit 77; }
	[ -z "${SANITIZED:-}" ] || { echo "skipped: LeakSanitizer can't run under strace"; exit 77; }
	mkdir "$work/agent1" "$work/agent2"
	agent_dir=$work/agent
	start_listener
	MPIB_FABRIC_NODE=2 MPIB_AGENT_DIR=$work/agent2 strace -f -qq -e trace=file,network \
		-o "$work/trace" "$NETPERF" --plugin "$PLUGIN" --connect "127.0.0.1:$port" --json \
		verify --sizes 4096 >"$work/connector" 2>"$work/connector.err"
	connector_rc=$?
	wait "$listener"
	listener_rc=$?
	want 0 0
	grep -q 127.0.0.1 "$work/trace" || die "the trace shows nothing"
	! grep -q "$work/agent2" "$work/trace" || die "the agent's directory was touched"
	;;
rails-verify) # bytes of each rail and their sum, for people and for programs, at both ends
	start_agent 1 256
	start_agent 2 256
	export MPIB_MODE=1 MPIB_SPLIT_MIN=0
	start_listener
	run_pair verify --max-size 64k --memory 16M
	want 0 0
	# The rate has three decimals, the seconds six.
	for side in connector listener; do
		hold $side "(abs(sum(x['sent'] for x in r['rails']) - r['tx_mbps'] * r['seconds'] * 1e6) <=
			10 + 501 * r['seconds'] + 0.51 * r['tx_mbps'] and
			r['rails'][0]['rail'] == 'sout' and r['rails'][1]['sent'] > 0 and
			r['rail_bytes'] == sum(x['sent'] + x['received'] for x in r['rails']) and
			[x['sent'] for x in r['rails']] ==
			[sum(e['rails'][n]['bytes'] for e in c if e['kind'] == 'send') for n in (0, 1)])"
	done
	start_listener
	MPIB_FABRIC_NODE=2 MPIB_AGENT_DIR=${agent_dir}2 "$NETPERF" --plugin "$PLUGIN" \
		--connect "127.0.0.1:$port" verify --sizes 4096 --messages 100 --no-both --comms 1 \
		--no-groups >"$work/people" 2>&1 || die "verify failed"
	wait "$listener" || die "the listener failed"
	grep -E '^sent +SOUT [0-9]+ \+ SUP [0-9]+ = [0-9]+ bytes$' "$work/people" |
		awk '$3 + $6 == $8 && $6 > 0 { ok = 1 } END { exit !ok }' ||
		die "no bytes of the rails"
	grep -qE '^received +SOUT 0 \+ SUP 0 = 0 bytes$' "$work/people" || die "received isn't apart"
	;;
share-*) # exact bytes a rail from the plugin's own counters
	share=${name#share-}
	start_agent 1 "$share"
	start_agent 2 "$share"
	export MPIB_MODE=1 MPIB_SPLIT_MIN=0
	for size in 1048576 1000001 4097 127; do
		start_listener
		run_pair bw --size $size --messages 100 --window 4 --check
		want 0 0
		hold connector "(lambda e, sup, n: e['share'] == $share and e['mode'] == 'advanced' and
			e['messages'] == n and e['rails'][1]['bytes'] == n * sup and
			e['rails'][0]['bytes'] == n * ($size - sup) and
			e['rails'][0]['requests'] == n * (sup < $size) and
			e['rails'][1]['requests'] == n * (sup > 0))(c[0], split($size, $share), 100)"
		hold listener "(lambda e, sup, n: e['rails'][1]['bytes'] == n * sup and
			e['rails'][0]['cts'] == n and
			e['rails'][1]['cts'] == 0)(c[0], split($size, $share), 100)"
	done
	unset MPIB_SPLIT_MIN # short ones whole, to the rail with the larger part
	start_listener
	run_pair bw --size 4097 --messages 100 --window 4 --check
	want 0 0
	hold connector "(c[0]['rails'][1]['bytes'] == ($share >= 512) * 409700 and
		c[0]['rails'][0]['bytes'] == ($share < 512) * 409700)"
	;;
advanced-verify)
	start_agent 1 37%
	start_agent 2 1:2
	export MPIB_MODE=1
	start_listener
	run_pair verify "${quick[@]}"
	want 0 0
	hold connector 'all(b["bytes"] > 0 for e in c for b in e["rails"])'
	;;
small-port) # C07: one message over a port's limit, and a bit more
	printf '[fabric]\nname = small\n[device sout]\nmax_msg = 1048576\n[device sup]\nmax_msg = 1048576\n' >"$work/fabric.ini"
	for node in 1 2; do
		printf '[node %s]\nsout.address = 10.0.1.%s\nsup.address = 10.9.1.%s\n' $node $node $node
	done >>"$work/fabric.ini"
	export MPIB_FABRIC=$work/fabric.ini
	start_listener
	run_pair verify --sizes 1048576,1048577,3000001,16777216 --comms 1 --no-both --messages 8
	want 0 0
	hold connector 'c[0]["rails"][1]["requests"] > c[0]["messages"]'
	;;
adaptive-routing | adaptive-routing-advanced) # P12
	printf '[fabric]\nname = adaptive\n' >"$work/fabric.ini"
	for rail in sout sup; do
		printf '[device %s]\nlink_layer = infiniband\nadaptive = yes\n' $rail
	done >>"$work/fabric.ini"
	printf '[node 1]\n[node 2]\n' >>"$work/fabric.ini"
	export MPIB_FABRIC=$work/fabric.ini MPIB_IB_AR_THRESHOLD=10000
	if [ $name = adaptive-routing-advanced ]; then
		start_agent 1 512
		start_agent 2 512
		export MPIB_MODE=1
	fi
	export MPIB_NODE_ADDR=10.0.1.1
	start_listener
	export MPIB_NODE_ADDR=10.0.1.2
	run_pair verify --sizes 1,4096,10000 --comms 1 --no-both
	want 0 0
	spread() { "$FABRICCTL" show "1/$1" | sed -n 's/^ *spread_bytes //p'; }
	before=$(spread sup)
	export MPIB_NODE_ADDR=10.0.1.1
	start_listener
	export MPIB_NODE_ADDR=10.0.1.2
	run_pair bw --messages 200 --size 100000 --window 8
	want 0 0
	[ "$(($(spread sup) - ${before:-0}))" -gt 5000000 ] || die "data isn't spread on SUP"
	[ $name = adaptive-routing ] || [ "$(spread sout)" -gt 5000000 ] || die "nor on SOUT"
	;;
inline-*) # P10: whatever a device takes inline; it is told where that costs something
	room=${name#inline-}
	printf '[fabric]\nname = inline\n' >"$work/fabric.ini"
	for rail in sout sup; do
		printf '[device %s]\nmax_inline = %s\ninline_step = 220\n' $rail "$room"
	done >>"$work/fabric.ini"
	for node in 1 2; do
		printf '[node %s]\nsout.address = 10.0.1.%s\nsup.address = 10.9.1.%s\n' $node $node $node
	done >>"$work/fabric.ini"
	export MPIB_FABRIC=$work/fabric.ini
	start_listener --log info
	run_pair verify --sizes 1,4096,100000 --comms 1 --no-both --messages 300
	want 0 0
	case $room in
	0) told=1 whose='0 of 64 bytes inline: clear-to-sends of all receives' ;;
	32) told=1 whose='32 of 64 bytes inline: clear-to-sends of groups' ;;
	*) told=0 whose='bytes inline' ;;
	esac
	warned listener $told "$whose"
	;;
exact-hca-name) # C01: mlx5_1 is never mlx5_11
	printf '[fabric]\nname = names\n' >"$work/fabric.ini"
	for dev in mlx5_11 mlx5_1 mlx5_0; do printf '[device %s]\n' $dev; done >>"$work/fabric.ini"
	for node in 1 2; do
		printf '[node %s]\nmlx5_0.address = 10.0.1.%s\nmlx5_1.address = 10.9.1.%s\nmlx5_11.address = 10.8.1.%s\n' \
			$node $node $node $node
	done >>"$work/fabric.ini"
	export MPIB_FABRIC=$work/fabric.ini MPIB_HCA_SOUT=mlx5_0 MPIB_HCA_SUP=mlx5_1
	start_listener
	run_pair --log info verify --sizes 4096
	want 0 0
	warned connector 1 'SUP mlx5_1:1: GID . 10.9.1.2,'
	warned connector 0 'mlx5_11:'
	;;
infiniband) # no IPv4 address in the GIDs: MPIB_NODE_ADDR stands for the node, QPs go by LID
	export MPIB_FABRIC=$FABRIC_CONFIGS/infiniband.ini
	start_listener
	run_pair verify --sizes 4096
	[ "$connector_rc" = 1 ] || die "an InfiniBand port is taken without MPIB_NODE_ADDR"
	warned connector 1 'InfiniBand port, which has no IPv4 address: set MPIB_NODE_ADDR'
	export MPIB_NODE_ADDR=10.0.1.1
	start_listener
	export MPIB_NODE_ADDR=10.0.1.2
	run_pair verify --sizes 1,4096,1000000
	want 0 0
	hold connector 'all(e["path"] == "intra" and e["rails"][1]["bytes"] for e in c)'
	export MPIB_NODE_ADDR=10.0.1.1
	start_listener
	export MPIB_NODE_ADDR=10.0.2.2 # another island: all over SOUT
	run_pair verify --sizes 1,4096,1000000
	want 0 0
	hold connector 'all(e["path"] == "inter" and not e["rails"][1]["bytes"] for e in c)'
	;;
gid-table) # C14: link-local and v1 entries first, the right one at index 5; then none; then a new one
	start_listener
	"$FABRICCTL" gid 2/sup 5 10.9.1.2/v2 && "$FABRICCTL" gid 2/sup 3 169.254.7.7/v2 || die fabricctl
	run_pair --log info verify --sizes 4096
	want 0 0
	warned connector 1 'SUP sup:1: GID 5 10.9.1.2,'
	"$FABRICCTL" gid 2/sup 5 - || die fabricctl
	start_listener
	run_pair verify --sizes 4096
	[ "$connector_rc" = 1 ] || die "a rail without an address is not refused"
	warned connector 1 'SUP rail sup:1: no RoCE v2 GID with a routable IPv4 address'
	"$FABRICCTL" gid 2/sup 5 10.9.1.77/v2 || die fabricctl
	start_listener
	run_pair --log info verify --sizes 4096
	want 0 0
	warned connector 1 'SUP sup:1: GID 5 10.9.1.77,'
	;;
many-messages) # C10
	start_listener
	run_pair bw --size 1 --messages 70000 --window 32 --check
	want 0 0
	hold connector 'c[0]["messages"] == 70000'
	hold listener 'c[0]["messages"] == 70000'
	;;
many-connections) # X6: linear time, bounded descriptors, both printed
	ulimit -n 8192
	time_of() {
		local before
		start_listener --timeout 60
		before=$(now_ms)
		run_pair verify --comms "$1" --no-both --no-groups --sizes 8 --messages 1 --memory 64M
		want 0 0
		took=$(($(now_ms) - before))
	}
	time_of 25
	few=$took
	time_of 200
	echo "25 connections in $few ms, 200 in $took ms"
	[ "$took" -lt $((8 * few * 3 + 3000)) ] || die "not linear"
	;;
*)
	die "no such case"
	;;
esac
