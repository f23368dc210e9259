#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The images of systemd/image: image.sh TREE BUILD. Both are built from packages of BUILD's files. The agent runs as
# mpib-agentd.yaml says, once for each of two nodes of the software fabric, and mpib-netperf registers with it from
# outside, with the plugin that the other image has copied. Its health check is green, and red while it is stopped;
# SIGTERM ends it, and another container of it takes the job over.
# shellcheck disable=SC2016,SC2119,SC2154,SC2317 # what others expand; what pair.sh sets, and calls
tree=$1 build=$2
for tool in podman runc dpkg-deb apt-cache jq; do
	command -v $tool >/dev/null || {
		echo "skipped: $tool is not installed"
		exit 77
	}
done
if [ "$(id -u)" != 0 ] || ! unshare --mount --pid --fork true; then
	echo "skipped: containers want root, and namespaces"
	exit 77
fi
export NETPERF=$build/tests/netperf/mpib-netperf FABRIC_LIB=$build/tests/fabric/lib
# shellcheck source=tests/ground/pair.sh
. "$tree/tests/ground/pair.sh"
ground_open fabric image
agent_dir=$work/agent
containers=()

# What a machine of tests may lack: networks, limits that can be raised, systemd.
cat >"$work/containers.conf" <<-END
	[containers]
	netns = "host"
	log_driver = "k8s-file"
	default_ulimits = ["nofile=1024:$(ulimit -Hn)", "nproc=1024:$(($(ulimit -Hu | sed 's/unlimited/65536/') / 4))"]
	[engine]
	runtime = "runc"
	cgroup_manager = "cgroupfs"
	events_logger = "file"
END
export CONTAINERS_CONF=$work/containers.conf
pod() {
	podman --root "$work/store" --runroot "$work/run" --log-level error "$@"
}
# no_cgroups: each container's keeper cleans up after it, in the folders that are removed here, and ends then.
no_cgroups() {
	find /sys/fs/cgroup -depth -type d -path "*/mpib-image-$$*" -exec rmdir {} \; 2>/dev/null
	[ -z "$(find /sys/fs/cgroup -type d -path "*/mpib-image-$$*" 2>/dev/null)" ]
}
end_containers() {
	[ ${#containers[@]} = 0 ] || pod rm -f -t 1 "${containers[@]}" >/dev/null 2>&1
	until_true 10 no_cgroups
	umount --lazy "$work/store/overlay" 2>/dev/null
	clean_up
}
trap end_containers EXIT

# packages: one with all that BUILD installs.
packages() {
	mkdir "$work/context"
	DESTDIR='' meson install -C "$build" --no-rebuild --destdir "$work/stage" >"$work/install.log" 2>&1 || die "meson install"
	mkdir "$work/stage/DEBIAN"
	printf '%s\n' 'Package: mpib' 'Version: 0' 'Architecture: all' 'Maintainer: nobody' 'Description: all' \
		>"$work/stage/DEBIAN/control"
	dpkg-deb --root-owner-group -Znone -b "$work/stage" "$work/context/mpib.deb" >/dev/null || die "dpkg-deb"
}

# base: a small Debian of this machine's own files: what is essential, dpkg and apt, and the libraries that RUN would
# bring, so that no archive is asked. As dpkg unpacked it, without what scripts of packages do.
base() {
	local packages

	# shellcheck disable=SC2046 # words
	packages=$(apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts --no-breaks \
		--no-replaces --no-enhances $(dpkg-query -W -f '${Essential} ${Package}\n' | sed -n 's/^yes //p') \
		apt libinih1 libsystemd0 | sed -n 's/^\([a-z0-9][^ ]*\)$/\1/p' | sort -u)
	# shellcheck disable=SC2086 # words
	{
		dpkg -L $packages 2>/dev/null | grep -vE '^/usr/share/(doc|man|locale|info|zoneinfo|perl)|^/(bin|sbin|lib|lib64)$'
		printf '%s\n' /etc/passwd /etc/group /var/lib/dpkg/status
	} | sort -u >"$work/base.list"
	tar -C / --no-recursion --ignore-failed-read -T "$work/base.list" -cf - 2>"$work/base.log" |
		pod import --quiet - mpib-base >/dev/null || die "podman import"
}

# image TARGET
image() {
	pod build --quiet --format docker --cgroup-parent "mpib-image-$$" --build-arg BASE=localhost/mpib-base \
		--file "$tree/systemd/image/Containerfile" --target "$1" --tag "mpib-$1" "$work/context" \
		>"$work/build-$1.log" 2>&1 || die "image $1"
}

# of FILTER: of the DaemonSet's container.
of() {
	python3 -c 'import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))' \
		<"$tree/systemd/image/mpib-agentd.yaml" | jq -r ".spec.template.spec.containers[0] | $1"
}

# run_agent NODE: as the manifest says; that it says so is tests/agent/test_manifest.py's.
run_agent() {
	mkdir "$work/agent$1"
	chmod 755 "$work" "$work/agent$1"
	containers+=("agent$1")
	# shellcheck disable=SC2046 # words
	pod run --detach --name "agent$1" --cgroup-parent "mpib-image-$$" --pid host --network none \
		--user "$(of .securityContext.runAsUser)" --read-only --read-only-tmpfs=false --cap-drop ALL \
		--security-opt no-new-privileges --volume "$work/agent$1:/tmp/mpib" --volume "$work/policy:/etc/mpib:ro" \
		mpib-agent $(of '.args[]') >"$work/run-agent$1" 2>&1 || die "the agent of node $1 doesn't run"
	until_true $GROUND_SECONDS pod healthcheck run "agent$1" >/dev/null 2>&1 || die "agent $1: no green health check"
}
agent_pid() {
	pod inspect --format '{{.State.Pid}}' "agent$1"
}
ctl() {
	"$build/agent/mpibctl" --dir "$work/agent$1" --json "${@:2}"
}

packages
base
image agent
image plugin

# The plugin, as the init container brings it: over one that is there, with the mode that a loader needs.
mkdir "$work/volume"
echo old >"$work/volume/libnccl-net-mpib.so"
exec 7<"$work/volume/libnccl-net-mpib.so"
pod run --rm --cgroup-parent "mpib-image-$$" --network none --read-only --read-only-tmpfs=false --cap-drop ALL \
	--security-opt no-new-privileges --volume "$work/volume:/mpib" mpib-plugin || die "the plugin isn't copied"
export PLUGIN=$work/volume/libnccl-net-mpib.so
cmp "$PLUGIN" "$(echo "$work"/stage/usr/lib/*/libnccl-net-mpib.so)" || die "another plugin"
[ "$(stat -c %a "$PLUGIN")" = 755 ] || [ "$(stat -c %a "$PLUGIN")" = 644 ] || die "its mode: $(stat -c %a "$PLUGIN")"
[ "$(cat <&7)" = old ] || die "the file that a job may have mapped was written over"

# A job outside of it.
mkdir "$work/policy"
printf '[policy]\nintra = 25%%\n' >"$work/policy/agent.ini"
run_agent 1
run_agent 2
grep -q '^CapEff:[[:blank:]]*0*$' "/proc/$(agent_pid 1)/status" || die "a capability is left"
pod exec agent1 sh -c 'touch /etc/x || touch /run/x || touch /var/x' 2>"$work/touch" && die "the root can be written"
export MPIB_MODE=1
start_listener
start_connector --end-file "$work/enough" bw --size 64k --seconds 60 --warmup 0 --check
registered() {
	[ "$(ctl 2 flows | jq '[.flows[] | select(.share == 256 and .connections == 1)] | length')" -ge 1 ]
}
until_true $GROUND_SECONDS registered || die "no flow with the policy's share: $(ctl 2 flows)"
ctl 2 flows | jq -e --argjson pid "$connector" 'any(.flows[]; .pid == $pid)' >/dev/null ||
	die "the agent doesn't know the job by the host's process: $(ctl 2 flows)"

# Health: green until it stops.
kill -STOP "$(agent_pid 2)"
! pod healthcheck run agent2 >"$work/health" 2>&1 || die "a stopped agent is healthy"
kill -CONT "$(agent_pid 2)"
until_true $GROUND_SECONDS pod healthcheck run agent2 >/dev/null 2>&1 || die "no green health check after it"

# The end, and another container of the same in its place: the job has its slot and goes on.
slot=$(ctl 2 flows | jq -c '[.flows[] | [.flow, .slot, .connections]]')
pod stop --time 20 agent2 >/dev/null 2>&1 || die "it doesn't stop"
[ "$(pod inspect --format '{{.State.ExitCode}}' agent2)" = 0 ] || die "SIGTERM ends it with an error"
pod start agent2 >/dev/null 2>&1 || die "it doesn't start again"
until_true $GROUND_SECONDS pod healthcheck run agent2 >/dev/null 2>&1 || die "no green health check after a restart"
[ "$(ctl 2 flows | jq -c '[.flows[] | [.flow, .slot, .connections]]')" = "$slot" ] || die "other slots: $slot, $(ctl 2 flows)"
touch "$work/enough"
finish
want 0 0
echo "both images; flow, slot and connections $slot before and after another container"
