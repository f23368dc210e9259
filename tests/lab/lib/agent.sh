# SPDX-License-Identifier: Apache-2.0
# The agent in the nodes, as an operator handles it.
# shellcheck shell=bash

INI=/etc/mpib/agent.ini

# agent_policy N [LINE…]: writes the policy file of node N; without lines, an empty one.
agent_policy() {
	local n=$1

	shift
	printf '%s\n' "$@" | put "$n" "$INI"
}

# agent_start N…: systemctl start in these nodes, at once.
agent_start() {
	local n
	local -a jobs=()

	for n in "$@"; do
		on "$n" systemctl start mpib-agentd &
		jobs+=($!)
	done
	for n in "${jobs[@]}"; do
		wait "$n" || fail "systemctl start mpib-agentd"
	done
}

# agent_stop N: must succeed. What was running with it goes on.
agent_stop() {
	on "$1" systemctl stop mpib-agentd || fail "node $1: systemctl stop mpib-agentd"
}

# agent_dir N: where the agent of node N has its socket and its hints.
agent_dir() {
	echo /tmp/mpib
}

# agent_reload N: must succeed.
agent_reload() {
	on "$1" systemctl reload mpib-agentd || fail "node $1: systemctl reload mpib-agentd"
}

# agent_log N [MATCH…]: the agent's journal, one JSON object a line.
agent_log() {
	local n=$1

	shift
	on "$n" "journalctl -b -u mpib-agentd -o json --no-pager $*"
}

# agent_cursor N: where the journal stands now; agent_since N CURSOR: messages since then.
agent_cursor() {
	on "$1" 'journalctl -b -n 0 --show-cursor -q --no-pager' | sed -n 's/^-- cursor: //p'
}

agent_since() {
	on "$1" "journalctl -b -u mpib-agentd -o cat --no-pager --after-cursor='$2'"
}

# flow A B: the name of the flow from node A to node B.
flow() {
	printf '%s-%s\n' "$(sout "$1")" "$(sout "$2")"
}
