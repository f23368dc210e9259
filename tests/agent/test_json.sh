#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every command of mpibctl with --json: one valid document on stdout exactly when it exits with 0;
# doctor's exit code is a verdict, so that its 1 and 5 come with one, too, and say the same.
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

# doctor ARGUMENT…: one document, and an exit code that is the worst level in it.
doctor() {
	local code=0 worst

	timeout 30 "$mpibctl" --dir "$work/mpib" --json "$@" doctor >"$work/out" 2>"$work/err" || code=$?
	worst=$(jq -s 'if length == 1 then [.[0].findings[].level | {OK: 0, WARN: 5, FAIL: 1}[.]] |
		if any(. == 1) then 1 else max end else "several documents" end' "$work/out") || worst=none
	[ "$worst" = $code ] || { echo "doctor $*: exit $code, worst $worst: $(cat "$work/err")"; bad=1; }
}

verbs=("status" "flows" "hints" "hints --all" "policy" "explain $flow" "set $flow 25%" "explain $flow"
	"unset $flow" "reload" "check $ini" "--count 1 monitor" "--count 1 top")
for verb in "${verbs[@]}"; do
	case $verb in
	check*) ;;
	*) ctl 3 $verb ;;
	esac
done
doctor
doctor --root "$work"

env -u NOTIFY_SOCKET -u JOURNAL_STREAM "$agentd" --dir "$work/mpib" --config "$ini" 2>"$work/log" &
pid=$!
for ((n = 0; n < 200; n++)); do
	"$mpibctl" --dir "$work/mpib" status >/dev/null 2>&1 && break
	sleep 0.05
done
for verb in "${verbs[@]}"; do
	ctl 0 $verb
done
doctor
doctor --env
doctor --pid $pid
NCCL_NET=$'\xff"\\\n' MPIB_IB_TC=$'\x01"\\' doctor --env
ctl 2 doctor more
ctl 2 --pid 0 doctor
ctl 1 --pid 2147483647 doctor
ctl 2 --nonsense doctor

ctl 1 check "$work/bad.ini"
cp "$work/bad.ini" "$ini"
ctl 1 reload
for verb in "explain x" "set $flow" "set $flow 5000" "unset" "nonsense" "metrics" "flows more"; do
	ctl 2 $verb
done

# All of them were tried: a new command must come in here, too.
for verb in $("$mpibctl" --help | sed -n '/^Commands:/,/^$/p' | awk 'NR > 1 && NF { print $1 }'); do
	case $verb in
	doctor) continue ;; # above
	metrics) continue ;;
	esac
	[[ " ${verbs[*]} " == *" $verb "* ]] || { echo "$verb is not tried"; bad=1; }
done
exit $bad
