# SPDX-License-Identifier: Apache-2.0
# The lab's cases. Jobs that only compute run beside them, and pause for those that measure.
# shellcheck shell=bash

lab_image_job=

# lab_image_start: building the image takes minutes of waiting for downloads: meanwhile the tree is compiled.
lab_image_start() {
	lab_need_tools
	tests/lab/lab image >build/lab-image.log 2>&1 </dev/null &
	lab_image_job=$!
}

lab_end() {
	# shellcheck disable=SC2086 # none or one
	kill $lab_image_job 2>/dev/null || true
}

# run_lab: its virtual machines take all cores. With the suites beside it both were slower, and tests
# with bounds of time failed.
run_lab() {
	local name
	local -a again=() seen=()

	if ! wait "$lab_image_job"; then
		broken "lab: image"
		tail_of build/lab-image.log
		return
	fi
	lab_verdicts < <(tests/lab/lab run 2>&1 </dev/null)
	# As with the suites: one more try, alone, in machines booted anew.
	beside_signal STOP
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
		'lab: '*' needs a quiet machine') beside_signal STOP ;;
		'FAIL '*)
			seen+=("${name%% *}")
			again+=("${name%% *}")
			beside_signal CONT
			;;
		'PASS '* | 'SKIP '*)
			seen+=("${name%%[ :]*}")
			verdict "${line%% *}" "lab: $name"
			beside_signal CONT
			continue
			;;
		esac
		printf '%s\n' "$line"
	done
}
