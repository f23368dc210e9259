# SPDX-License-Identifier: Apache-2.0
# grounds: lab
# nodes: 2
# limit: 400
# One verbs program on two grounds: mpib-conform says the same over rxe and over the software
# fabric, but for the differences that tests/fabric/conform/rxe-differences explains.
# shellcheck shell=bash

explained=$LAB_TREE/tests/fabric/conform/rxe-differences
# What never comes on rxe need not be awaited for a minute.
absent=$(sed -n 's/^client \([^ ]*\) | no completion | .*/\1/p' "$explained" | paste -sd,)

# ended NAME STATUS: 1 is a check that differs, which is judged below.
ended() {
	[ "$2" -le 1 ] || fail "$1 ended with $2: $(tail -n 3 "$CASE_DIR/$1.out" "$CASE_DIR/$1.err")"
}

on_rxe() {
	local client=0 server=0
	LAB_TIMEOUT=170

	bg 2 rxe-server "exec /lab/mpib-conform -d sout -g 1 -a $absent"
	bg 1 rxe-client "exec /lab/mpib-conform -d sout -g 1 -a $absent $(oob 2)"
	bg_wait rxe-client || client=$?
	bg_wait rxe-server || server=$?
	ended rxe-client "$client"
	ended rxe-server "$server"
}

# fabric_end NODE NAME [SERVER]: in the background.
fabric_end() {
	MPIB_FABRIC_NODE=$1 timeout 60 "$LAB_BUILD/tests/fabric/conform/mpib-conform" -d sout -g 3 \
		${3:+"$3"} </dev/null >"$CASE_DIR/$2.out" 2>"$CASE_DIR/$2.err" &
	echo $! >"$CASE_DIR/$2.pid"
}

on_fabric() {
	local client=0 server=0

	export MPIB_FABRIC_DIR=$CASE_DIR/meeting LD_LIBRARY_PATH=$LAB_BUILD/tests/fabric/lib
	unset MPIB_FABRIC MPIB_FABRIC_NULL
	fabric_end 2 fabric-server
	fabric_end 1 fabric-client 127.0.0.1
	bg_wait fabric-client || client=$?
	bg_wait fabric-server || server=$?
	ended fabric-client "$client"
	ended fabric-server "$server"
	expect_eq "the fabric's own differences" "$client $server" "0 0"
}

# answers FILE: "CHECK | ANSWER" a line, without the verdict.
answers() {
	sed -nE '/^(ok|DIFF) /{ s/^(ok|DIFF) +//; s/ \(expected .*//; s/: / | /p; }' "$1"
}

# differences SIDE: as the file has them; both grounds must have made the same checks.
differences() {
	local checks

	answers "$CASE_DIR/rxe-$1.out" >"$CASE_DIR/rxe-$1.answers"
	answers "$CASE_DIR/fabric-$1.out" >"$CASE_DIR/fabric-$1.answers"
	checks=$(wc -l <"$CASE_DIR/fabric-$1.answers")
	expect_ge "$1's checks" "$checks" 100
	diff <(sed 's/ | .*//' "$CASE_DIR/rxe-$1.answers") <(sed 's/ | .*//' "$CASE_DIR/fabric-$1.answers") ||
		fail "$1: not the same checks"
	paste -d'|' "$CASE_DIR/rxe-$1.answers" "$CASE_DIR/fabric-$1.answers" |
		awk -F'[ ]?[|][ ]?' -v side="$1" '$2 != $4 { print side " " $1 " | " $2 " | " $4 }'
}

# listed: the differences that the file explains; one without a word below it is none.
listed() {
	awk '/^#/ { next }
		/^[a-z]/ { pending[++n] = $0; next }
		/^\t/ { for (k = 1; k <= n; k++) print pending[k]; n = 0; next }
		n { exit 1 }
		END { if (n) exit 1 }' "$explained" || fail "$explained: a difference without its reason"
}

on_rxe
on_fabric
{
	differences client
	differences server
} >"$CASE_DIR/differences"
listed >"$CASE_DIR/explained"
measured "checks: $(wc -l <"$CASE_DIR/rxe-client.answers") by the client, $(wc -l <"$CASE_DIR/rxe-server.answers") by the server; on rxe $(wc -l <"$CASE_DIR/differences") differ, $(wc -l <"$CASE_DIR/explained") are explained"
if ! diff <(sort "$CASE_DIR/explained") <(sort "$CASE_DIR/differences") >"$CASE_DIR/unexplained"; then
	cat "$CASE_DIR/unexplained"
	fail "differences that are not explained (>) or explained and not there (<)"
fi
