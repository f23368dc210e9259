#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One version for all parts, and what they tell of it: versions.sh TREE BUILD VERSION. The table of
# docs/install.md has this release's numbers in its first row.
set -euo pipefail

tree=$1 build=$2 version=$3
bad=0

wrong() {
	echo "$*"
	bad=1
}

# number FILE NAME: of the macro that one header has.
number() {
	local value

	value=$(sed -nE "s/^#define $2[[:blank:]]+([0-9]+)u?\$/\1/p" "$tree/$1")
	[[ $value =~ ^[0-9]+$ ]] || {
		echo "no $2 in $1" >&2
		return 1
	}
	echo "$value"
}

wire=$(number common/versions.h MPIB_WIRE_VERSION)
contract=$(number common/mpib_agent_iface.h MPIB_CONTRACT_VERSION)
state=$(number common/versions.h MPIB_STATE_VERSION)
counters=$(number common/counters.h MPIB_COUNTERS_VERSION)
overrides=$(number agent/state/overrides.h MPIB_OVERRIDES_VERSION)
netperf=$(number tests/netperf/ctl.h NP_CTL_VERSION)

# says WHAT WANTED GOT
says() {
	[ "$3" = "$2" ] || wrong "$1 says '$3', not '$2'"
}

[[ $version =~ ^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$ ]] || wrong "$version is no MAJOR.MINOR.PATCH"
line="$version (wire $wire, contract $contract, state $state)"
says mpib-agentd "mpib-agentd $line" "$("$build/agent/mpib-agentd" --version)"
says mpibctl "mpibctl $line" "$("$build/agent/mpibctl" --version)"
says mpib-netperf "mpib-netperf $version" "$("$build/tests/netperf/mpib-netperf" --version)"
grep -qaF "MPIB $version (wire $wire, contract $contract): mode" "$build/plugin/libnccl-net-mpib.so" ||
	wrong "the plugin has no line with $version, wire $wire, contract $contract"
says "mpib_build_info" "mpib_build_info{version=\"$version\",wire=\"$wire\",contract=\"$contract\",state=\"$state\"} 1" \
	"$("$build/agent/mpibctl" --dir /nonexistent metrics 2>/dev/null | grep '^mpib_build_info')"

says "docs/install.md, first row of the table" \
	"| $version | $wire | $contract | $counters | $state | $overrides | $netperf |" \
	"$(sed -n '/^| release | wire |/,/^$/p' "$tree/docs/install.md" | sed -n 3p)"
newest=$(sed -n 's/^## //p' "$tree/docs/changelog.md" | head -1)
[ "$newest" = Unreleased ] || [[ $newest =~ ^"$version"( |$) ]] ||
	wrong "docs/changelog.md begins with '$newest', neither Unreleased nor $version"
[ $bad != 0 ] || echo "all say $line"
exit $bad
