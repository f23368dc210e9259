# SPDX-License-Identifier: Apache-2.0
# Nodes: virtual machines with three NICs (eth0 SOUT, eth1 SUP, eth2 management). Their state is
# files in $LAB_STATE, so that every process of the lab sees the same.
# shellcheck shell=bash

# node_start N: returns at once.
node_start() {
	local n=$1 image rail k=0
	local -a nics=()

	image=$(image_dir)
	net_node "$n"
	for rail in sout sup mgmt; do
		nics+=(-netdev "tap,id=k$k,ifname=n$n$rail,script=no,downscript=no"
			-device "virtio-net-pci,netdev=k$k,romfile=,mac=52:54:00:08:0$k:0$n")
		k=$((k + 1))
	done

	# One CPU, but room for two: else QEMU leaves memory barriers out, and a queue of virtio may stand still.
	TMPDIR=$LAB_STATE qemu-system-x86_64 -name "mpib-node$n" -nodefaults -no-reboot -display none \
		-machine q35 -accel tcg,tb-size=256 -cpu max,-erms,+invtsc -smp 1,maxcpus=2 -m "${MPIB_LAB_MEM:-768}" \
		-kernel "$image/vmlinuz" -initrd "$image/initrd.img" \
		-append "$(node_kernel_line "$n")" \
		-drive "file=$image/disk.img,if=virtio,format=raw,snapshot=on,cache=unsafe" \
		-drive "file=$LAB_STATE/payload.tar,if=virtio,format=raw,readonly=on" \
		-serial "file:$LAB_STATE/serial.$n" -device virtio-rng-pci "${nics[@]}" \
		</dev/null >"$LAB_STATE/qemu.$n" 2>&1 &
	echo $! >"$LAB_STATE/pid.$n"
}

# Debian's kernel clears all memory that it hands out and looks at each copy to user space: a fifth of what a
# node costs here. And it doesn't trust an emulated TSC, so that each look at the clock would go to an emulated HPET;
# QEMU's TSC is the host's.
node_kernel_line() {
	printf '%s ' root=/dev/vda rw rootfstype=ext4 console=ttyS0 quiet loglevel=4 mitigations=off tsc=reliable \
		net.ifnames=0 nokaslr audit=0 init_on_alloc=0 hardened_usercopy=off apparmor=0 fsck.mode=skip init=/usr/sbin/lab-init "lab.node=$1" \
		"systemd.hostname=node$1" "systemd.machine_id=0000000000000000000000000000000$1" \
		systemd.show_status=false
}

# node_list: the nodes that were started.
node_list() {
	local file

	for file in "$LAB_STATE"/pid.*; do
		[ -e "$file" ] && printf '%s\n' "${file##*.}"
	done
}

node_alive() {
	kill -0 "$(cat "$LAB_STATE/pid.$1")" 2>/dev/null
}

# node_ready N: waits for the boot's end and gives the node its rails.
node_ready() {
	local n=$1 state

	if ! guest "$n" -w "${MPIB_LAB_BOOT_S:-180}" -- true; then
		node_alive "$n" || say "node $n: $(cat "$LAB_STATE/qemu.$n")"
		return 1
	fi
	guest "$n" -- "/lab/rails 10.0.1.$n 10.9.1.$n" || return 1
	state=$(guest "$n" -t 180 -- systemctl is-system-running --wait) || true
	if [ "$state" != running ]; then
		say "node $n is $state: $(guest "$n" -- systemctl --failed --no-legend)"
		return 1
	fi
}

# nodes_ensure COUNT: boots what is missing of nodes 1..COUNT, all at once.
nodes_ensure() {
	local count=$1 n started=$SECONDS
	local -a fresh=() jobs=()

	for ((n = 1; n <= count; n++)); do
		[ -e "$LAB_STATE/pid.$n" ] && continue
		node_start "$n"
		fresh+=("$n")
	done
	[ ${#fresh[@]} = 0 ] && return
	for n in "${fresh[@]}"; do
		node_ready "$n" &
		jobs+=($!)
	done
	for n in "${jobs[@]}"; do
		wait "$n" || die "a node did not come up; see $LAB_STATE/serial.*"
	done
	say "nodes ${fresh[*]} ready after $((SECONDS - started)) s"
}
