# SPDX-License-Identifier: Apache-2.0
# The lab's network: a bridge a rail and one for management, all in the lab's own namespace, so
# that nothing of it can outlive the lab or meet another lab's.
# shellcheck shell=bash

# Bridges: sout, mgmt, and three for SUP: sup joins all nodes, supA and supB one island each.
net_up() {
	local bridge

	ip link set lo up
	for bridge in sout sup supA supB mgmt; do
		ip link add "$bridge" type bridge forward_delay 0 mcast_snooping 0
		[ "$bridge" = mgmt ] || ip link set "$bridge" mtu 4400
		ip link set "$bridge" up
	done
	ip address add 10.8.255.254/16 dev mgmt
}

# net_node N: the three taps of node N.
net_node() {
	local n=$1

	net_tap "n${n}sout" sout 4400
	net_tap "n${n}sup" sup 4400
	net_tap "n${n}mgmt" mgmt 1500
}

net_tap() {
	local tap=$1 bridge=$2 mtu=$3

	ip tuntap add dev "$tap" mode tap
	# RDMA has no congestion control here: a queue shorter than what is in flight loses packets.
	ip link set "$tap" mtu "$mtu" txqueuelen 20000 master "$bridge" up
}

# net_sup BRIDGE NODE…: plugs the nodes' SUP NICs into that bridge.
net_sup() {
	local bridge=$1 n

	shift
	for n in "$@"; do
		ip link set "n${n}sup" master "$bridge"
	done
}
