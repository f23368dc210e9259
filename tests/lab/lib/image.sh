# SPDX-License-Identifier: Apache-2.0
# The nodes' disk: a Debian 12 with systemd, a stock kernel and rdma-core, built once for each
# version of the recipe (this file and image/) and kept outside the tree.
# shellcheck shell=bash

image_key() {
	cat "$LAB_ROOT"/lib/image.sh "$LAB_ROOT"/image/* | sha256sum | cut -c1-16
}

image_dir() {
	printf '%s\n' "$LAB_CACHE/$(image_key)"
}

# image_ensure: builds the image unless it is there. Two labs that start together build it once.
image_ensure() {
	local dir

	dir=$(image_dir)
	if [ -e "$dir/disk.img" ]; then
		touch "$dir"
		return
	fi
	mkdir -p "$LAB_CACHE"
	(
		flock 9
		[ -e "$dir/disk.img" ] || (enter --pid -- inner-image "$dir")
	) 9>"$LAB_CACHE/lock" || die "the image could not be built"
}

# image_sources: the machine's own Debian archives, as apt knows them, as lines of a sources.list.
image_sources() {
	local format='deb $(REPO_URI) $(RELEASE) $(COMPONENT) $(ORIGIN) $(CODENAME)'

	apt-get indextargets --format "$format" 'Created-By: Packages' |
		awk '$5 == "Debian" && $6 ~ /^bookworm/ { print $1, $2, $3, $4 }' | sort -u
}

# image_apt_options: how the machine's apt reaches its archives (a proxy, relaxed dates), for the
# apt that mmdebstrap runs.
image_apt_options() {
	apt-config dump | grep -E \
		'^(Acquire::(https?::|Check-(Valid-Until|Date)|Retries|ForceIPv4|Languages))' || true
}

image_build() {
	local dir=$1 work log started=$SECONDS

	say "building the image (once; some minutes)"
	# What an interrupted build left, and images that nobody has used for long.
	find "$LAB_CACHE" -mindepth 1 -maxdepth 1 -name 'build.??????' -exec rm -rf {} +
	find "$LAB_CACHE" -mindepth 1 -maxdepth 1 -type d -mtime +14 -exec rm -rf {} +
	work=$(mktemp -d "$LAB_CACHE/build.XXXXXX")
	log=$LAB_CACHE/build.log
	if ! image_build_in "$work" >"$log" 2>&1 </dev/null; then
		tail -30 "$log" >&2
		rm -rf --one-file-system "$work"
		return 1
	fi
	rm -rf --one-file-system "$work/root"
	mv "$work" "$dir"
	say "image built in $((SECONDS - started)) s: $dir"
}

image_build_in() {
	local work=$1 root=$1/root size
	local -a no_files=()
	local path

	[ -n "$(image_sources)" ] || apt-get -o DPkg::Lock::Timeout=600 update
	image_sources >"$work/sources.list"
	image_apt_options >"$work/apt.conf"
	[ -s "$work/sources.list" ] || { echo "apt knows no archive of Debian bookworm"; return 1; }

	# Documentation and drivers of hardware that no node has: a third of the unpacking.
	for path in /usr/share/{doc,man,info,locale,lintian,bash-completion} \
		'/lib/modules/*/kernel/sound' \
		'/lib/modules/*/kernel/drivers/'{gpu,media,iio,staging,usb,bluetooth,isdn,hid,input,scsi,mtd} \
		'/lib/modules/*/kernel/drivers/net/'{wireless,ethernet,can,usb,wan,hamradio} \
		'/lib/modules/*/kernel/fs/'{ocfs2,btrfs,xfs,ceph,nfs,nfsd,smb,gfs2,f2fs,jfs}; do
		no_files+=("--dpkgopt=path-exclude=$path/*")
	done

	mmdebstrap --variant=minbase --mode=root --format=directory \
		--aptopt="$work/apt.conf" "${no_files[@]}" \
		--include="$(grep -v '^#' "$LAB_ROOT/image/packages" | paste -sd,)" \
		--essential-hook="$LAB_ROOT/image/essential \"\$1\"" \
		--customize-hook="$LAB_ROOT/image/customize \"\$1\"" \
		bookworm "$root" "$work/sources.list" || return 1

	cp "$root"/boot/vmlinuz-* "$work/vmlinuz" && cp "$root"/boot/initrd.img-* "$work/initrd.img" ||
		return 1
	rm -rf "${root:?}"/boot/*
	size=$(($(du -sm "$root" | cut -f1) + 512))
	mke2fs -q -t ext4 -L mpib-lab -O ^has_journal -m 0 -d "$root" "$work/disk.new" "${size}M" ||
		return 1
	mv "$work/disk.new" "$work/disk.img"
}
