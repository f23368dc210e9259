# SPDX-License-Identifier: Apache-2.0
# grounds: lab
# nodes: 2
# limit: 240
# A node loses SUP under puts and signals, by an event and in silence: SOUT takes over, every byte is right behind
# its signal, and nothing fails.
# shellcheck shell=bash

# shellcheck source=tests/lab/lib/gin.sh
. "$LAB_ROOT/lib/gin.sh"

export LAB_TIMEOUT=120

# lose NAME TABLE COMMAND…: what takes SUP away from node 2, once all ranks have begun.
lose() {
	local k

	# four waits of 0.5 s for an acknowledgement
	gin_start "$1" "$2" outlasts 4 "$VANILLA MPIB_IB_TIMEOUT=17 MPIB_IB_RETRY_CNT=3"
	for ((k = 0; k < 120; k++)); do
		[ "$(cat "$CASE_DIR/$1"-?.out | grep -c begins)" -lt 4 ] || break
		sleep 0.5
	done
	sleep 2
	"${@:3}"
	gin_wait "$1"
	measured "$(grep -h 'SOUT takes over' "$CASE_DIR/$1"-?.err | head -n 1)"
}

lose event v11 nic_port 2 sup down
nic_port 2 sup up
lose silence rma15 nic_mute 2 sup on
nic_mute 2 sup off
