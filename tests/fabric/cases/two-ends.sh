#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs a verbs program that was not written here as server on node 1 and client on node 2, and checks
# what both say. Usage: two-ends.sh CHECK PROGRAM ARGUMENTS...
#   pingpong   both exit 0 and the client counts its iterations
#   pingpong-lid  the same, by LID and not by GID
#   perftest   both exit 0 and every size has a bandwidth or latency above 0
#   conform    both exit 0 (the program judges itself)
#   refuse     both exit non-zero, by themselves
# Environment: FABRIC_LIB (folder of the library), FABRIC_PRELOAD (a sanitizer's runtime),
# FABRIC_DEVICE (default sout), FABRIC_INI (default: the built-in fabric).
# shellcheck source=tests/ground/pair.sh
. "$(dirname "$0")/../../ground/pair.sh"

check=$1
program=$2
shift 2

path=$(command -v "$program") || {
	echo "skipped: $program is not installed"
	exit 77
}
ground_open fabric "$program"
[ -z "${FABRIC_INI:-}" ] || export MPIB_FABRIC="$FABRIC_INI"
[ -z "${FABRIC_PRELOAD:-}" ] || export LD_PRELOAD="$FABRIC_PRELOAD"

# Our pid is ours alone, and the range lies below the ephemeral ports.
port=$((10000 + $$ % 20000))
case $check in
pingpong | refuse) set -- -d "${FABRIC_DEVICE:-sout}" -g 3 -p $port "$@" ;;
pingpong-lid)
	set -- -d "${FABRIC_DEVICE:-sout}" -p $port "$@"
	check=pingpong
	;;
perftest) set -- -d "${FABRIC_DEVICE:-sout}" -x 3 -F -p $port "$@" ;;
conform) set -- -d "${FABRIC_DEVICE:-sout}" -g 3 -p $port "$@" ;;
esac

# True once somebody listens on the port, or can't any more.
listening_or_over() {
	LD_PRELOAD='' awk -v port="$(printf '%04X' "$port")" \
		'{ split($2, at, ":"); if ($4 == "0A" && at[2] == port) found = 1 }
		END { exit !found }' /proc/net/tcp /proc/net/tcp6 2>/dev/null || listener_ended
}

# The latency programs spin on memory: on a busy machine each of their turns takes a time slice.
PROGRAM_SECONDS=400
on_node 1 timeout $PROGRAM_SECONDS "$path" "$@" >"$work/listener" 2>&1 &
listener=$!
until_true $GROUND_SECONDS listening_or_over
on_node 2 timeout $PROGRAM_SECONDS "$path" "$@" 127.0.0.1 >"$work/connector" 2>&1 &
connector=$!
wait $connector
connector_rc=$?
wait $listener
listener_rc=$?

if [ "$check" = refuse ]; then
	for rc in "$connector_rc" "$listener_rc"; do
		# 124 and more: ended from outside
		if [ "$rc" = 0 ] || [ "$rc" -ge 124 ]; then
			die "a clean refusal was expected, not exit $rc"
		fi
	done
	echo "ok: $program refused: $(head -n 1 "$work/connector")"
	exit 0
fi
want 0 0
case $check in
pingpong)
	grep -q ' iters in ' "$work/connector" || die "no result"
	grep 'iters in' "$work/connector"
	;;
perftest)
	# Result lines begin with size and count; bandwidths are rounded to 0.00 where they are small,
	# so any of the next three columns will do. `-a` means the 23 sizes from 2 bytes to 8 MiB.
	sizes=1
	for word; do [ "$word" != -a ] || sizes=23; done
	awk -v sizes=$sizes '/^ *[0-9]+ +[0-9]+ +[0-9.]+ +[0-9.]+/ { n += $3 + $4 + $5 > 0; print }
		END { exit n != sizes }' "$work/connector" || die "not $sizes results"
	;;
conform)
	tail -n 1 "$work/listener"
	tail -n 1 "$work/connector"
	;;
esac
exit 0
