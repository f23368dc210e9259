# SPDX-License-Identifier: Apache-2.0
# The lab's cases. Jobs that only compute run beside them, but not beside those that measure: these come last.
# shellcheck shell=bash

LAB_OUT=build/lab.out
lab_image_job=
lab_job=

# lab_cases quiet|beside: names of those that need a quiet machine, or of the others.
lab_cases() {
	local match=-L

	[ "$1" = beside ] || match=-l
	grep "$match" '^# quiet: yes' tests/lab/cases/*.sh | sed 's|.*/||; s|\.sh$||'
}

# lab_image_start: building the image takes minutes of waiting for downloads: meanwhile the tree is compiled.
lab_image_start() {
	lab_need_tools
	tests/lab/lab image >build/lab-image.log 2>&1 </dev/null &
	lab_image_job=$!
}

# lab_start: the cases that need no quiet machine. They wait for the image themselves.
lab_start() {
	local -a cases

	mapfile -t cases < <(lab_cases beside)
	tests/lab/lab run "${cases[@]}" >"$LAB_OUT" 2>&1 </dev/null &
	lab_job=$!
}

lab_end() {
	# shellcheck disable=SC2086 # none, one or two
	kill $lab_job $lab_image_job 2>/dev/null || true
}

# lab_finish: the verdicts of those cases, then the others.
lab_finish() {
	local name
	local -a again=() seen=() cases

	if ! wait "$lab_image_job"; then
		broken "lab: image"
		tail_of build/lab-image.log
		return
	fi
	wait "$lab_job" || true
	lab_job=
	beside_signal STOP
	lab_verdicts <"$LAB_OUT"
	mapfile -t cases < <(lab_cases quiet)
	lab_verdicts < <(tests/lab/lab run "${cases[@]}" 2>&1 </dev/null)
	# As with the suites: one more try, alone, in machines booted anew.
	for name in "${again[@]}"; do
		if tests/lab/lab run "$name" 2>&1 </dev/null | sed 's/^/    | /'; then
			flaky "lab: $name" "failed beside others"
		else
			verdict FAIL "lab: $name" "twice"
		fi
	done
	beside_signal CONT
	while read -r name; do
		broken "lab: $name" "missing (tests/names lists it)"
	done < <(comm -23 <(listed lab | cut -d' ' -f2 | sort) <(printf '%s\n' "${seen[@]}" | sort))
}

# lab_verdicts: reads what the lab says; its own lines are the verdicts. Adds to $seen and $again.
lab_verdicts() {
	local line name

	while IFS= read -r line; do
		name=${line#* }
		case $line in
		'FAIL '*)
			seen+=("${name%% *}")
			again+=("${name%% *}")
			printf '%s\n' "$line"
			;;
		'PASS '* | 'SKIP '*)
			seen+=("${name%%[ :]*}")
			verdict "${line%% *}" "lab: $name"
			;;
		*) printf '%s\n' "$line" ;;
		esac
	done
}
