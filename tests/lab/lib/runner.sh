# SPDX-License-Identifier: Apache-2.0
# Runs cases on the lab's nodes and reports. A case is cases/NN-name.sh; its header comment says
# what it needs:
#   # nodes: 2            how many nodes (default 2)
#   # islands: 1 1 2 2    third byte of each node's rail addresses (default 1)
#   # sup: split          SUP reaches only the nodes of the same island (default joined)
#   # limit: 120          seconds that it may take (default 120)
#   # grounds: lab fabric where it can be run (default lab)
#   # quiet: yes            whoever computes beside it is to pause until its verdict (default no)
# shellcheck shell=bash

# case_header FILE KEY DEFAULT
case_header() {
	local value

	value=$(sed -n "s/^# $2: *//p" "$1" | head -1)
	printf '%s\n' "${value:-$3}"
}

case_name() {
	basename "$1" .sh
}

# cases_select [PATTERN…]: files of the cases whose name has one of the patterns, those with the
# fewest nodes first; all of them without a pattern.
cases_select() {
	local file pattern name

	for file in "$LAB_ROOT"/cases/*.sh; do
		name=$(case_name "$file")
		for pattern in "${@:-}"; do
			if [[ $name == *$pattern* ]]; then
				printf '%s %s\n' "$(case_header "$file" nodes 2)" "$file"
				break
			fi
		done
	done | sort -s -n -k1,1 | cut -d' ' -f2-
}

# case_prepare: brings the nodes into the state that the case's header asks for.
case_prepare() {
	local n want job
	local -a jobs=()

	for n in $(case_nodes); do
		want="/lab/rails $(sout "$n") $(sup "$n")"
		[ "$(cat "$LAB_STATE/rails.$n" 2>/dev/null)" = "$want" ] && want=true
		guest "$n" -t 300 -- "/lab/reset; $want" &
		jobs+=($!)
		[ "$want" = true ] || echo "$want" >"$LAB_STATE/rails.$n"
		case $CASE_SUP in
		split) net_sup "$([ "$(island "$n")" = 1 ] && echo supA || echo supB)" "$n" ;;
		*) net_sup sup "$n" ;;
		esac
	done
	for job in "${jobs[@]}"; do
		wait "$job" || return 1
	done
}

# case_done: after each case, while its folder says what it had. Nothing to do: case_prepare resets.
case_done() {
	:
}

# case_run FILE: one line of verdict, then what it measured; returns 0, 1 or 77.
case_run() {
	local file=$1 name rc=0 started=$SECONDS log

	name=$(case_name "$file")
	CASE_NODES=$(case_header "$file" nodes 2)
	CASE_ISLANDS=$(case_header "$file" islands "")
	CASE_SUP=$(case_header "$file" sup joined)
	CASE_DIR=$LAB_RESULTS/$name
	export CASE_NODES CASE_ISLANDS CASE_SUP CASE_DIR
	rm -rf "$CASE_DIR"
	mkdir -p "$CASE_DIR"
	log=$CASE_DIR/log
	[ "$(case_header "$file" quiet no)" = no ] || printf 'lab: %s needs a quiet machine\n' "$name"

	if case_prepare >"$log" 2>&1; then
		timeout -k 10 "$(case_header "$file" limit 120)" \
			bash "$LAB_ROOT/lib/case-main.sh" "$file" >>"$log" 2>&1 </dev/null &
		wait $! || rc=$? # so that a signal is heard meanwhile
	else
		rc=1
	fi

	case_done || rc=1

	case $rc in
	0) printf 'PASS %s (%d s)\n' "$name" $((SECONDS - started)) ;;
	77) printf 'SKIP %s: %s\n' "$name" "$(cat "$CASE_DIR/skip")" ;;
	124 | 137) printf 'FAIL %s: time limit\n' "$name" ;;
	*) printf 'FAIL %s (%d s)\n' "$name" $((SECONDS - started)) ;;
	esac
	[ -e "$CASE_DIR/measured" ] && sed 's/^/    /' "$CASE_DIR/measured"
	if [ $rc != 0 ] && [ $rc != 77 ]; then
		case_collect
		tail -n 30 "$log" | sed 's/^/    | /'
		printf '    logs: %s\n' "$CASE_DIR"
		rc=1
	fi
	return $rc
}

# case_collect: what the nodes know about a failure.
case_collect() {
	local n
	local -a jobs=()

	for n in $(node_list); do
		guest "$n" -t 30 -- 'journalctl -b --no-pager -o short-precise; echo; ps axf; rdma res; ip -s link' \
			>"$CASE_DIR/node$n.journal" 2>&1 </dev/null &
		jobs+=($!)
		cp "$LAB_STATE/serial.$n" "$CASE_DIR/node$n.serial"
	done
	wait "${jobs[@]}" || true
}

# cases_run FILE…: all of them, in order; the last line sums up. Fails if one failed.
cases_run() {
	local file rc passed=0 failed=0 skipped=0

	for file in "$@"; do
		nodes_ensure "$(case_header "$file" nodes 2)"
		rc=0
		case_run "$file" || rc=$?
		case $rc in
		0) passed=$((passed + 1)) ;;
		77) skipped=$((skipped + 1)) ;;
		*) failed=$((failed + 1)) ;;
		esac
	done
	printf 'lab: %d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
	[ "$failed" = 0 ]
}
