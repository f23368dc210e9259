# SPDX-License-Identifier: Apache-2.0
# Live bars by rail. A terminal gets them in place, anything else gets a line an interval. No program
# is called while drawing: it has to keep up.
# shellcheck shell=bash

BARS_WIDTH=50 # of both rails when they are full
bars_lines=0  # drawn, to be drawn over

# bars_begin SOUT-RATE SUP-RATE: in MB/s.
bars_begin() {
	bars_sout=$1
	bars_sup=$2
	bars_top=$(($1 + $2))
	bars_live=
	[ ! -t 1 ] || [ "${TERM:-dumb}" = dumb ] || bars_live=yes
	echo
	[ -n "$bars_live" ] ||
		printf '%6s  %5s  %6s  %6s  %6s  MB/s; o: SOUT, U: SUP\n' time share SOUT SUP both
}

# bars_note TEXT: a line that stays.
bars_note() {
	[ "$bars_lines" = 0 ] || printf '\n'
	bars_lines=0
	printf '        %s\n' "$1"
}

# bars_of LETTER TENTHS: that many tenths of MB/s as a bar, in ret_bar.
bars_of() {
	local long

	printf -v long '%*s' $((($2 * BARS_WIDTH / bars_top + 5) / 10)) ''
	ret_bar=${long// /$1}
}

# bars_rail NAME LETTER TENTHS RATE
bars_rail() {
	local ret_bar

	bars_of "$2" "$3"
	printf '  %-5s %-*s %5d.%d of %3d MB/s\e[K\n' "$1" $((BARS_WIDTH + 1)) "$ret_bar" \
		$(($3 / 10)) $(($3 % 10)) "$4"
}

# bars_draw LINE SHARE: one interval, as mpib-netperf's JSON line has it.
bars_draw() {
	local number='([0-9]+)\.([0-9])[0-9]*' t sout sup ret_bar

	[[ $1 =~ \"event\":\"interval\",\"t\":$number ]] || return 0
	t=${BASH_REMATCH[1]}.${BASH_REMATCH[2]}
	[[ $1 =~ \"rails\":\[\{[^\}]*\"mbps\":$number\},\{[^\}]*\"mbps\":$number\} ]] || return 0
	sout=$((10#${BASH_REMATCH[1]}${BASH_REMATCH[2]}))
	sup=$((10#${BASH_REMATCH[3]}${BASH_REMATCH[4]}))

	if [ -z "$bars_live" ]; then
		bars_of o "$sout"
		printf '%6s  %5s  %4d.%d  %4d.%d  %4d.%d  %s' "$t" "$2" $((sout / 10)) $((sout % 10)) \
			$((sup / 10)) $((sup % 10)) $(((sout + sup) / 10)) $(((sout + sup) % 10)) "$ret_bar"
		bars_of U "$sup"
		printf '%s\n' "$ret_bar"
		return
	fi
	[ "$bars_lines" = 0 ] || printf '\e[%dA' "$bars_lines"
	bars_rail SOUT o "$sout" "$bars_sout"
	bars_rail SUP U "$sup" "$bars_sup"
	bars_rail both = $((sout + sup)) $((bars_sout + bars_sup))
	bars_lines=3
}
