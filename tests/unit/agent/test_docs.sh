#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Man pages against the programs: every option and command that --help lists is documented, and
# none that isn't there. test_docs.sh DOCS AGENTD MPIBCTL
set -euo pipefail

docs=$1 agentd=$2 mpibctl=$3
bad=0

# Options as "--name" in a help text, as "Fl Fl name" in a page.
compare_options() {
	local program=$1 page=$2
	local in_help in_page
	in_help=$("$program" --help | grep -oE -- '^ +--[a-z]+' | tr -d ' -' | sort -u)
	in_page=$(grep -oE 'Fl Fl [a-z]+' "$page" | awk '{ print $3 }' | sort -u)
	[ -n "$in_help" ] || { echo "$program --help lists no option"; bad=1; }
	diff <(echo "$in_help") <(echo "$in_page") || { echo "options differ: $page"; bad=1; }
}

compare_options "$agentd" "$docs/mpib-agentd.8"
compare_options "$mpibctl" "$docs/mpibctl.1"

commands=$("$mpibctl" --help | sed -n '/^Commands:/,/^$/p' | awk 'NR > 1 && NF { print $1 }' | sort)
in_page=$(sed -n 's/^\.It Cm \([a-z]*\).*/\1/p' "$docs/mpibctl.1" | sort)
[ -n "$commands" ] || { echo "mpibctl --help lists no command"; bad=1; }
diff <(echo "$commands") <(echo "$in_page") || { echo "commands differ"; bad=1; }

# Each key that a policy prints is in its page.
for key in $("$agentd" --check /dev/stdin 2>/dev/null </dev/null | sed -n 's/^\([a-z_]*\) = .*/\1/p') \
	slots prefix_len intra inter share; do
	grep -qE "^\.It Sy $key( |\$)" "$docs/mpib-agent.ini.5" || { echo "no key $key"; bad=1; }
done

for page in "$docs"/*.[1-8]; do
	command -v groff >/dev/null || { echo "groff is missing: pages aren't formatted"; break; }
	said=$(groff -mandoc -Tutf8 -ww "$page" 2>&1 >/dev/null)
	[ -z "$said" ] || { echo "$page: $said"; bad=1; }
done
exit $bad
