#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Shares that find themselves, from equal parts to the balance of shaped rails. usage: auto.sh CASE
# shellcheck source=tests/plugin/lib.sh
. "$(dirname "$0")/lib.sh"

export MPIB_MODE=1 MPIB_FABRIC=$work/fabric.ini

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
	"$FABRICCTL" rate "1/$1" "$(($2 << 20))" && "$FABRICCTL" rate "2/$1" "$(($2 << 20))"
}

# ratio_is LEAST MOST: the last second's bytes on SUP are so many times those on SOUT
ratio_is() {
	python3 - "$work/connector" "$1" "$2" <<-'END'
		import json, sys
		rows = [json.loads(line) for line in open(sys.argv[1]) if line.endswith("\n")]
		rows = [row for row in rows if row["event"] == "interval"][-11:]
		if len(rows) < 11:
		    sys.exit(1)
		sout, sup = (rows[-1]["rails"][k]["bytes"] - rows[0]["rails"][k]["bytes"] for k in (0, 1))
		sys.exit(not (sout and float(sys.argv[2]) <= sup / sout <= float(sys.argv[3])))
	END
}

# finds LEAST MOST
finds() {
	until_true 20 ratio_is "$1" "$2" ||
		die "the bytes of SUP are not $1 to $2 times those of SOUT: $(grep -h 'by itself' "$work/agentd2.log")"
}

# stream SIZE WINDOW: until end_well
stream() {
	start_agent 1 auto
	start_agent 2 auto
	start_listener
	start_connector --interval 0.1 bw --seconds 60 --size "$1" --window "$2" --check
}

# another NAME MODE: a second pair of processes, with files of that name; sets another to the sender's pid
another() {
	local port

	(
		export MPIB_MODE=$2
		on_node 1 "$NETPERF" --plugin "$PLUGIN" --listen 0 --bind 127.0.0.1 --json >"$work/$1-listener" 2>&1
	) &
	says "$1-listener" '"event":"ready".*}' || die "the second listener did not become ready"
	port=$(ready_port "$1-listener")
	(
		export MPIB_MODE=$2
		on_node 2 "$NETPERF" --plugin "$PLUGIN" --connect "127.0.0.1:$port" --json --interval 0.1 \
			bw --seconds 60 --size 1M --window 4 --check >"$work/$1" 2>&1
	) &
	another=$!
	says "$1" '"event":"interval"' || die "the second pair does not send"
}

end_well() {
	kill -TERM "$connector"
	finish
	hold connector 'all("stopped by signal" in e for e in r["errors"])'
	hold listener 'all("stopped" in e for e in r["errors"])'
}

case $name in
one-to-four) # and a step to two to three
	rails 20 80
	stream 1M 4
	finds 3.6 4.4
	rate sout 40
	rate sup 60
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
	kill -TERM "$another"
	wait "$another"
	finds 0.9 1.1
	end_well
	;;
*)
	die "no such case"
	;;
esac
