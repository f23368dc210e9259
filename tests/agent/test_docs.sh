#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Man pages against the programs: every option and command that --help lists is documented, and
# none that isn't there. test_docs.sh DOCS AGENTD MPIBCTL
set -euo pipefail

docs=$1 agentd=$2 mpibctl=$3 source=$1/..
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

# Each event that the agent can name is in the page and in the operators' table, with a catalog text.
events=$(sed -n 's/.*\[MPIB_EVENT_[A-Z_]*\] = { "\([a-z-]*\)".*/\1/p' "$source/agent/journal/journal.c")
[ "$(echo "$events" | wc -l)" -ge 15 ] || { echo "events of journal.c not found"; bad=1; }
listed=$(sed -n '/^Events are/,/\.$/p' "$docs/mpib-agentd.8" | tr -s ' ,.\n' '\n' |
	grep -vxE 'Events|are|and|')
diff <(echo "$events" | sort) <(echo "$listed" | sort) || { echo "events differ: mpib-agentd.8"; bad=1; }
in_table=$(sed -n 's/^| `\([a-z-]*\)` |.*/\1/p' "$docs/operators.md")
diff <(echo "$events" | sort) <(echo "$in_table" | sort) || { echo "events differ: operators.md"; bad=1; }
[ "$(grep -c '^journalctl ' "$docs/operators.md")" -eq 11 ] || { echo "not eleven queries"; bad=1; }

# What an event's catalog text tells to do is what the operators' table tells: the same commands, and
# none in other words.
commands_in() {
	tr -s '\n' ' ' | grep -oE '(systemctl|mpibctl) [a-z]+' | sort -u
}
ids=$(tr -d '\n' <"$source/agent/journal/journal.c" |
	grep -oE '\[MPIB_EVENT_[A-Z_]+\] = \{ "[a-z-]+",[[:space:]]*"[0-9a-f]{32}"' |
	sed -E 's/.*"([a-z-]+)",[[:space:]]*"([0-9a-f]+)".*/\1 \2/')
diff <(echo "$events" | sort) <(cut -d' ' -f1 <<<"$ids" | sort) || { echo "ids of events not found"; bad=1; }
while read -r event id; do
	text=$(sed -n "/^-- $id\$/,/^-- /p" "$source/systemd/mpib.catalog" | sed '1,/^$/d;/^-- /d')
	[ -n "$text" ] || { echo "no catalog text: $event"; bad=1; }
	diff <(commands_in <<<"$text") <(grep "^| \`$event\` |" "$docs/operators.md" | commands_in) ||
		{ echo "catalog and operators.md tell other commands: $event"; bad=1; }
	! tr -s '\n' ' ' <<<"$text" | sed -E 's/(systemctl|mpibctl) [a-z]+//g' | grep -wE 'restart|reload' ||
		{ echo "catalog tells to restart or reload without the command: $event"; bad=1; }
done <<<"$ids"

# Each field of an entry is in the page, and each exit code of mpibctl.
fields=$(cat "$source"/agent/journal/*.c | grep -oE 'MPIB_[A-Z_]+=%' | tr -d '=%' | sort -u)
[ "$(wc -l <<<"$fields")" -ge 18 ] || { echo "fields of entries not found"; bad=1; }
for field in $fields; do
	grep -qE "^\.Sy $field( |\$)" "$docs/mpib-agentd.8" || { echo "no field $field"; bad=1; }
done
codes=$(sed -n 's/^\tMPIB_CTL_[A-Z_]* = \([0-9]*\).*/\1/p' "$source/agent/ctl/ctl.h")
in_page=$(sed -n '/^\.Sh EXIT STATUS/,/^\.El/s/^\.It \([0-9]*\)$/\1/p' "$docs/mpibctl.1")
diff <(echo "$codes") <(echo "$in_page") || { echo "exit codes differ"; bad=1; }

for page in "$docs"/*.[1-8]; do
	command -v groff >/dev/null || { echo "groff is missing: pages aren't formatted"; break; }
	said=$(groff -mandoc -Tutf8 -ww "$page" 2>&1 >/dev/null)
	[ -z "$said" ] || { echo "$page: $said"; bad=1; }
done
exit $bad
