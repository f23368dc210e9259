#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Device-initiated communication over the software fabric. usage: gin.sh CASE RANKS [NODES]
# With SHARE=N it is in advanced mode, with an agent on each node that gives each flow that share.
# With WRONG=TEXT the library makes a mistake: the case must fail, and somebody say TEXT.
set -u
work=$(mktemp -d)
agents=()
cleanup() {
	for pid in "${agents[@]}"; do
		kill "$pid" 2>/dev/null
		wait "$pid" 2>/dev/null
	done
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM
mkdir "$work/fabric"
export LD_LIBRARY_PATH=$FABRIC_LIB MPIB_FABRIC_DIR=$work/fabric MPIB_FABRIC=$FABRIC_INI
export MPIB_HCA_SOUT=sout MPIB_HCA_SUP=sup MPIB_OOB_IF=lo MPIB_ISLAND_PREFIX_LEN=24
export MPIB_MODE=0 MPIB_GPUDIRECT=${MPIB_GPUDIRECT:-1}

if [ -n "${SHARE:-}" ]; then
	export MPIB_MODE=1 GIN_AGENTS=$work/agent
	printf '[policy]\nintra = %s\n' "$SHARE" >"$work/agent.ini"
	for node in $(seq "${3:-2}"); do
		mkdir "$work/agent$node" && chmod 755 "$work/agent$node"
		env -u NOTIFY_SOCKET "$AGENTD" --dir "$work/agent$node" --config "$work/agent.ini" \
			>>"$work/agentd" 2>&1 &
		agents+=($!)
	done
	for node in $(seq "${3:-2}"); do
		for _ in $(seq 600); do
			grep -q " 00010000 .* $work/agent$node/agent.sock\$" /proc/net/unix && break
			sleep 0.05
		done
	done
fi

# A mistake shows however late a rank gets a processor: what isn't pushed stays out of sight until it looks, and
# one request isn't over before the next is posted.
if [ -n "${WRONG:-}" ]; then
	sed 's/^unseen_us = .*/unseen_us = 10000000/; /^\[device /a latency_us = 1000' "$FABRIC_INI" >"$work/fabric.ini"
	export MPIB_FABRIC=$work/fabric.ini
fi
# Whether a mistake shows also depends on who gets a processor when.
tries=1
[ -z "${WRONG:-}" ] || tries=5
for _ in $(seq $tries); do
	timeout 120 "$GIN_DRIVER" "$@" 2>"$work/err"
	rc=$?
	[ $rc = 0 ] || break
	[ -z "${WRONG:-}" ] || { rm -r "$work/fabric" && mkdir "$work/fabric"; }
done
mistakes=$("$FABRICCTL" show | grep -c mistakes)
if [ -n "${WRONG:-}" ]; then
	[ $rc != 0 ] || { echo "$1: a library that makes the mistake passes"; exit 1; }
	grep -q -e "$WRONG" "$work/err" || { cat "$work/err"; echo "$1: nobody says: $WRONG"; exit 1; }
	exit 0
fi
cat "$work/err" >&2
# sent RAIL: bytes that all nodes have sent by it
sent() {
	"$FABRICCTL" show | awk -v rail="$1" '$1 ~ "/" rail "$" { sum += $9 } END { print sum + 0 }'
}
case $1 in
alone) [ "$(sent sup)" = 0 ] || { echo "$1: SUP has carried bytes"; exit 1; } ;;
together) [ "$(sent sup)" -gt "$(($(sent sout) * 9))" ] || { echo "$1: SOUT has carried too much"; exit 1; } ;;
esac
case ${SHARE:-} in
'') ;;
0) [ "$(sent sup)" = 0 ] || [[ $1 == sout-* ]] || { echo "$1: SUP has carried bytes"; exit 1; } ;;
1024) [ "$(sent sup)" -gt "$(sent sout)" ] || { echo "$1: SOUT has carried too much"; exit 1; } ;;
*) [ "$(sent sup)" -gt 100000 ] && [ "$(sent sout)" -gt 100000 ] || { echo "$1: one rail has carried all"; exit 1; } ;;
esac
[ "$mistakes" = 0 ] || { echo "$1: the fabric saw a mistake"; exit 1; }
exit $rc
