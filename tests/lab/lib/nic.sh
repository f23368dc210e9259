# SPDX-License-Identifier: Apache-2.0
# The nodes' NICs in virtual machines: rates, and counters of netdevs and of rxe.
# shellcheck shell=bash

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

# nic_packets N RAIL: RDMA packets that node N sent on that rail so far. 0 where nothing was.
nic_packets() {
	get "$1" "/sys/class/infiniband/$2/ports/1/hw_counters/sent_pkts"
}

# nic_resent N: how many packets rxe of node N sent again or missed so far, on either rail. An
# emulated machine may answer too late; then a rail carries more than the payload.
nic_resent() {
	on "$1" 'cd /sys/class/infiniband && cat {sout,sup}/ports/1/hw_counters/{rcvd_seq_err,duplicate_request,completer_retry_err,out_of_seq_request,retry_exceeded_err}' 2>/dev/null |
		awk '{ sum += $1 } END { print sum + 0 }'
}

# nic_port N RAIL up|down: the port of node N on that rail (sout, sup).
nic_port() {
	local netdev=eth0

	[ "$2" = sout ] || netdev=eth1
	on "$1" ip link set "$netdev" "$3" || fail "node $1: ip link set $netdev $3"
}

# nic_mute N RAIL on|off: nothing that node N sends on that rail arrives, and no event tells it.
nic_mute() {
	local netdev=eth0 how=add

	[ "$2" = sout ] || netdev=eth1
	[ "$3" = on ] || how=del
	on "$1" tc qdisc "$how" dev "$netdev" root netem loss 100% || fail "node $1: tc qdisc $how $netdev"
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
