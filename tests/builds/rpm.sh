#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The .rpm packages: rpm.sh TREE BUILD. Made by the documented command, judged by rpmlint, and held against a list of
# what is in which. On Debian the macros of systemd are stand-ins: what scripts do in EL9 isn't tried.
set -euo pipefail

tree=$1 build=$2
for tool in rpmbuild rpmlint; do
	command -v $tool >/dev/null || {
		echo "skipped: $tool is not installed"
		exit 77
	}
done
[ "$(uname -m)" = x86_64 ] || {
	echo "skipped: the list is that of x86_64"
	exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

wrong() {
	echo "$*"
	bad=1
}

"$tree/systemd/rpm/build" "$work"
version=$(meson introspect "$build" --projectinfo | jq -r .version)

# has PACKAGE ARCHITECTURE FILE…: these files, and beside them documents and licence.
has() {
	local package=$1 file=$work/$1-$version-1.$2.rpm

	shift 2
	diff <(printf '/%s\n' "$@" | sort) \
		<(rpm -qlp "$file" 2>/dev/null | sed 's/\.gz$//' | grep -vE '^/usr/(share/(doc|licenses)|lib/\.build-id)' | sort) ||
		wrong "$package: the files above are missing (<) or too many (>)"
}

has mpib-agent x86_64 etc/mpib etc/mpib/agent.ini usr/lib/systemd/system-preset/80-mpib.preset \
	usr/lib/systemd/system/mpib-{agentd.service,agentd.socket,metrics.service,metrics.timer} usr/bin/mpibctl \
	usr/lib/{systemd/catalog/mpib.catalog,sysusers.d/mpib.conf,tmpfiles.d/mpib.conf} usr/sbin/mpib-agentd \
	usr/share/bash-completion/completions/mpibctl \
	usr/share/man/{man1/mpibctl.1,man5/mpib-agent.ini.5,man8/mpib-agentd.8} \
	usr/share/mpib{,/grafana,/grafana/mpib-dashboard.json,/image,/image/{Containerfile,job.yaml,mpib-agentd.yaml},/modulefile,/prometheus,/prometheus/mpib.rules.yml}
has libnccl-net-mpib x86_64 usr/lib64/libnccl-net-mpib.so usr/share/man/man7/mpib.7
has mpib-netperf x86_64 usr/bin/mpib-netperf usr/share/man/man1/mpib-netperf.1
has mpib-devel noarch usr/include/mpib usr/include/mpib/mpib_agent_iface.h
[ "$(rpm -qcp "$work/mpib-agent-$version-1.x86_64.rpm" 2>/dev/null)" = /etc/mpib/agent.ini ] ||
	wrong "agent.ini is no file of configuration"

rpmlint -c "$tree/systemd/rpm/rpmlint.toml" "$work"/*.rpm "$work/mpib.spec" >"$work/lint" 2>&1 || true
grep -qE ' 0 errors' "$work/lint" || {
	cat "$work/lint"
	wrong "rpmlint has errors, or no verdict"
}
[ $bad != 0 ] || echo "four packages of $version"
exit $bad
