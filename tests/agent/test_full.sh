#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every command of mpibctl where its stdout takes nothing. A full disk: exit 1 and one line. A reader
# that left: exit 1 and not a word. test_full.sh AGENTD MPIBCTL
set -euo pipefail

agentd=$1 mpibctl=$2
[ -c /dev/full ] || { echo "/dev/full is missing"; exit 77; }
work=$(mktemp -d)
trap 'kill "${pid:-}" 2>/dev/null || true; rm -rf "$work"' EXIT
ini=$work/agent.ini flow=10.0.1.1-10.0.2.5 bad=0
echo '[policy]' >"$ini"
env -u NOTIFY_SOCKET -u JOURNAL_STREAM "$agentd" --dir "$work/mpib" --config "$ini" 2>"$work/log" &
pid=$!
for ((n = 0; n < 200; n++)); do
	"$mpibctl" --dir "$work/mpib" status >/dev/null 2>&1 && break
	sleep 0.05
done

# A pipe whose reader is gone for good.
mkfifo "$work/pipe"
exec 3<>"$work/pipe" 4>"$work/pipe" 3<&-

ctl() {
	[[ " $* " != *" unset "* ]] || "$mpibctl" --dir "$work/mpib" set "$flow" 5 >/dev/null
	timeout 20 "$mpibctl" --dir "$work/mpib" "$@" 2>"$work/err"
}
# try ARGUMENT…
try() {
	local code=0 lines

	ctl "$@" >/dev/full || code=$?
	lines=$(wc -l <"$work/err")
	{ [ $code = 1 ] && [ "$lines" = 1 ] && grep -q '^mpibctl: .*No space left on device$' "$work/err"; } ||
		{ echo "$* on a full disk: exit $code, $lines lines: $(cat "$work/err")"; bad=1; }
	code=0
	(trap '' PIPE; ctl "$@" >&4) || code=$?
	{ [ $code = 1 ] && [ ! -s "$work/err" ]; } ||
		{ echo "$* without a reader: exit $code: $(cat "$work/err")"; bad=1; }
	code=0
	(ctl "$@" >&4) || code=$?
	{ [ $code = 141 ] && [ ! -s "$work/err" ]; } ||
		{ echo "$* without a reader, by the signal: exit $code: $(cat "$work/err")"; bad=1; }
}

verbs=("status" "flows" "hints --all" "policy" "explain $flow" "set $flow 25%" "unset $flow" "reload"
	"check $ini" "metrics" "--count 3 monitor" "--count 3 top" "doctor")
for verb in "${verbs[@]}"; do
	try $verb
	case $verb in
	metrics) ;;
	*) try --json $verb ;;
	esac
done
try --help
try --version

# All of them were tried: a new command must come in here, too.
for verb in $("$mpibctl" --help | sed -n '/^Commands:/,/^$/p' | awk 'NR > 1 && NF { print $1 }'); do
	[[ " ${verbs[*]} " == *" $verb "* ]] || { echo "$verb is not tried"; bad=1; }
done

# What metrics puts in place is whole or not there.
code=0
(trap '' XFSZ; ulimit -f 0; ctl --output "$work/mpib.prom" metrics) 2>/dev/null || code=$?
{ [ $code = 1 ] && [ -z "$(compgen -G "$work/mpib.prom*")" ]; } ||
	{ echo "--output on a full disk: exit $code, $(ls "$work")"; bad=1; }
exit $bad
