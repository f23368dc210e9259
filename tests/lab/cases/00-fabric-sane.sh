# SPDX-License-Identifier: Apache-2.0
# nodes: 2
# The ground itself, with programs that know nothing of MPIB: each rail of two nodes carries
# RDMA, GID index 1 is the RoCE v2 IPv4 one, and bytes show up on the rail that was used.
# shellcheck shell=bash disable=SC2154

gid_is_ipv4() {
	local n=$1 rail=$2 address=$3 want

	want=$(printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' ${address//./ })
	expect_eq "node $n $rail GID 1" "$(get "$n" "/sys/class/infiniband/$rail/ports/1/gids/1")" "$want"
	expect_eq "node $n $rail GID 1 type" \
		"$(get "$n" "/sys/class/infiniband/$rail/ports/1/gid_attrs/types/1")" "RoCE v2"
}

for n in 1 2; do
	gid_is_ipv4 "$n" sout "$(sout "$n")"
	gid_is_ipv4 "$n" sup "$(sup "$n")"
done

for rail in sout sup; do
	before=$(nic_bytes 1)
	bg 2 "pingpong-$rail" "ibv_rc_pingpong -d $rail -g 1 -s 65536 -n 50 -c"
	out=$(on 1 "for k in 1 2 3 4 5 6 7 8 9; do
		ibv_rc_pingpong -d $rail -g 1 -s 65536 -n 50 -c $(oob 2) && break; sleep 0.3; done")
	bg_wait "pingpong-$rail" || fail "pingpong on $rail: $(cat "$CASE_DIR/pingpong-$rail.err")"
	read -r sout_tx _ sup_tx _ <<<"$(nic_diff "$before" "$(nic_bytes 1)")"
	measured "pingpong on $rail: $(grep -o '[0-9.]* Mbit/sec' <<<"$out"), sent SOUT $sout_tx SUP $sup_tx bytes"
	if [ "$rail" = sout ]; then
		expect_ge "bytes on SOUT" "$sout_tx" $((65536 * 50))
		expect_le "bytes on SUP" "$sup_tx" 4096
	else
		expect_ge "bytes on SUP" "$sup_tx" $((65536 * 50))
		expect_le "bytes on SOUT" "$sout_tx" 4096
	fi
done

for rail in sout sup; do
	before=$(nic_bytes 1)
	bg 2 "write-$rail" "ib_write_bw -d $rail -x 1 -m 4096 -s 65536 -n 200 -F"
	out=$(on 1 "for k in 1 2 3 4 5 6 7 8 9; do
		ib_write_bw -d $rail -x 1 -m 4096 -s 65536 -n 200 -F $(oob 2) && break; sleep 0.3; done")
	bg_wait "write-$rail" || fail "ib_write_bw on $rail: $(cat "$CASE_DIR/write-$rail.err")"
	read -r sout_tx _ sup_tx _ <<<"$(nic_diff "$before" "$(nic_bytes 1)")"
	# Its own MiB/s come from counting cycles, which an emulated clock may make 0.
	measured "ib_write_bw on $rail: sent SOUT $sout_tx SUP $sup_tx bytes; it says $(awk '$1 == 65536 { print $4 }' <<<"$out") MiB/s"
	expect_ge "bytes on $rail" "$([ "$rail" = sout ] && echo "$sout_tx" || echo "$sup_tx")" $((65536 * 200))
done
