#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What is installed, and where: install.sh TREE BUILD. The plain build as a distribution has it; one with
# a prefix of its own, all below it, where what systemd doesn't look at is told; and folders that were
# asked for. All below DESTDIR.
set -euo pipefail

tree=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
claims=0

wrong() {
	echo "$*"
	exit 1
}

# says WHAT FILE TEXT: the file has the text.
says() {
	claims=$((claims + 1))
	grep -qaF -- "$3" "$2" || wrong "$1: ${2#"$work"} doesn't say: $3"
}

option() {
	meson introspect "$1" --buildoptions | jq -r --arg name "$2" '.[] | select(.name == $name).value'
}

# install FOLDER STAGE: what it says goes to STAGE.out.
install_to() {
	DESTDIR='' meson install -C "$1" --no-rebuild --destdir "$2" >"$2.out" 2>&1 || {
		cat "$2.out"
		wrong "$1 can't be installed"
	}
}

# contents WHAT STAGE PREFIX CONFIG LIBDIR UNITS REST: these files and no others; REST is where the
# other folders of systemd are.
contents() {
	local what=$1 stage=$2 prefix=$3 config=$4 libdir=$5 units=$6 rest=$7

	claims=$((claims + 1))
	diff <(
		sort <<-END_FILES
			$config/mpib/agent.ini
			$prefix/bin/mpib-netperf
			$prefix/bin/mpibctl
			$prefix/sbin/mpib-agentd
			$prefix/include/mpib/mpib_agent_iface.h
			$prefix/$libdir/libnccl-net-mpib.so
			$prefix/share/bash-completion/completions/mpibctl
			$prefix/share/mpib/grafana/mpib-dashboard.json
			$prefix/share/mpib/image/Containerfile
			$prefix/share/mpib/image/job.yaml
			$prefix/share/mpib/image/mpib-agentd.yaml
			$prefix/share/mpib/modulefile
			$prefix/share/mpib/prometheus/mpib.rules.yml
			$prefix/share/man/man1/mpib-netperf.1
			$prefix/share/man/man1/mpibctl.1
			$prefix/share/man/man5/mpib-agent.ini.5
			$prefix/share/man/man7/mpib.7
			$prefix/share/man/man8/mpib-agentd.8
			$rest/systemd/catalog/mpib.catalog
			${units}-preset/80-mpib.preset
			$rest/sysusers.d/mpib.conf
			$rest/tmpfiles.d/mpib.conf
			$units/mpib-agentd.service
			$units/mpib-agentd.socket
			$units/mpib-metrics.service
			$units/mpib-metrics.timer
		END_FILES
	) <(cd "$stage" && find . ! -type d -printf '/%P\n' | sort) ||
		wrong "$what: the files above are missing (<) or too many (>)"
}

# texts WHAT STAGE PREFIX CONFIG UNITS: programs and pages name what was installed.
texts() {
	local what=$1 stage=$2 prefix=$3 config=$4 units=$5 page

	says "$what" "$stage$units/mpib-agentd.service" "ExecStart=$prefix/sbin/mpib-agentd"
	says "$what" "$stage$units/mpib-agentd.service" "ExecReload=$prefix/bin/mpibctl reload"
	says "$what" "$stage$units/mpib-metrics.service" "ExecStart=$prefix/bin/mpibctl "
	says "$what" "$stage$prefix/sbin/mpib-agentd" "$config/mpib/agent.ini"
	for page in man5/mpib-agent.ini.5 man8/mpib-agentd.8; do
		says "$what" "$stage$prefix/share/man/$page" ".Pa $config/mpib/agent.ini"
		[ "$config" = /etc ] || ! grep -E '(^|[[:blank:]])/etc/mpib' "$stage$prefix/share/man/$page" ||
			wrong "$what: $page names a policy file that isn't read"
	done
}

# usual: as a distribution has it. Nothing needs to be told.
usual() {
	local units

	[ "$(option "$build" prefix) $(option "$build" sysconfdir)" = "/usr /etc" ] || {
		echo "skipped: $build is no build with --prefix=/usr --sysconfdir=/etc"
		exit 77
	}
	units=$(pkg-config --variable=systemdsystemunitdir systemd)
	install_to "$build" "$work/usr"
	contents /usr "$work/usr" /usr /etc "$(option "$build" libdir)" "$units" /usr/lib
	texts /usr "$work/usr" /usr /etc "$units"
	! grep 'systemd does not read' "$build/meson-logs/meson-log.txt" || wrong "/usr: a hint that isn't needed"
}

# apart: all below a prefix of its own; what it says to do names files that are there.
apart() {
	local prefix=/opt/mpib lto=$build/builds/gcc-release-lto path

	"$tree/tests/builds/compile.sh" "$tree" "$build" gcc-release-lto
	install_to "$lto" "$work/opt"
	contents $prefix "$work/opt" $prefix $prefix/etc "$(option "$lto" libdir)" \
		$prefix/lib/systemd/system $prefix/lib
	texts $prefix "$work/opt" $prefix $prefix/etc $prefix/lib/systemd/system
	for path in "systemctl link $prefix/lib/systemd/system/mpib-agentd.service" \
		"$prefix/lib/sysusers.d/mpib.conf /etc/sysusers.d/" "$prefix/lib/tmpfiles.d/mpib.conf /etc/tmpfiles.d/" \
		"$prefix/lib/systemd/catalog/mpib.catalog" "$prefix/lib/systemd/system-preset/80-mpib.preset"; do
		says $prefix "$lto/meson-logs/meson-log.txt" "$path"
	done
	sed -n '/systemd does not read/,/^$/s/^    //p' "$lto/meson-logs/meson-log.txt" | grep -oE "$prefix/[^ ]+" | while read -r path; do
		[ -e "$work/opt$path" ] || wrong "the hint names $path, which isn't installed"
	done
	says $prefix "$lto/meson-logs/meson-log.txt" "systemd does not read systemdsystemunitdir=$prefix/lib/systemd/system"
}

# asked: folders that were asked for, absolute and below the prefix.
asked() {
	local name

	"$tree/tests/setup" "$build/builds/asked" --prefix=/opt/mpib -Dsystemdsystemunitdir=/etc/systemd/system \
		-Dsysusersdir=/etc/sysusers.d -Dtmpfilesdir=own/tmpfiles.d -Dcatalogdir=/usr/lib/systemd/catalog \
		-Dsystemdsystempresetdir=/etc/systemd/system-preset
	meson introspect "$build/builds/asked" --installed | jq -r '.[]' >"$work/asked"
	for name in /etc/systemd/system/mpib-agentd.service /etc/systemd/system/mpib-metrics.timer \
		/etc/sysusers.d/mpib.conf /opt/mpib/own/tmpfiles.d/mpib.conf \
		/usr/lib/systemd/catalog/mpib.catalog /etc/systemd/system-preset/80-mpib.preset; do
		says asked "$work/asked" "$name"
	done
	says asked "$build/builds/asked/meson-logs/meson-log.txt" "systemd does not read tmpfilesdir=/opt/mpib/own/tmpfiles.d;"
}

mkdir -p "$build/builds"
usual
apart
asked
echo "$claims claims hold"
