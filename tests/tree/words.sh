#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Work that is put off is an issue, not a word in the source; and no line ends in blanks.
. "$(dirname "$0")/lib.sh"

# In pieces, so that this file doesn't contain them.
later="TO""DO|FIX""ME|X""XX|HA""CK|place""holder"

files=$(tree_files | grep -Ev '^LICENSE$|^tests/(fuzz/corpus|ini/good|ini/bad|agent/earlier/[0-9a-f]+)/')

# look PATTERN WHY
look() {
	found=$(printf '%s\n' "$files" | xargs -d '\n' grep -nE "$1" /dev/null)
	[ -z "$found" ] || bad "$2:
$found"
}

look "\\b($later)\\b" "says that something is left to do"
look '[[:blank:]]+$' "blanks at the end of a line"

finish "$(printf '%s\n' "$files" | grep -c .)"
