# SPDX-License-Identifier: Apache-2.0
# Meson's suites, in the plain build and under sanitizers; clang-tidy and the fuzzers.
# shellcheck shell=bash disable=SC2154

FUZZ_SECONDS=10 # a target

# Meson's log has "PROJECT:SUITE+SUITE… / NAME". The first suite is a test's own.
LOG_NAMES='def suite: .name | sub(" / .*"; "") | sub("[+].*"; "") | sub("^.*:"; "");
	def test_name: .name | sub("^.* / "; "");'

# suites FOLDER LABEL MULTIPLIER [-MARK…] SUITE…: runs Meson's suites in one go, so that no core waits
# for the last test of a suite, and takes the verdicts from its log; without the tests that are also in a
# suite MARK. Without LABEL each suite is named.
suites() {
	local folder=$1 label=$2 multiplier=$3 rc=0
	local log=$folder/meson-logs/testlog.json out=$folder/meson-logs/run.out
	local -a names=() options=()

	shift 3
	names=("$@")
	while [ $# -gt 0 ]; do
		[[ $1 == -* ]] && options+=(--no-suite "${1#-}") || options+=(--suite "$1")
		shift
	done
	rm -f "$log"
	# Most tests wait more than they compute.
	meson test -C "$folder" --no-rebuild --timeout-multiplier "$multiplier" \
		--num-processes $((2 * $(nproc))) "${options[@]}" >"$out" 2>&1 </dev/null || rc=$?
	if [ ! -s "$log" ]; then
		broken "${label:-tests}" "no test ran"
		tail_of "$out"
		return
	fi
	suites_verdicts "$folder" "$label" "$multiplier" "$rc"
	suites_listed "$folder" "$label" "${names[@]}"
}

# suites_verdicts FOLDER LABEL MULTIPLIER RC: those of the log; RC is what Meson ended with.
suites_verdicts() {
	local folder=$1 label=$2 multiplier=$3 rc=$4 result suite name why told=

	while IFS=$'\t' read -r result suite name why; do
		if [ "$result" = FAIL ]; then
			told=1
			test_tail "$folder" "$suite" "$name"
			again "$folder" "${label:-$suite}" "$multiplier" "$suite" "$name" "$why"
		else
			verdict "$result" "${label:-$suite}: $name" "$why"
		fi
	done < <(verdicts_of "$folder/meson-logs/testlog.json")
	# Meson itself may fail with every test content, say by a signal.
	[ "$rc" = 0 ] || [ -n "$told" ] || broken "${label:-tests}" "meson test ended with $rc"
}

# suites_listed FOLDER LABEL [-MARK…] SUITE…: each test that tests/names has and that didn't run fails, and
# so does one that ran without being listed.
suites_listed() {
	local folder=$1 label=$2 suite name change

	shift 2
	while read -r change suite name; do
		case $change in
		'<') broken "${label:-$suite}: $name" "missing (tests/names lists it)" ;;
		'>')
			expect 1
			broken "${label:-$suite}: $name" "not in tests/names: run tests/run --write-names"
			;;
		esac
	done < <(diff <(listed "$@" | sort) \
		<(verdicts_of "$folder/meson-logs/testlog.json" | cut -f2,3 | tr '\t' ' ' | sort))
}

# verdicts_of TESTLOG: RESULT, SUITE, NAME and WHY of each test, a line each.
verdicts_of() {
	jq -r "$LOG_NAMES"'[(if .result == "OK" or .result == "EXPECTEDFAIL" then "PASS"
			elif .result == "SKIP" then "SKIP" else "FAIL" end), suite, test_name,
			(if .result == "SKIP" then
				((.stdout // "") + (.stderr // "") | split("\n") | map(select(test("skip"; "i"))) |
				first // "" | .[0:160])
			elif .result == "OK" then "" else .result | ascii_downcase end)] | @tsv' "$1"
}

# again FOLDER LABEL MULTIPLIER SUITE NAME WHY: a test that failed beside others gets one more try, alone.
# If it passes now it is told as flaky. Those of the tree only read files: they'd say the same again.
again() {
	local folder=$1 label=$2 multiplier=$3 suite=$4 name=$5 why=$6

	if [ "$suite" != tree ] && meson test -C "$folder" --no-rebuild --timeout-multiplier "$multiplier" \
		--num-processes 1 --logbase again --suite "$suite" "$name" >/dev/null 2>&1 </dev/null; then
		flaky "$label: $name" "$why"
	else
		verdict FAIL "$label: $name" "$why$([ "$suite" = tree ] || echo ", twice")"
	fi
}

# test_tail FOLDER SUITE NAME: the last lines of what a test said.
test_tail() {
	tail_of <(jq -r --arg suite "$2" --arg name "$3" "$LOG_NAMES"'
		select(suite == $suite and test_name == $name) | (.stdout // "") + (.stderr // "")' \
		"$1/meson-logs/testlog.json")
}

# sanitized LABEL SUITE…: without the tests that are `long`: those take other sizes on the same paths.
sanitized() {
	local label=$1

	shift
	! beside_compiled "$label" || suites "build-$label" "$label" 4 -long "-no-$label" "$@"
}

tidy() {
	beside_wait tidy
	case $beside_rc in
	0) verdict PASS "tidy: tree-tidy" ;;
	77) verdict SKIP "tidy: tree-tidy" "$(head -1 "$BESIDE/tidy.log")" ;;
	*)
		verdict FAIL "tidy: tree-tidy" "$beside_rc"
		tail_of "$BESIDE/tidy.log"
		;;
	esac
}

fuzz_targets() {
	local source

	for source in tests/fuzz/fuzz_*.c; do
		source=${source##*/fuzz_}
		echo "${source%.c}"
	done
}

# fuzz: every target for some seconds, under sanitizers and with coverage.
fuzz() {
	local name what

	beside_wait fuzz
	for name in $(fuzz_targets); do
		what="fuzz: $name for $FUZZ_SECONDS s"
		if [ "$beside_rc" = 77 ]; then
			verdict SKIP "$what" "$(head -1 "$BESIDE/fuzz.log")"
		elif [ "$(cat "build-fuzz/$name.rc" 2>/dev/null)" = 0 ]; then
			verdict PASS "$what" "$(sed -n 's/.*DONE *//p' "build-fuzz/$name.out")"
		else
			verdict FAIL "$what" "$beside_rc"
			tail_of "$([ -e "build-fuzz/$name.out" ] && echo "build-fuzz/$name.out" || echo "$BESIDE/fuzz.log")"
		fi
	done
}
