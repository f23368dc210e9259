# SPDX-License-Identifier: Apache-2.0
# The second disk of every node: the installed build and the lab's own programs, one tar archive.
# shellcheck shell=bash

# payload_make FILE
payload_make() {
	local file=$1 stage built

	built=$(meson introspect --buildoptions "$LAB_BUILD" 2>/dev/null |
		jq -r '[.[] | select(.name == "prefix" or .name == "sysconfdir").value] | join(" ")')
	[ "$built" = "/usr /etc" ] || die "$LAB_BUILD is no build with --prefix=/usr --sysconfdir=/etc"

	stage=$(mktemp -d)
	chmod 755 "$stage" # it becomes the node's root folder
	if ! DESTDIR='' meson install -C "$LAB_BUILD" --no-rebuild --destdir "$stage" >"$stage.log" 2>&1; then
		cat "$stage.log" >&2
		rm -rf "$stage" "$stage.log"
		die "the build could not be installed"
	fi
	mkdir -p "$stage/lab" "$stage/etc/systemd/system/sysinit.target.wants"
	install -m 755 "$LAB_BUILD"/tests/lab/{labd,hold} "$LAB_BUILD/tests/fabric/conform/mpib-conform" \
		"$LAB_BUILD/tests/gin/gin-driver" \
		"$LAB_ROOT"/guest/{prepare,rails,reset} "$stage/lab/"
	install -m 644 "$LAB_ROOT/guest/labd.service" "$stage/etc/systemd/system/"
	ln -s ../labd.service "$stage/etc/systemd/system/sysinit.target.wants/labd.service"
	tar -C "$stage" --owner=0 --group=0 --numeric-owner -cf "$file" .
	rm -rf --one-file-system "$stage" "$stage.log"
}
