#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every command of mpibctl with --json: valid JSON on stdout exactly when it exits with 0.
# test_json.sh AGENTD MPIBCTL
set -euo pipefail

agentd=$1 mpibctl=$2
command -v jq >/dev/null || { echo "jq is missing"; exit 77; }
work=$(mktemp -d)
trap 'kill "${pid:-}" 2>/dev/null; rm -rf "$work"' EXIT
ini=$work/agent.ini flow=10.0.1.1-10.0.2.5 bad=0
echo '[policy]' >"$ini"
echo '[policy' >"$work/bad.ini"

# ctl CODE ARGUMENT…: exits with CODE, and its stdout is as it must be.
ctl() {
	local want=$1 code=0 out

	shift
	out=$(timeout 20 "$mpibctl" --dir "$work/mpib" --json "$@" 2>"$work/err") || code=$?
	[ $code = "$want" ] || { echo "$*: exit $code, not $want: $(cat "$work/err")"; bad=1; }
	if [ $code = 0 ]; then
		{ [ -n "$out" ] && jq -e . <<<"$out" >/dev/null; } || { echo "$*: no JSON: $out"; bad=1; }
	else
		[ -z "$out" ] || { echo "$*: exit $code, and says: $out"; bad=1; }
		[ -s "$work/err" ] || { echo "$*: exit $code without a reason"; bad=1; }
	fi
}

verbs=("status" "flows" "hints" "hints --all" "policy" "explain $flow" "set $flow 25%" "explain $flow"
	"unset $flow" "reload" "check $ini" "--count 1 monitor" "--count 1 top")
for verb in "${verbs[@]}"; do
	case $verb in
	check*) ;;
	*) ctl 3 $verb ;;
	esac
done

env -u NOTIFY_SOCKET -u JOURNAL_STREAM "$agentd" --dir "$work/mpib" --config "$ini" 2>"$work/log" &
pid=$!
for ((n = 0; n < 200; n++)); do
	"$mpibctl" --dir "$work/mpib" status >/dev/null 2>&1 && break
	sleep 0.05
done
for verb in "${verbs[@]}"; do
	ctl 0 $verb
done

ctl 1 check "$work/bad.ini"
cp "$work/bad.ini" "$ini"
ctl 1 reload
for verb in "explain x" "set $flow" "set $flow 5000" "unset" "nonsense" "metrics" "flows more"; do
	ctl 2 $verb
done

# All of them were tried: a new command must come in here, too.
for verb in $("$mpibctl" --help | sed -n '/^Commands:/,/^$/p' | awk 'NR > 1 && NF { print $1 }'); do
	case $verb in
	doctor) continue ;; # JSON with every verdict; its own test
	metrics) continue ;;
	esac
	[[ " ${verbs[*]} " == *" $verb "* ]] || { echo "$verb is not tried"; bad=1; }
done
exit $bad
