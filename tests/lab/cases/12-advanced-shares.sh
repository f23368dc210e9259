# SPDX-License-Identifier: Apache-2.0
# grounds: lab fabric
# nodes: 2
# limit: 600
# Advanced mode: the share that the policy file gives a flow is what its messages do, to the byte
# by the plugin's counters and within the protocol's overhead by the NICs'.
# shellcheck shell=bash

# sup_bytes SIZE SHARE LEAST: what the contract says, and mpib(7) of messages below MPIB_SPLIT_MIN.
sup_bytes() {
	if [ "$1" -lt "$3" ]; then
		echo $(($2 >= 512 ? $1 : 0))
	elif [ "$2" -ge 1024 ]; then
		echo "$1"
	else
		echo $((($1 * $2 >> 10) / 128 * 128))
	fi
}

# near WHAT NIC-BYTES PAYLOAD RESENT: headers and control add a few per cent. Where packets were
# resent, a rail carries more; one without payload has nothing to resend.
near() {
	expect_ge "$1" "$2" "$3"
	[ "$3" != 0 ] && [ "$4" != 0 ] || expect_le "$1" "$2" "$(($3 * 104 / 100 + 16384))"
}

# share_moves SHARE SIZE COUNT [MPIB_SPLIT_MIN]
share_moves() {
	local share=$1 size=$2 count=$3 least=${4:-32768} name=share-$1-$2 sup sout nics sout_tx sup_tx rail resent

	agent_policy 1 "[flow $(sout 1) $(sout 2)]" "share = $share"
	agent_reload 1
	resent=$(nic_resent 2)
	nics=$(nic_bytes 1)
	perf "$name" 1 2 "$ADVANCED${4:+ MPIB_SPLIT_MIN=$4}" bw --messages "$count" --size "$size" --warmup 0 --check
	read -r sout_tx _ sup_tx _ <<<"$(nic_diff "$nics" "$(nic_bytes 1)")"
	resent=$(($(nic_resent 2) - resent))

	sup=$(($(sup_bytes "$size" "$share" "$least") * count))
	sout=$((size * count - sup))
	measured "share $share, $count x $size: SOUT SUP sent $(perf_sent "$name" bytes), received $(perf_received "$name" bytes); NICs $sout_tx $sup_tx, resent $resent"
	expect_eq "bytes sent" "$(perf_sent "$name" bytes)" "$sout $sup"
	expect_eq "bytes received" "$(perf_received "$name" bytes)" "$sout $sup"
	expect_match "CTS" "$(perf_received "$name" cts)" '^[1-9][0-9]* 0$'
	near "SOUT's NIC" "$sout_tx" "$sout" "$resent"
	near "SUP's NIC" "$sup_tx" "$sup" "$resent"
	rail=$(perf_sent "$name" requests)
	[ "$sout" != 0 ] || expect_eq "requests on SOUT" "${rail% *}" 0
	[ "$sup" != 0 ] || expect_eq "requests on SUP" "${rail#* }" 0
}

agent_start 1 2
for share in 0 256 512 768 1024; do
	share_moves $share $((1 << 18)) 8
done
# An odd size: SUP's part is cut to whole 128 bytes, except where one rail takes all.
share_moves 512 250003 4
share_moves 1024 250003 4
# Short messages go whole, on the rail with the larger part; the setting says what is short.
share_moves 256 32767 8
share_moves 512 32767 8
share_moves 768 32767 8
share_moves 256 32768 8
share_moves 256 99999 4 100000
share_moves 256 100000 4 100000
