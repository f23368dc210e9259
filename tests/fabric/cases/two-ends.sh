#!/bin/sh
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
set -u
check=$1
program=$2
shift 2

path=$(command -v "$program") || { echo "skipped: $program is not installed"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
export MPIB_FABRIC_DIR="$dir" LD_LIBRARY_PATH="$FABRIC_LIB"
unset MPIB_FABRIC MPIB_FABRIC_NULL
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

# True once somebody listens on the port.
listening() {
	LD_PRELOAD='' awk -v port="$(printf '%04X' $port)" \
		'{ split($2, at, ":"); if ($4 == "0A" && at[2] == port) found = 1 }
		END { exit !found }' /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# The latency programs spin on memory: on a busy machine each of their turns takes a time slice.
MPIB_FABRIC_NODE=1 timeout 400 "$path" "$@" >"$dir/server.out" 2>&1 &
server=$!
n=0
while ! listening; do
	n=$((n + 1))
	if [ $n -gt 600 ] || ! kill -0 $server 2>/dev/null; then
		break
	fi
	sleep 0.05
done
MPIB_FABRIC_NODE=2 timeout 400 "$path" "$@" 127.0.0.1 >"$dir/client.out" 2>&1
client_rc=$?
wait $server
server_rc=$?

fail() {
	echo "FAILED: $1 (client $client_rc, server $server_rc)"
	echo "--- server"
	cat "$dir/server.out"
	echo "--- client"
	cat "$dir/client.out"
	exit 1
}

if [ $check = refuse ]; then
	[ $client_rc -ne 0 ] && [ $server_rc -ne 0 ] && [ $client_rc -lt 124 ] &&
		[ $server_rc -lt 124 ] || fail "a clean refusal was expected"
	echo "ok: $program refused: $(head -n 1 "$dir/client.out")"
	exit 0
fi
[ $client_rc -eq 0 ] && [ $server_rc -eq 0 ] || fail "exit status"
case $check in
pingpong)
	grep -q ' iters in ' "$dir/client.out" || fail "no result"
	grep 'iters in' "$dir/client.out"
	;;
perftest)
	# Result lines begin with size and count; bandwidths are rounded to 0.00 where they are small,
	# so any of the next three columns will do. `-a` means the 23 sizes from 2 bytes to 8 MiB.
	sizes=1
	for word; do [ "$word" != -a ] || sizes=23; done
	awk -v sizes=$sizes '/^ *[0-9]+ +[0-9]+ +[0-9.]+ +[0-9.]+/ { n += $3 + $4 + $5 > 0; print }
		END { exit n != sizes }' "$dir/client.out" || fail "not $sizes results"
	;;
conform)
	tail -n 1 "$dir/server.out"
	tail -n 1 "$dir/client.out"
	;;
esac
exit 0
