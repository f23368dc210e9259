#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Who may include whom:
#
#   common  libc
#   plugin  common, libibverbs, libc
#   agent   common, libsystemd, inih, libc
#   tests   everything, and nobody else includes tests
#
# and within plugin and agent the arrows among their rooms, which rooms.py has.
#
# Names in quotes start at the top of the tree; a .c file includes its own header first of all.
# Headers don't include each other in circles. Files that are pure reach neither verbs nor systemd
# nor inih, not even through another header.
. "$(dirname "$0")/lib.sh"

# The C library's own headers and the kernel's: no folder, or one of these.
libc='^([a-z0-9_]+|(arpa|asm|linux|net|netinet|netpacket|rpc|sys)/[a-z0-9_/-]+)\.h$'
not_libc='^(cmocka|cuda|cuda_runtime|ini|nccl|nccl_net|numa)\.h$'

# No I/O and no state: what fuzzers and unit tests call without any set-up.
pure='^(plugin/(wire/(failover|handshake|imm)|base/nccl_abi)|agent/(policy/(balance|policy)|slots/registry))\.[ch]$'

# may_include FROM HEADER: for names in <>.
may_include() {
	case $1:$2 in
	plugin:infiniband/*) return 0 ;;
	agent:systemd/* | agent:ini.h) return 0 ;;
	esac
	[[ $2 =~ $libc ]] && [[ ! $2 =~ $not_libc ]]
}

# check_include FILE FOLDER LINE-NUMBER KIND NAME
check_include() {
	local where="$1:$3: includes $5"

	if [ "$4" = '<' ]; then
		may_include "$2" "$5" || bad "$where, which $2 may not use"
		return
	fi

	[[ $1 == *.h ]] && edges+="$1 $5"$'\n'
	case $5 in
	common/* | "$2"/*) [ -f "$5" ] || bad "$where, which isn't there" ;;
	plugin/* | agent/* | tests/*) bad "$where, which $2 may not use" ;;
	*) bad "$where, not by its name from the top of the tree" ;;
	esac
}

count=0
edges=
pattern='^[[:space:]]*#[[:space:]]*include[[:space:]]+([<"])([^">]+)[">]'

# shellcheck disable=SC2094 # the file is named in messages, never written
check_file() {
	local file=$1 folder=${1%%/*} own=${1%.c}.h number=0 first=yes line name

	while IFS= read -r line || [ -n "$line" ]; do
		number=$((number + 1))
		[[ $line =~ $pattern ]] || continue
		name=${BASH_REMATCH[2]}
		check_include "$file" "$folder" "$number" "${BASH_REMATCH[1]}" "$name"
		if [ $first = yes ] && [ "$own" != "$file" ] && [ -f "$own" ] &&
			[ "$name" != "$own" ]; then
			bad "$file:$number: its own header has to come first"
		fi
		first=no
		count=$((count + 1))
	done <"$file"
}

while IFS= read -r file; do
	check_file "$file"
done < <(tree_files | grep -E '^(common|plugin|agent)/.*\.[ch]$')

# tsort names the members of a circle on its standard error.
if ! circle=$(printf '%s' "$edges" | tsort 2>&1 >/dev/null); then
	bad "headers include each other in a circle: $circle"
fi

# reach FILE: the names that FILE includes, in quotes or not, and what those include, and so on.
reach() {
	local queue=("$1") seen=" " file name

	while [ ${#queue[@]} -gt 0 ]; do
		file=${queue[0]}
		queue=("${queue[@]:1}")
		[[ $seen == *" $file "* ]] && continue
		seen+="$file "
		[ -f "$file" ] || continue
		while IFS= read -r name; do
			queue+=("$name")
		done < <(sed -nE 's/^[[:blank:]]*#[[:blank:]]*include[[:blank:]]+[<"]([^">]+).*/\1/p' "$file")
	done
	printf '%s\n' "$seen"
}

while IFS= read -r file; do
	[[ $file =~ $pure ]] || continue
	[[ $(reach "$file") =~ \ (infiniband/[^ ]*|systemd/[^ ]*|ini\.h)\  ]] || continue
	bad "$file: reaches ${BASH_REMATCH[1]}, and is meant to be pure"
done < <(tree_files)

"$(dirname "$0")/rooms.py" "$top" || bad "rooms: see above"

finish "$count"
