# SPDX-License-Identifier: Apache-2.0
# A running transfer as its interval lines show it. Phases are counted in messages, not in
# seconds, so that a slow machine changes how long a case takes and not what it finds.
# shellcheck shell=bash

# live_start NAME FROM TO SETTINGS [OPTIONS]: a transfer that lasts until live_end, or 100 seconds. It leaves
# processors to what is done beside it.
live_start() {
	local file

	file=$(live_file "$1" "$2")
	on "$2" rm -f "$file"
	perf_start "$1" "$2" "$3" "$4" bw --seconds 100 --rest 0.002 --end-file "$file" "${@:5}"
}

# live_end NAME FROM: lets it end, which it must do well.
live_end() {
	on "$2" touch "$(live_file "$1" "$2")"
	perf_wait "$1"
}

live_file() {
	echo "$(agent_dir "$2").$1-end"
}

# live_now NAME: "MESSAGES SOUT-BYTES SUP-BYTES" of the latest interval line.
live_now() {
	jq -rn '[inputs | select(.event == "interval")] | last // {messages: 0, rails: [{bytes: 0}, {bytes: 0}]} |
		"\(.messages) \(.rails[0].bytes) \(.rails[1].bytes)"' <(grep '}$' "$CASE_DIR/$1.out")
}

# live_until NAME MESSAGES: until so many messages are through, half a minute at most.
live_until() {
	local k now

	for ((k = 0; k < 120; k++)); do
		read -r now _ <<<"$(live_now "$1")"
		[ "$now" -ge "$2" ] && return
		sleep 0.25
	done
	perf_tell "$1"
	fail "$1: $now messages after 30 s, not $2"
}

# live_part NAME COUNT: SUP's part of the bytes of at least COUNT messages from now on. Those that
# were posted before are let through first.
live_part() {
	local -a a b
	local now

	read -r now _ <<<"$(live_now "$1")"
	live_until "$1" $((now + 17))
	read -ra a <<<"$(live_now "$1")"
	live_until "$1" $((a[0] + $2))
	read -ra b <<<"$(live_now "$1")"
	jq -n "(${b[2]} - ${a[2]}) / (${b[1]} - ${a[1]} + ${b[2]} - ${a[2]}) * 1000 | round / 1000"
}

# live_near WHAT PART WANT
live_near() {
	jq -en "($2 - $3 | fabs) <= 0.03" >/dev/null || fail "$1: SUP's part is $2, not $3"
}
