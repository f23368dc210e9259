#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What people do wrong with the fabric, and whether it tells them. Usage: mistakes.sh FABRICCTL CONFORM,
# with LD_LIBRARY_PATH leading to the fabric.
# Programs are words with their arguments.
# shellcheck disable=SC2086
set -u
fabricctl=$1
conform=$2
dir=$(mktemp -d)
holder=
trap '[ -z "$holder" ] || kill $holder; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
export MPIB_FABRIC_DIR="$dir/meeting"
unset MPIB_FABRIC MPIB_FABRIC_NODE MPIB_FABRIC_NULL
failed=0

# says TEXT COMMAND...: it fails, and its lines have the text.
says() {
	text=$1
	shift
	if "$@" >"$dir/out" 2>&1; then
		echo "no failure: $*"
		failed=1
	elif ! grep -qF -- "$text" "$dir/out"; then
		echo "without '$text': $*"
		cat "$dir/out"
		failed=1
	fi
}

works() {
	"$@" >"$dir/out" 2>&1 && return
	echo "failed: $*"
	cat "$dir/out"
	failed=1
}

printf '[fabric]\nname = x\nspeed = 1\n' >"$dir/bad.ini"
for program in "$fabricctl show" "timeout 20 $conform -d sup"; do
	MPIB_FABRIC="$dir/bad.ini" says "$dir/bad.ini: line 3: unknown key 'speed'" $program
	MPIB_FABRIC="$dir/none.ini" says "$dir/none.ini: No such file" $program
	MPIB_FABRIC_DIR="$dir/none/none" says "meeting directory $dir/none/none: No such file" $program
	mkdir -m 0777 "$dir/open" && chmod 0777 "$dir/open"
	MPIB_FABRIC_DIR="$dir/open" says "$dir/open: it must be a directory of this user" $program
	rmdir "$dir/open"
	touch "$dir/file"
	MPIB_FABRIC_DIR="$dir/file" says "meeting directory $dir/file: " $program
done
MPIB_FABRIC_NODE=3 says "MPIB_FABRIC_NODE '3' is not in the configuration" timeout 20 "$conform" -d sup
for words in "" "nonsense" "port 1/sup" "port 1/sup sideways" "port 9/sup down" "rate 1/sup -1" \
	"rate 1/sup 1x" "latency 1/sup 99999999999" "late 1/sup 99999999999" "late 1/sup" "unseen 1/sup" "unseen 1/sup 99999999999" "cut 1/sup x" "delay 1/sup 5 4" "fail 1/sup nothing EIO" \
	"fail 1/sup post_send EWHAT" "gid 1/sup 99 -" "gid 1/sup 1 10.0.0.1" "kill" "drop" \
	"drop 0x20000" "drop 99999999999" "show 1/sup more"; do
	says "" "$fabricctl" $words
	[ -s "$dir/out" ] || { echo "not a word about: $words"; failed=1; }
done

# No room for the state: a program says so instead of dying by SIGBUS later.
if unshare --mount true 2>/dev/null; then
	mkdir "$dir/full"
	# shellcheck disable=SC2016 # for the inner shell
	for program in "$fabricctl show" "timeout 20 $conform -d sup"; do
		MPIB_FABRIC_DIR="$dir/full" says "meeting directory $dir/full: No space left on device" \
			unshare --mount sh -c 'mount -t tmpfs -o size=64k,mode=700 none "$MPIB_FABRIC_DIR" &&
				exec "$@"' sh $program
	done
fi

# The state of another build. While somebody lives in it nobody else joins; then it is replaced.
works "$fabricctl" show
state=$(echo "$dir"/meeting/*/state)
"$conform" -d sup -p $((10000 + $$ % 20000)) >/dev/null 2>&1 &
holder=$!
n=0
until "$fabricctl" show | grep -q "^process $holder "; do
	n=$((n + 1))
	[ $n -lt 200 ] || { echo "the holder doesn't come"; exit 1; }
	sleep 0.05
done
printf 'old!' | dd of="$state" bs=1 seek=4 conv=notrunc 2>/dev/null
says "processes of another build of the fabric are in it" "$fabricctl" show
kill $holder
wait $holder 2>/dev/null
holder=
works "$fabricctl" show
! dd if="$state" bs=1 skip=4 count=4 2>/dev/null | grep -q 'old!' || { echo "not replaced"; failed=1; }
# One that is shorter, and one whose maker died before its first word.
truncate -s 4096 "$state"
works "$fabricctl" show
: >"$state"
works "$fabricctl" show
[ $failed = 0 ] && echo "mistakes: ok"
exit $failed
