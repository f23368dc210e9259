# SPDX-License-Identifier: Apache-2.0
# For the case scripts of this folder: a pair on the software fabric, and an agent for each node
# where a case wants one. The environment comes from meson.build: NETPERF, PLUGIN, FABRIC_LIB,
# FABRICCTL, AGENTD, FAKEAGENT, DRIVER.
# shellcheck shell=bash
# shellcheck source=tests/ground/pair.sh
. "$(dirname "${BASH_SOURCE[0]}")/../ground/pair.sh"

ground_open fabric "$1"

both_connected() {
	grep -q '"event":"connected"' "$work/connector" &&
		grep -q '"event":"connected"' "$work/listener"
}

# await_data: until both sides are connected, and a second more
await_data() {
	until_true $GROUND_SECONDS both_connected || die "no connection"
	sleep 1
}

# hold SIDE EXPRESSION: a Python expression over `r`, the result of that side; `c`, the counters of its
# connections; and split(size, share)
hold() {
	python3 - "$work/$1" "$2" <<-'END' || die "not so for the $1: $2"
		import json, sys
		rows = [json.loads(line) for line in open(sys.argv[1])]
		r = [row for row in rows if row["event"] == "result"][0]
		c = r["counters"]
		def split(size, share):
		    return {0: 0, 1024: size}.get(share, (size * share >> 10) & ~127)
		if not eval(sys.argv[2]):
		    print(json.dumps(r))
		    sys.exit(1)
	END
}

# warnings SIDE TEXT: how many of its lines on standard error have the text
warnings() {
	# what the peer's driver passes on isn't a line of this side's plugin
	grep -v ' ERROR the peer: ' "$work/$1.err" | grep -c -e "$2"
}

# warned SIDE COUNT TEXT
warned() {
	local have
	have=$(warnings "$1" "$3")
	[ "$have" = "$2" ] || die "the $1 says '$3' $have times, not $2"
}

# start_agent NODE POLICY: shares of the node's own agent; sets agent1 or agent2 to its pid
start_agent() {
	agent_dir=$work/agent
	mkdir -p "$work/agent$1"
	chmod 755 "$work/agent$1"
	policy "$1" "$2"
	launch_agent "$1"
}

# listens PATH: the name is there before anybody listens at it. 00010000 is __SO_ACCEPTCON.
listens() {
	grep -q " 00010000 .* $1\$" /proc/net/unix
}

launch_agent() {
	env -u NOTIFY_SOCKET "$AGENTD" --dir "$work/agent$1" --config "$work/agent$1.ini" \
		>>"$work/agentd$1.log" 2>&1 &
	eval "agent$1=$!"
	until_true $GROUND_SECONDS listens "$work/agent$1/agent.sock" ||
		die "the agent of node $1 did not start"
}

# policy NODE SHARE: what every flow inside the island gets
policy() {
	printf '[policy]\nintra = %s\n' "$2" >"$work/agent$1.ini"
}

now_ms() {
	date +%s%3N
}
