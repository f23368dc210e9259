#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The policy file of an earlier installation outlives the next one, whatever it is; where there is
# none the sample comes. test_install_policy.sh SCRIPT SAMPLE
set -euo pipefail

script=$1 sample=$2 bad=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# install_to CONFDIR: as Meson runs it, for prefix /opt/x under a staging folder
install_to() {
	DESTDIR="$work/stage" MESON_INSTALL_DESTDIR_PREFIX="$work/stage/opt/x" "$script" "$sample" "$1" >/dev/null
}

expect() {
	[ "$1" = "$2" ] || { echo "$3: '$1', not '$2'"; bad=1; }
}

for case in "/etc/mpib $work/stage/etc/mpib" "etc/mpib $work/stage/opt/x/etc/mpib"; do
	read -r confdir folder <<<"$case"
	(umask 077 && install_to "$confdir")
	cmp "$sample" "$folder/agent.ini" || bad=1
	expect "$(stat -c %a "$folder" "$folder/agent.ini" | xargs)" "755 644" "modes"

	echo '; edited' >"$folder/agent.ini"
	chmod 0640 "$folder/agent.ini"
	install_to "$confdir"
	expect "$(cat "$folder/agent.ini")" '; edited' "an edited file"
	expect "$(stat -c %a "$folder/agent.ini")" 640 "its mode"

	ln -sf elsewhere.ini "$folder/agent.ini"
	install_to "$confdir"
	expect "$(readlink "$folder/agent.ini")" elsewhere.ini "a link"
	[ ! -e "$folder/elsewhere.ini" ] || { echo "the sample went through the link"; bad=1; }
done

DESTDIR='' MESON_INSTALL_DESTDIR_PREFIX="$work/alone" "$script" "$sample" "$work/abs" >/dev/null
cmp "$sample" "$work/abs/agent.ini" || bad=1
exit $bad
