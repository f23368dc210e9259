#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The agent in every state while data flows. usage: agents.sh CASE
# shellcheck source=tests/plugin/lib.sh
. "$(dirname "$0")/lib.sh"

export MPIB_MODE=1

# share_is SHARE: the connector's latest 8 MiB or more show it (within two messages)
share_is() {
	python3 - "$work/connector" "$1" <<-'END'
		import json, sys
		rows = [json.loads(line) for line in open(sys.argv[1]) if line.endswith("\n")]
		rows = [row for row in rows if row["event"] == "interval"]
		for row in reversed(rows[:-1]):
		    last = [b["bytes"] - a["bytes"] for a, b in zip(row["rails"], rows[-1]["rails"])]
		    total = sum(last)
		    if total >= 8 << 20:
		        sys.exit(abs(last[1] / total * 1024 - int(sys.argv[2])) >= 16)
		sys.exit(1)
	END
}

# Verified messages until end_well; the case is over when it has seen enough.
stream() {
	start_listener
	start_connector --interval 0.2 bw --seconds 100 --rest 0.001 --size 64k --window 4 --check
}

# No error but the end itself
end_well() {
	kill -TERM "$connector"
	finish
	hold connector 'all("stopped by signal" in e for e in r["errors"])'
	hold listener 'all("stopped" in e for e in r["errors"])'
	hold connector 'c[0]["messages"] > 100'
}

case $name in
live-change)
	start_agent 1 25%
	start_agent 2 25%
	stream
	until_true 50 share_is 256 || die "the first share is not followed"
	policy 2 75%
	kill -HUP "$agent2"
	until_true 50 share_is 768 || die "the new share is not followed"
	printf '[policy]\nintra = lots\n' >"$work/agent2.ini"
	kill -HUP "$agent2"
	sleep 1
	share_is 768 || die "a broken policy is not refused"
	end_well
	;;
killed-and-restarted) # the last share holds, later ones are followed
	export MPIB_AGENT_STALE_SEC=120
	start_agent 1 25%
	start_agent 2 25%
	stream
	until_true 50 share_is 256 || die "the first share is not followed"
	kill -KILL "$agent2"
	wait "$agent2"
	sleep 1.5
	share_is 256 || die "the last share does not hold"
	policy 2 768
	launch_agent 2
	until_true 50 share_is 768 || die "the agent that came back is not followed"
	end_well
	;;
stopped-and-continued) # X2: the vanilla policy after the limit, one line each way
	# an agent that only has to wait for the processor is not silent
	export MPIB_AGENT_STALE_SEC=6
	start_agent 1 256
	start_agent 2 256
	stream
	until_true 50 share_is 256 || die "the first share is not followed"
	kill -STOP "$agent2"
	until_true 50 share_is 1024 || die "the vanilla policy does not take over"
	kill -CONT "$agent2"
	until_true 50 share_is 256 || die "the hints are not followed again"
	end_well
	warned connector 1 'agent silent for 6 s'
	warned connector 1 'agent is back'
	;;
appears-later) # optional at first
	export MPIB_AGENT_OPTIONAL=1
	start_agent 1 256
	mkdir "$work/agent2"
	chmod 755 "$work/agent2"
	policy 2 256
	stream
	until_true 50 share_is 1024 || die "not the vanilla policy at first"
	launch_agent 2
	until_true 50 share_is 256 || die "the agent is not picked up"
	end_well
	;;
starts-with-the-job) # only the socket is there: the first connection starts the agent
	command -v systemd-socket-activate >/dev/null || {
		echo "systemd-socket-activate is missing"
		exit 77
	}
	start_agent 1 256
	mkdir "$work/agent2"
	chmod 755 "$work/agent2"
	policy 2 256
	(umask 0111 && exec systemd-socket-activate -l "$work/agent2/agent.sock" \
		"$AGENTD" --dir "$work/agent2" --config "$work/agent2.ini") >>"$work/agentd2.log" 2>&1 &
	until_true 60 listens "$work/agent2/agent.sock" || die "nobody listens for the agent"
	[ ! -e "$work/agent2/hints" ] || die "the agent is there before the job"
	stream
	until_true 50 share_is 256 || die "the agent that was started is not followed"
	end_well
	;;
starts-too-late) # the socket is there, and what it starts never serves
	mkdir "$work/agent2"
	chmod 755 "$work/agent2"
	"$FAKEAGENT" "$work/agent2" silent >"$work/fake.log" 2>&1 &
	until_true 60 test -s "$work/fake.log" || die "no fake agent"
	rm "$work/agent2/hints"
	start_agent 1 256
	start_listener
	started=$(now_ms)
	run_pair verify --sizes 4096
	[ $(($(now_ms) - started)) -lt 15000 ] || die "the initialisation was not bounded"
	want 1 1
	warned connector 1 'none serves .* (Connection timed out)'
	;;
registers-and-leaves) # the agent hears of every connection, and of its end
	start_agent 1 512
	start_agent 2 512
	start_listener
	run_pair verify --sizes 4096 --comms 3 --hold 1
	want 0 0
	[ "$(grep -c 'register' "$work/agentd2.log")" -ge 1 ] || die "the agent's log shows nothing"
	;;
fake-*) # C21: an agent that misbehaves. bytes is slow but right; the others are errors
	kind=${name#fake-}
	start_agent 1 512
	mkdir -p "$work/agent2"
	"$FAKEAGENT" "$work/agent2" "$kind" >"$work/fake.log" 2>&1 &
	until_true 60 test -s "$work/fake.log" || die "no fake agent"
	start_listener
	start_connector verify --sizes 4096 --comms 1 --no-both
	wait "$connector"
	connector_rc=$?
	kill -TERM "$listener" 2>/dev/null
	wait "$listener"
	if [ "$kind" = bytes ]; then
		[ $connector_rc = 0 ] || die "an answer byte by byte is not understood"
		exit 0
	fi
	[ $connector_rc = 1 ] || die "the connecting side exits with $connector_rc, not 1"
	grep -q 'agent' "$work/connector.err" || die "no line names the agent"
	sed -n 's/.*took \([0-9]*\) ms.*/\1/p' "$work/fake.log" >"$work/took"
	python3 - "$work/connector" <<-'END' || die "connect was not bounded"
		import json, sys
		rows = [json.loads(line) for line in open(sys.argv[1])]
		r = [row for row in rows if row["event"] == "result"]
		sys.exit(bool(r) and r[0]["connect_max_ms"] > 2500)
	END
	;;
*)
	die "no such case"
	;;
esac
