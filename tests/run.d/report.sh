# SPDX-License-Identifier: Apache-2.0
# Verdicts, and what tests/run says at its end.
# shellcheck shell=bash

TAIL_LINES=25

passed=0
failed=0
skipped=0
broken=0
expected=0
failures=()
flaky=()

# verdict PASS|FAIL|SKIP NAME [WHY]: of one test: a line, and the sums.
verdict() {
	case $1 in
	PASS) passed=$((passed + 1)) ;;
	SKIP) skipped=$((skipped + 1)) ;;
	FAIL)
		failed=$((failed + 1))
		failures+=("$2")
		;;
	esac
	printf '%s %s%s\n' "$1" "$2" "${3:+: $3}"
}

# broken NAME [WHY]: a step without which tests can't run, so that it fails as one.
broken() {
	broken=$((broken + 1))
	verdict FAIL "$@"
}

# flaky NAME WHY: passed at the second try only. Such a test must be mended.
flaky() {
	flaky+=("$1")
	verdict PASS "$1" "at the second try; first: $2"
}

# tail_of FILE: what is worth reading of it, under the line of its test.
tail_of() {
	tail -n "$TAIL_LINES" "$1" | cut -c1-300 | sed 's/^/    | /'
}

# quietly NAME COMMAND…: a step that is told only if it fails.
quietly() {
	local name=$1 log rc=0

	shift
	log=$(mktemp)
	"$@" >"$log" 2>&1 </dev/null || {
		rc=1
		broken "$name"
		tail_of "$log"
	}
	rm -f "$log"
	return "$rc"
}

# timed NAME COMMAND…: says how long it took.
timed() {
	local name=$1 start=$SECONDS rc=0

	shift
	"$@" || rc=$?
	echo "time $name: $((SECONDS - start)) s"
	return "$rc"
}

# joined ITEM…: with commas between.
joined() {
	local list

	list=$(printf ', %s' "$@")
	printf '%s' "${list:2}"
}

# summary: the last line is the sums alone, so that programs find them.
summary() {
	local ended=$((passed + skipped + failed - broken))

	if [ "$failed" != 0 ]; then
		echo "failed:"
		printf '    %s\n' "${failures[@]}"
	fi
	# Whatever became of them, too: a run that skips a part in silence is no run.
	if [ "$ended" -lt "$expected" ] && [ "$failed" = 0 ]; then
		broken "tests" "$((expected - ended)) never ran"
	fi
	[ ${#flaky[@]} = 0 ] || echo "flaky: $(joined "${flaky[@]}")"
	echo "expected: $expected tests, $((expected > ended ? expected - ended : 0)) of them never ran"
	if [ "$skipped" = 0 ]; then
		echo "$passed passed, $failed failed"
	else
		echo "$passed passed, $failed failed, $skipped skipped"
	fi
	[ "$failed" = 0 ]
}
