#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A trap of the driver's, on one node. usage: traps.sh CASE
# shellcheck source=tests/plugin/lib.sh
. "$(dirname "$0")/lib.sh"

# A child that exits gives nothing back that is its parent's; a leak check there would complain.
[ "$name" != fork-exit ] || export ASAN_OPTIONS=detect_leaks=0
# SOUT stands somewhere, SUP nowhere that is.
if [ "$name" = pci-path ]; then
	PCI_WANTED=$(realpath "$work")/pci0000:40/0000:41:00.0
	mkdir -p "$PCI_WANTED"
	sed "/^\[device sout/a pci = $PCI_WANTED" "$FABRIC_CONFIGS/two-nodes.ini" |
		sed '/^\[device sup/a pci = /nowhere' >"$work/fabric.ini"
	export PCI_WANTED MPIB_FABRIC=$work/fabric.ini
fi
# The fabric's watch over pages costs more the more of them there are: that isn't what is measured.
[ "$name" != two-thousand-connections ] || unset MPIB_FABRIC_PAGES
MPIB_FABRIC_NODE=1 "$DRIVER" "$name" 2> >(tee "$work/stderr" >&2) || exit
if [ "$name" = pages-mapped-anew ] && grep 'no userfaultfd' "$work/stderr"; then
	exit 77 # nothing was checked
fi
exit 0
