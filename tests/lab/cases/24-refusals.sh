# SPDX-License-Identifier: Apache-2.0
# nodes: 2
# Real verbs say no, and the plugin says why in one line: a name that doesn't exist, a device file
# that this user may not open, too little memory to lock, no IPv4 address. With the address
# back, data flows.
# shellcheck shell=bash

# refused NAME SETTINGS [PREFIX]: node 1 connects as user nobody and must fail; its one warning is
# left in $line.
refused() {
	local name=$1 settings=$2 rc=0

	shift 2
	perf_listen "$name-peer" 2 "$VANILLA"
	on 1 "$PERF_RUN $VANILLA $settings $* setpriv --reuid 65534 --clear-groups mpib-netperf --plugin $PERF_PLUGIN" \
		"--connect $(oob 2):$(perf_port 2) --json --log warn bw --messages 1" \
		>"$CASE_DIR/$name" 2>"$CASE_DIR/$name.err" </dev/null || rc=$?
	bg_stop "$name-peer"
	line=$(grep 'WARN NET/MPIB' "$CASE_DIR/$name.err" | sed 's/.*NET.MPIB : //' || true)
	measured "$name: exit $rc: $line"
	expect_eq "$name: exit status" "$rc" 1
	expect_eq "$name: warnings" "$(grep -c . <<<"$line")" 1
}

# C03
refused absent MPIB_HCA_SUP=supp
expect_match "absent" "$line" '^MPIB_HCA_SUP=supp: no such RDMA device; there are: .*sup'
# shellcheck disable=SC2016 # the node expands it
file=$(on 1 'for d in /sys/class/infiniband_verbs/uverbs*; do [ "$(cat $d/ibdev)" = sup ] && echo /dev/infiniband/${d##*/}; done')
on 1 "chmod 000 $file" || fail "chmod $file"
refused forbidden ''
on 1 "chmod 666 $file"
expect_match "forbidden" "$line" "^MPIB_HCA_SUP=sup can't be opened: Permission denied"

# X7
refused memlock '' prlimit --memlock=65536:65536
expect_match "memlock" "$line" 'this process may lock 64 KiB: raise it'

# C14
gid=$(on 1 'cat /sys/class/infiniband/sup/ports/1/gids/1')
on 1 "ip addr del $(sup 1)/16 dev eth1" || fail "ip addr del"
refused no-ipv4 ''
on 1 "ip addr add $(sup 1)/16 dev eth1" || fail "ip addr add"
expect_match "no IPv4" "$line" '^SUP rail sup:1: GID 1 .*is empty or carries no IPv4'
expect_eq "the GID is back" "$(on 1 'cat /sys/class/infiniband/sup/ports/1/gids/1')" "$gid"
perf again 1 2 "$VANILLA" bw --messages 4 --size 64K --warmup 0 --check
expect_eq "and data flows" "$(perf_sent again bytes)" "0 262144"
