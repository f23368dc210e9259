# SPDX-License-Identifier: Apache-2.0
# What only computes is done beside the tests, which often wait: jobs, one after the other, on the
# time of the processors that nothing else wants. They have a session of their own, by which they are
# paused, and leave NAME.log and NAME.rc of each job in $BESIDE.
# shellcheck shell=bash
# Those called by their names' parts:
# shellcheck disable=SC2317

BESIDE=build/beside
beside_job=
beside_rc=

beside_start() {
	[ $# -gt 0 ] || return 0
	rm -rf "$BESIDE"
	mkdir -p "$BESIDE"
	setsid tests/run --beside "$@" >"$BESIDE/log" 2>&1 </dev/null &
	beside_job=$!
}

# beside_run NAME…: in the session of its own.
beside_run() {
	local job rc

	chrt --idle --pid 0 $$ || renice -n 19 $$
	beside_group $$ 19
	for job in "$@"; do
		rc=0
		"job_$job" >"$BESIDE/$job.log" 2>&1 || rc=$?
		echo "$rc" >"$BESIDE/$job.new"
		mv "$BESIDE/$job.new" "$BESIDE/$job.rc"
	done
}

# Two targets at a time.
job_fuzz() {
	rm -f build-fuzz/*.rc build-fuzz/*.out
	tests/fuzz/run 0 || return
	# shellcheck disable=SC2016 # for the inner shell
	fuzz_targets | xargs -P 2 -I{} sh -c 'exec >build-fuzz/{}.out 2>&1
		tests/fuzz/run "$1" {}
		echo $? >build-fuzz/{}.rc' sh "$FUZZ_SECONDS"
}

job_tidy() {
	tests/tree/tidy.sh "$PWD" "$PWD/build"
}

job_asan() {
	sanitized_build build-asan address,undefined "${ASAN_SUITES[@]}"
}

job_tsan() {
	sanitized_build build-tsan thread "${TSAN_SUITES[@]}"
}

# sanitized_build FOLDER SANITIZERS SUITE…
sanitized_build() {
	local folder=$1 sanitizers=$2
	local -a targets

	shift 2
	tests/setup "$folder" "-Db_sanitize=$sanitizers" "${SANITIZED_BUILD[@]}" || return
	mapfile -t targets < <(needs "$folder" "$@")
	[ ${#targets[@]} -gt 0 ] && ninja -C "$folder" "${targets[@]}"
}

# needs FOLDER SUITE…: what of FOLDER the tests of these suites want compiled.
needs() {
	local folder=$1

	shift
	meson introspect "$folder" --tests --targets | jq -r --arg folder "$PWD/$folder/" --args '
		[.tests[] | select([.suite[] | sub("^.*:"; "")] | (index("long") | not) and
			any(.[]; . as $suite | $ARGS.positional | index($suite))).depends[]] as $ids |
		.targets[] | select(.id as $id | $ids | index($id)).filename[] | ltrimstr($folder)' "$@"
}

# beside_signal SIGNAL: to all of it.
beside_signal() {
	[ -z "$beside_job" ] || pkill "-$1" -s "$beside_job" || true
}

beside_end() {
	beside_signal CONT
	beside_signal TERM
}

# beside_group PID NICE: where the kernel shares time among sessions first, this is their share.
beside_group() {
	[ ! -e "/proc/$1/autogroup" ] || echo "$2" >"/proc/$1/autogroup" || true
}

# beside_priority --idle|--other NICE
beside_priority() {
	local pid

	for pid in $(pgrep -s "$beside_job" || true); do
		chrt "$1" --pid 0 "$pid" || true
	done 2>/dev/null
	beside_group "$beside_job" "$2" 2>/dev/null
}

# beside_wait NAME: until that job is over; now it is what everything waits for. Sets $beside_rc.
beside_wait() {
	beside_priority --other 0
	while [ ! -e "$BESIDE/$1.rc" ] && kill -0 "$beside_job" 2>/dev/null; do
		sleep 0.2
	done
	beside_priority --idle 19
	beside_rc=$(cat "$BESIDE/$1.rc" 2>/dev/null || echo "no end")
}

# beside_compiled NAME: whether that job went well; says it if not.
beside_compiled() {
	beside_wait "$1"
	[ "$beside_rc" != 0 ] || return 0
	broken "compile build-$1" "$beside_rc"
	tail_of "$BESIDE/$1.log"
	return 1
}
