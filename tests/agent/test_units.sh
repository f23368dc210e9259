#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The systemd files by systemd's own judgement: units verify clean, exposure at most 2.0, the
# directory is made with its owner and mode, and the cleaner leaves it alone; the order of a node's
# start holds, and has no cycle, with the drop-in of the operators' page.
# test_units.sh SERVICE SOCKET METRICS TIMER TMPFILES SYSUSERS AGENTD MPIBCTL PAGE
set -euo pipefail

service=$1 socket=$2 metrics=$3 timer=$4 tmpfiles=$5 sysusers=$6
agentd=$(realpath "$7") mpibctl=$(realpath "$8") page=$9
for tool in systemd-analyze systemd-tmpfiles systemd-sysusers; do
	command -v "$tool" >/dev/null || { echo "SKIP: $tool is missing"; exit 77; }
done

work=$(mktemp -d /tmp/mpib-units-XXXXXX)
trap 'rm -rf "$work"' EXIT

echo "== verify"
sed -e "s|^ExecStart=.*|ExecStart=$agentd|" -e "s|^ExecReload=.*|ExecReload=$mpibctl reload|" \
	"$service" >"$work/mpib-agentd.service"
sed -e "s|^ExecStart=[^ ]*|ExecStart=$mpibctl|" "$metrics" >"$work/mpib-metrics.service"
cp "$socket" "$work/mpib-agentd.socket"
cp "$timer" "$work/mpib-metrics.timer"
said=$(cd "$work" && systemd-analyze verify --man=no ./mpib-agentd.service ./mpib-agentd.socket \
	./mpib-metrics.service ./mpib-metrics.timer 2>&1) ||
	said="systemd-analyze failed: $said"
[ -z "$said" ] || { echo "$said"; exit 1; }

echo "== order"
# The units of others as their packages have them, in what matters here.
mkdir -p "$work/node/slurmd.service.d"
cp "$work/mpib-agentd.service" "$work/node/"
awk '/^```/ { on = /ini/; slurm = 0; next } on && /slurmd.service.d/ { slurm = 1 } slurm' \
	"$page" >"$work/node/slurmd.service.d/mpib.conf"
grep -q '^Wants=mpib-agentd.service' "$work/node/slurmd.service.d/mpib.conf" ||
	{ echo "the page has no drop-in for slurmd"; exit 1; }
printf '[Unit]\nDescription=RDMA\nStopWhenUnneeded=yes\nBefore=network.target\n' \
	>"$work/node/rdma-hw.target"
for name in slurmd kubelet; do
	printf '[Unit]\nDescription=%s\nAfter=network-online.target remote-fs.target\n%s\n%s\n' \
		$name 'Wants=network-online.target rdma-hw.target' '[Service]' >"$work/node/$name.service"
	echo 'ExecStart=/bin/true' >>"$work/node/$name.service"
done
order() {
	(cd "$work/node" && SYSTEMD_UNIT_PATH="$work/node:" systemd-analyze verify --man=no \
		./mpib-agentd.service ./slurmd.service ./kubelet.service 2>&1) || true
}
said=$(order)
[ -z "$said" ] || { echo "$said"; exit 1; }
for edge in After=rdma-hw.target Before=slurmd.service Before=kubelet.service; do
	grep -q "^${edge%%=*}=.*${edge#*=}" "$service" || { echo "the unit has no $edge"; exit 1; }
done
# The drop-in that moves the agent's directory is one that systemd understands, whole.
mkdir -p "$work/node/mpib-agentd.service.d"
awk '/^```/ { on = /ini/; next } on && /mpib-agentd.service.d/ { moved = 1 } !on { moved = 0 } moved' \
	"$page" >"$work/node/mpib-agentd.service.d/directory.conf"
grep -q '^RuntimeDirectoryPreserve=yes' "$work/node/mpib-agentd.service.d/directory.conf" ||
	{ echo "the page has no drop-in for another directory"; exit 1; }
said=$(order)
[ -z "$said" ] || { echo "$said"; exit 1; }
# The same judgement finds a cycle where there is one.
printf '[Unit]\nAfter=slurmd.service\n' >>"$work/node/rdma-hw.target"
said=$(order)
grep -q 'ordering cycle' <<<"$said" || { echo "a cycle is not found: $said"; exit 1; }

echo "== exposure"
for unit in mpib-agentd mpib-metrics; do
	threshold=20
	[ $unit = mpib-agentd ] || threshold=30 # it runs as root, to write the collector's directory
	systemd-analyze security --offline=yes --threshold=$threshold --no-pager "$work/$unit.service" |
		tail -1
done

echo "== directory and cleaner"
root=$work/root
mkdir -p "$root"/{etc,tmp,usr/lib/tmpfiles.d,usr/lib/sysusers.d,var/tmp}
cp "$tmpfiles" "$root/usr/lib/tmpfiles.d/mpib.conf"
cp "$sysusers" "$root/usr/lib/sysusers.d/mpib.conf"
if ! systemd-sysusers --root="$root" 2>"$work/err"; then
	cat "$work/err"
	echo "SKIP: can't make users below another root"
	exit 77
fi
grep -q '^mpib:' "$root/etc/passwd"
# The distribution's rule for /tmp, with an age that a test can wait for.
echo 'd /tmp 1777 root root 1s' >"$root/usr/lib/tmpfiles.d/tmp.conf"
systemd-tmpfiles --root="$root" --create
mode=$(stat -c '%a %u' "$root/tmp/mpib")
uid=$(awk -F: '$1 == "mpib" { print $3 }' "$root/etc/passwd")
[ "$mode" = "755 $uid" ] || { echo "directory is $mode, wanted 755 $uid"; exit 1; }

touch "$root/tmp/control" "$root/tmp/mpib/hints" "$root/tmp/mpib/agent.sock"
for ((n = 0; n < 100; n++)); do
	systemd-tmpfiles --root="$root" --clean
	[ -e "$root/tmp/control" ] || break
	sleep 0.1 # the age passes, nothing tells when
done
[ ! -e "$root/tmp/control" ] || { echo "the cleaner removed nothing at all"; exit 1; }
for name in hints agent.sock; do
	[ -e "$root/tmp/mpib/$name" ] || { echo "the cleaner removed $name"; exit 1; }
done
echo "== good"
