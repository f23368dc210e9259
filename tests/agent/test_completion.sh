#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Completion of mpibctl against its help. test_completion.sh COMPLETION MPIBCTL
set -euo pipefail

mpibctl=$2
mpibctl() { "$mpibctl" "$@"; }
# shellcheck disable=SC1090
. "$1"

complete_line() {
	COMP_WORDS=("$@")
	COMP_CWORD=$(($# - 1))
	_mpibctl
	printf '%s\n' "${COMPREPLY[@]}"
}

bad=0
expect() {
	local wanted=$1
	shift
	diff <(echo "$wanted") <(complete_line "$@" | sort) || { echo "wrong: $*"; bad=1; }
}

expect "$("$mpibctl" --help | sed -n '/^Commands:/,/^$/p' | awk 'NR > 1 && NF { print $1 }' | sort)" \
	mpibctl ""
expect "$("$mpibctl" --help | awk '$1 ~ /^--/ { print $1 }' | sort)" mpibctl --
expect "status" mpibctl stat
expect $'set\nstatus' mpibctl s
expect "--json" mpibctl --j
expect "10m" mpibctl set x y --for 10
expect $'sout_busy_rate\nsout_bytes\nsout_losses\nsout_lost\nsout_parts_again\nsout_put_bytes\nsout_puts\nsout_received\nsout_received_rate\nsout_returns\nsout_sent\nsout_sent_rate\nsout_up' \
	mpibctl flows --sort sout_
expect "sup_parts_again" mpibctl flows --sort sup_parts # the last there is
expect "connections" mpibctl --sort conn
expect "-rate" mpibctl --sort -rat
[[ $(complete -p mpibctl) == *_mpibctl* ]] || { echo "not registered"; bad=1; }
exit $bad
