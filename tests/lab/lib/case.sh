# SPDX-License-Identifier: Apache-2.0
# What a case may use beside lib/guest.sh: claims, measurements, rails, counters of the NICs.
# shellcheck shell=bash

# fail TEXT: ends the case.
fail() {
	printf 'FAIL: %s\n' "$*" >&2
	exit 1
}

# skip TEXT: the case can't be run here, and why.
skip() {
	printf '%s\n' "$*" >"$CASE_DIR/skip"
	exit 77
}

# measured TEXT: a line for the report of a case that passes, too.
measured() {
	printf '%s\n' "$*" | tee -a "$CASE_DIR/measured"
}

# expect_eq WHAT GOT WANT
expect_eq() {
	[ "$2" = "$3" ] || fail "$1: got '$2', not '$3'"
}

# expect_le WHAT GOT LIMIT (integers or decimals)
expect_le() {
	jq -en "$2 <= $3" >/dev/null || fail "$1: $2 is over $3"
}

# expect_ge WHAT GOT LIMIT
expect_ge() {
	jq -en "$2 >= $3" >/dev/null || fail "$1: $2 is under $3"
}

# expect_match WHAT TEXT REGEX
expect_match() {
	grep -Eq -- "$3" <<<"$2" || fail "$1: no line matches '$3' in: $2"
}

# case_nodes: the numbers of this case's nodes.
case_nodes() {
	seq "$CASE_NODES"
}

# island N: the island of node N in this case; sout N, sup N, oob N: its addresses.
island() {
	local -a islands

	read -ra islands <<<"$CASE_ISLANDS"
	printf '%s\n' "${islands[$(($1 - 1))]:-1}"
}
sout() { printf '10.0.%s.%s\n' "$(island "$1")" "$1"; }
sup() { printf '10.9.%s.%s\n' "$(island "$1")" "$1"; }
oob() { printf '10.8.0.%s\n' "$1"; }

# nic_bytes N: "sent-SOUT received-SOUT sent-SUP received-SUP" of the netdevs, headers included.
nic_bytes() {
	on "$1" 'cd /sys/class/net && echo $(cat eth0/statistics/{tx,rx}_bytes eth1/statistics/{tx,rx}_bytes)'
}

# nic_diff BEFORE AFTER: the same four numbers as differences.
nic_diff() {
	local -a a b

	read -ra a <<<"$1"
	read -ra b <<<"$2"
	echo $((b[0] - a[0])) $((b[1] - a[1])) $((b[2] - a[2])) $((b[3] - a[3]))
}

# nic_resent N: how many packets rxe of node N sent again or missed so far, on either rail. An
# emulated machine may answer too late; then a rail carries more than the payload.
nic_resent() {
	on "$1" 'cd /sys/class/infiniband && cat {sout,sup}/ports/1/hw_counters/{rcvd_seq_err,duplicate_request,completer_retry_err,out_of_seq_request,retry_exceeded_err}' 2>/dev/null |
		awk '{ sum += $1 } END { print sum + 0 }'
}

# limit_rails N SOUT-MBIT SUP-MBIT: what node N sends is limited to these rates, so that the wire
# and not the emulated CPU is what a figure shows.
limit_rails() {
	on "$1" "tc qdisc replace dev eth0 root netem rate ${2}mbit limit 20000 &&
		tc qdisc replace dev eth1 root netem rate ${3}mbit limit 20000"
}

unlimit_rails() {
	on "$1" 'tc qdisc del dev eth0 root; tc qdisc del dev eth1 root; true' 2>/dev/null
}
