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
