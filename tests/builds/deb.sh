#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The .deb packages: deb.sh TREE BUILD. Made by the documented command, judged by lintian, and held against a list of
# what is in which; what their scripts do is tests/lab/cases/50-packages.sh.
set -euo pipefail

tree=$1 build=$2
for tool in dpkg-buildpackage dh lintian; do
	command -v $tool >/dev/null || {
		echo "skipped: $tool is not installed"
		exit 77
	}
done
[ "$(uname -m)" = x86_64 ] || {
	echo "skipped: the list is that of amd64"
	exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

wrong() {
	echo "$*"
	bad=1
}

"$tree/tests/builds/debs" "$tree" "$build/builds/deb"
cp "$build"/builds/deb/*.deb "$work"
version=$(meson introspect "$build" --projectinfo | jq -r .version)-1

# has PACKAGE ARCHITECTURE FILE…: these files, and beside them those that each package has.
has() {
	local package=$1 file

	file=$work/$1_${version}_$2.deb
	shift 2
	diff <(printf '/%s\n' "$@" "usr/share/doc/$package/"{changelog.Debian.gz,changelog.gz,copyright} | sort) \
		<(dpkg-deb --fsys-tarfile "$file" | tar -t | sed -n 's|^\./\(.*[^/]\)$|/\1|p' |
			grep -v '^/usr/share/lintian/' | sort) || wrong "$package: the files above are missing (<) or too many (>)"
	[ "$(dpkg-deb -f "$file" Version)" = "$version" ] || wrong "$package is not of version $version"
}

has mpib-agent amd64 etc/mpib/agent.ini lib/systemd/system-preset/80-mpib.preset \
	lib/systemd/system/mpib-{agentd.service,agentd.socket,metrics.service,metrics.timer} usr/bin/mpibctl \
	usr/lib/{systemd/catalog/mpib.catalog,sysusers.d/mpib.conf,tmpfiles.d/mpib.conf} usr/sbin/mpib-agentd \
	usr/share/bash-completion/completions/mpibctl usr/share/doc/mpib-agent/{install,operators}.md.gz \
	usr/share/man/{man1/mpibctl.1,man5/mpib-agent.ini.5,man8/mpib-agentd.8}.gz \
	usr/share/mpib/{grafana/mpib-dashboard.json,image/{Containerfile,job.yaml,mpib-agentd.yaml},modulefile,prometheus/mpib.rules.yml}
has libnccl-net-mpib amd64 usr/lib/x86_64-linux-gnu/libnccl-net-mpib.so usr/share/man/man7/mpib.7.gz
has mpib-netperf amd64 usr/bin/mpib-netperf usr/share/man/man1/mpib-netperf.1.gz
has mpib-dev all usr/include/mpib/mpib_agent_iface.h
[ "$(find "$work" -name '*.deb' | wc -l)" = 4 ] || wrong "other packages: $(ls "$work")"

agent=$work/mpib-agent_${version}_amd64.deb
[ "$(dpkg-deb -I "$agent" conffiles)" = /etc/mpib/agent.ini ] || wrong "agent.ini is no conffile"
# An upgrade restarts, by the policy of the host, and stops nothing before; the user is there before its files.
dpkg-deb -I "$agent" postinst >"$work/postinst"
grep -q '_dh_action=restart' "$work/postinst" || wrong "an upgrade doesn't restart the agent"
grep -q 'deb-systemd-invoke ._dh_action .mpib-agentd.service' "$work/postinst" || wrong "the agent isn't started by policy"
! grep -E 'deb-systemd-invoke.*(metrics|socket)' "$work/postinst" || wrong "it starts what is a choice"
order=$(grep -oE '^\s*systemd-(sysusers|tmpfiles) |deb-systemd-invoke' "$work/postinst" | tr -d '[:blank:]' | paste -sd' ')
[ "$order" = "systemd-sysusers systemd-tmpfiles deb-systemd-invoke" ] || wrong "the order is $order"
[[ $(dpkg-deb -f "$work/libnccl-net-mpib_${version}_amd64.deb" Depends) == *libibverbs1* ]] ||
	wrong "the plugin doesn't need libibverbs, which it opens at run time"
# In whatever image a job brings: docs/install.md says from which releases on.
dpkg-deb --fsys-tarfile "$work/libnccl-net-mpib_${version}_amd64.deb" | tar -xO --wildcards '*/libnccl-net-mpib.so' >"$work/plugin"
newest=$(objdump -T "$work/plugin" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
[ "$(printf '%s\n' GLIBC_2.34 "$newest" | sort -V | tail -n 1)" = GLIBC_2.34 ] || wrong "the plugin needs $newest"
grep -q 'needs glibc 2\.34' "$tree/docs/install.md" || wrong "docs/install.md tells another glibc"

lintian --allow-root --no-cfg --fail-on error --suppress-tags initial-upload-closes-no-bugs,no-manual-page \
	"$work"/*.deb || wrong "lintian has errors"
[ $bad != 0 ] || echo "four packages of $version"
exit $bad
