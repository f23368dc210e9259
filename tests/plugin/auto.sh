#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Shares that find themselves, from equal parts to the balance of shaped rails. usage: auto.sh CASE
# shellcheck source=tests/plugin/lib.sh
. "$(dirname "$0")/lib.sh"

export MPIB_MODE=1 MPIB_FABRIC=$work/fabric.ini
declare -A another=() listeners=()

# rails SOUT SUP: MB/s of each
rails() {
	cat >"$MPIB_FABRIC" <<-END
		[fabric]
		name = auto
		[device sout]
		rate = $1m
		[device sup]
		rate = $2m
		[node 1]
		sout.address = 10.0.1.1
		sup.address = 10.9.1.1
		[node 2]
		sout.address = 10.0.1.2
		sup.address = 10.9.1.2
	END
}

# rate DEVICE MBPS: of both nodes, from now on
rate() {
	"$FABRICCTL" rate "1/$1" "$(($2 * 1000000))" && "$FABRICCTL" rate "2/$1" "$(($2 * 1000000))"
}

# rates SOUT SUP: from now on
rates() {
	rate sout "$1"
	rate sup "$2"
}

# ratio_is FILE LEAST MOST: the last second's bytes on SUP are so many times those on SOUT
ratio_is() {
	python3 - "$work/$1" "$2" "$3" <<-'END'
		import json, sys
		rows = [json.loads(line) for line in open(sys.argv[1]) if line.endswith("\n")]
		rows = [row for row in rows if row["event"] == "interval"][-11:]
		if len(rows) < 11:
		    sys.exit(1)
		sout, sup = (rows[-1]["rails"][k]["bytes"] - rows[0]["rails"][k]["bytes"] for k in (0, 1))
		sys.exit(not (sout and float(sys.argv[2]) <= sup / sout <= float(sys.argv[3])))
	END
}

# finds LEAST MOST [FILE]
finds() {
	until_true $GROUND_SECONDS ratio_is "${3:-connector}" "$1" "$2" ||
		die "the bytes of SUP are not $1 to $2 times those of SOUT: $(grep -h 'by itself' "$work/agentd2.log")"
}

# together FILE...: bytes a second of all of them on both rails, in the latest two seconds
together() {
	(cd "$work" && python3 - "$@") <<-'END'
		import json, sys
		speed = 0
		for name in sys.argv[1:]:
		    rows = [json.loads(line) for line in open(name) if line.endswith("\n")]
		    rows = [row for row in rows if row["event"] == "interval"][-21:]
		    carried = [sum(rail["bytes"] for rail in row["rails"]) for row in rows]
		    speed += (carried[-1] - carried[0]) / (rows[-1]["t"] - rows[0]["t"])
		print(round(speed))
	END
}

# carry_at_least BYTES_A_SECOND FILE...
carry_at_least() {
	local least=$1
	shift
	[ "$(together "$@")" -ge "$least" ]
}

# stream SIZE WINDOW [OPTION...]: until end_well
stream() {
	start_agent 1 auto
	start_agent 2 auto
	start_listener
	start_connector --interval 0.1 bw --seconds 200 --size "$1" --window "$2" --check "${@:3}"
}

# another NAME [MODE [OPTION...]]: one more pair of processes, with files of that name and the sender's pid in another
another() {
	local pair=$1 mode=${2:-1} port

	shift $(($# > 2 ? 2 : $#))
	(
		export MPIB_MODE=$mode
		on_node 1 "$NETPERF" --plugin "$PLUGIN" --listen 0 --bind 127.0.0.1 --json \
			>"$work/$pair-listener" 2>"$work/$pair-listener.err"
	) &
	listeners[$pair]=$!
	says "$pair-listener" '"event":"ready".*}' || die "the listener of $pair did not become ready"
	port=$(ready_port "$pair-listener")
	(
		export MPIB_MODE=$mode
		on_node 2 "$NETPERF" --plugin "$PLUGIN" --connect "127.0.0.1:$port" --json --interval 0.1 \
			bw --seconds 200 --size 1M --window 4 --check --rest 0.001 "$@" >"$work/$pair" 2>"$work/$pair.err"
	) &
	another[$pair]=$!
	says "$pair" '"event":"interval"' || die "$pair does not send"
}

# tell SHARE TEXT: in the policy file of the senders' agent, until it says so
tell() {
	policy 2 "$1"
	kill -HUP "${agent2:?}"
	says agentd2.log "$2" || die "the share is not $1"
}

# idle NAME: one more pair, which has sent for a moment and stays connected
idle() {
	another "$1" 1 --seconds 0.3 --hold 200
	says "$1" '"event":"hold"' || die "$1 does not fall silent"
}

# end_another NAME: no byte was wrong
end_another() {
	kill -TERM "${another[$1]}"
	wait "${another[$1]}" "${listeners[$1]}"
	hold "$1" 'r["errors"] and all("stopped by signal" in e for e in r["errors"])'
	hold "$1-listener" 'r["errors"] and all("stopped" in e for e in r["errors"])'
}

end_well() {
	kill -TERM "$connector"
	finish
	hold connector 'r["errors"] and all("stopped by signal" in e for e in r["errors"])'
	hold listener 'r["errors"] and all("stopped" in e for e in r["errors"])'
}

case $name in
one-to-four) # and a step to two to three
	rails 20 80
	stream 1M 4
	finds 3.6 4.4
	rates 40 60
	finds 1.35 1.65
	end_well
	;;
four-to-one)
	rails 80 20
	stream 256k 8
	finds 0.22 0.28
	end_well
	;;
large-messages) # longer than one request tells in its immediate: rows that are cut
	rails 40 160
	stream 16M 2
	finds 3.6 4.4
	end_well
	;;
# Rates are low: four processes poll, and parts that wait for long leave them time to have a processor.
other-job) # that has SUP alone, as vanilla mode does inside an island
	rails 12 12
	stream 1M 4
	finds 0.9 1.1
	another other 0
	finds 0 0.6
	end_another other
	finds 0.9 1.1
	end_well
	;;
# Who waits sleeps (--rest) rather than polls: four processes that poll would keep each other from the processors.
two-processes) # of one flow: one share, and by it no less together than by the right one, told
	rails 5 20
	stream 1M 4 --rest 0.001
	another second
	[ "$(grep -c 'registered by .* slot 0,' "$work/agentd2.log")" = 2 ] || die "they aren't in one slot"
	finds 3.2 5
	finds 3.2 5 second
	tell 50% '-> 512 '
	tell 80% ' 512 (50.0%) -> 819 '
	sleep 3
	told=$(together connector second)
	[ "$told" -ge 15000000 ] || die "$told bytes a second of 25000000 by a share that was given"
	policy 2 auto
	rates 20 5 # the sum stays
	kill -HUP "$agent2"
	finds 0.2 0.31
	finds 0.2 0.31 second
	until_true $GROUND_SECONDS carry_at_least $((told * 9 / 10)) connector second ||
		die "$(together connector second) bytes a second, and $told by a share that was given"
	end_another second
	end_well
	;;
process-killed) # as it sends; it is stopped before, and others of the flow are idle
	rails 5 20
	stream 1M 4 --rest 0.001
	idle first
	another second
	finds 3.2 5
	finds 3.2 5 second
	kill -STOP "${connector:?}"
	rates 20 5
	finds 0.2 0.31 second
	kill -KILL "$connector"
	says agentd2.log 'as its process ended; 2 left' || die "the agent doesn't know of the end"
	rates 5 20
	finds 3.2 5 second
	idle last
	rates 20 5
	finds 0.2 0.31 second
	end_another second
	;;
*)
	die "no such case"
	;;
esac
