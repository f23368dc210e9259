# SPDX-License-Identifier: Apache-2.0
# Completion of mpibctl for bash. Commands and options come from the program itself.
_mpibctl()
{
	local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
	local help words

	COMPREPLY=()
	case $previous in
	--dir | --root)
		mapfile -t COMPREPLY < <(compgen -d -- "$current")
		return
		;;
	check | --output)
		mapfile -t COMPREPLY < <(compgen -f -- "$current")
		return
		;;
	explain | set | unset)
		words=$(mpibctl --json flows 2>/dev/null | sed -n 's/.*"flow": "\([^"]*\)".*/\1/p')
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
		return
		;;
	--sort)
		words=$(mpibctl --sort '?' flows 2>&1 | sed -n 's/^columns: //p')
		[[ $current != -* ]] || words=$(printf -- '-%s ' $words)
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
		return
		;;
	--peer | --island)
		words='src dst'
		[ "$previous" = --peer ] || words='src_island dst_island'
		words=$(for word in $words; do
			mpibctl --json flows 2>/dev/null | sed -n "s/.*\"$word\": \"\([^\"]*\)\".*/\1/p"
		done | sort -u)
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
		return
		;;
	--pid)
		words=$(ps -u "$UID" -o pid= 2>/dev/null)
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
		return
		;;
	--for)
		mapfile -t COMPREPLY < <(compgen -W '30s 10m 1h 1d' -- "$current")
		return
		;;
	esac

	help=$(mpibctl --help 2>/dev/null)
	if [[ $current == -* ]]; then
		words=$(sed -n 's/^ *\(--[a-z]*\).*/\1/p' <<<"$help")
	else
		words=$(sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' <<<"$help")
	fi
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -F _mpibctl mpibctl
