# SPDX-License-Identifier: Apache-2.0
# What must work, a function a case. Each runs in a shell of its own with an empty folder $CASE, and
# fails by `fail`. `cases GROUP` names a group's cases with their arguments.
# shellcheck shell=bash

GROUPS_ALL=(load results rings gdr gin training rails faults)

cases() {
	local ranks

	case $1 in
	load)
		printf '%s\n' "load_by_name wheel" "load_by_path wheel" "load_by_name system" \
			"load_by_path system" "no_agent" "no_agent_fallback"
		;;
	results)
		for ranks in $RANK_COUNTS; do
			printf '%s\n' "collectives $ranks wheel 1073741824" \
				"collectives $ranks system 4194304" "comms $ranks" "rounds $ranks" \
				"graph $ranks" "registered $ranks" "protocol $ranks LL" \
				"protocol $ranks LL128" "protocol $ranks Simple"
		done
		;;
	rings) [ "$RANKS_MOST" -lt 4 ] || printf '%s\n' ring_vanilla ring_advanced ring_edited ;;
	gdr)
		for ranks in $RANK_COUNTS; do
			printf '%s\n' "gdr $ranks plain" "gdr $ranks dmabuf"
		done
		;;
	gin) gin_cases ;;
	training) echo "training $RANKS_MOST" ;;
	rails) printf '%s\n' "training_cut $RANKS_MOST" "stream_cut 2" "both_cut_and_back 2" "vanilla_cut 2" ;;
	faults) printf '%s\n' "rank_killed $RANKS_MOST" "both_rails_cut" "sup_cut" ;;
	esac
}

# ---- loading -----------------------------------------------------------------------------------

# What NCCL's topology dump says of the one network device.
check_topology() {
	python3 - "$CASE/topo.xml" <<-'END' || fail "topology dump: $(grep '<net ' "$CASE/topo.xml")"
		import sys, xml.etree.ElementTree as tree
		nets = list(tree.parse(sys.argv[1]).iter("net"))
		assert len(nets) == 1, nets
		net = nets[0].attrib
		assert net["name"] == "sout+sup" and int(net["speed"]) == 500000, net
		assert int(net["port"]) >= 0 and int(net["guid"], 0) != 0 and net["gdr"] == "0", net
	END
	measured "$(grep -o '<net .*' "$CASE/topo.xml")"
}

load() {
	NCCL_LIB=$(nccl_lib "$1")
	[ -n "$NCCL_LIB" ] || skip "no NCCL of that kind here"
	fabric 2
	JOB_ENV+=("NCCL_TOPO_DUMP_FILE=$CASE/topo.xml" MPIB_GPUDIRECT=0)
	run_job load 2 collectives 65536
	expect_log "MPIB [0-9].*: mode vanilla"
	expect_log "Using network MPIB"
	check_topology
	measured "$(grep -h 'NCCL version' "$CASE"/load.*.out | head -n 1); $(job_log 'net plugin MPIB|network plugin' |
		head -n 1 | sed 's/.*NCCL INFO //')"
}

load_by_name() {
	net_vanilla
	NET+=(NCCL_NET_PLUGIN=mpib)
	load "$1"
}

load_by_path() {
	net_vanilla
	load "$1"
}

# With NCCL_NET=MPIB a plugin that refuses ends the job.
no_agent() {
	fabric 2
	net_advanced
	rank_job refused 2 collectives 65536
	! finish || fail "the job ran without an agent"
	expect_log "WARN.*agent"
	measured "$(job_log 'WARN.*agent' | head -n 1 | sed 's/.*WARN //')"
	[ "$(grep -c 'WARN.*agent' "$CASE/refused.0.nccl")" = 1 ] || fail "rank 0 said it more than once"
}

# Without it NCCL takes its own network, after the same line.
no_agent_fallback() {
	fabric 2
	NET=("${MPIB_ENV[@]}" MPIB_MODE=1 NCCL_IB_DISABLE=1)
	rank_job fallback 2 collectives 65536
	finish || fail "exit statuses ${JOB_RC[*]}: $(job_tell)"
	expect_log "WARN.*agent"
	expect_log "Using network Socket"
}

# ---- right results -------------------------------------------------------------------------------

collectives() {
	NCCL_LIB=$(nccl_lib "$2")
	[ -n "$NCCL_LIB" ] || skip "no NCCL of that kind here"
	fabric "$1"
	net_vanilla
	run_job collectives "$1" collectives "$3"
	expect_log "Using network MPIB"
	measured "$(cat "$CASE/collectives.0.out" | paste -sd';')"
}

comms() { simple "$1" comms; }
graph() { simple "$1" graph; }
registered() { simple "$1" registered; }
rounds() {
	# NCCL forgets the plugin's name when it unloads it (2.28.3 to 2.29.7).
	JOB_ENV+=(NCCL_NET_PLUGIN_REF_COUNT=1)
	simple "$1" rounds 50
	measured "$(grep -h descriptors "$CASE"/rounds.0.out)"
}

simple() {
	fabric "$1"
	policy '[policy]' 'intra = 50%'
	agents
	net_advanced
	run_job "$2" "$1" "${@:2}"
}

protocol() {
	fabric "$1"
	policy '[policy]' 'intra = 50%'
	agents
	net_advanced
	JOB_ENV+=("NCCL_PROTO=$2")
	run_job "protocol-$2" "$1" collectives 67108872
	measured "$2: $(sends 0 | paste -sd';')"
}

# ---- rings: four hosts, islands {1 2} and {3 4} ---------------------------------------------------

RING=(NCCL_ALGO=Ring NCCL_PROTO=Simple)

ring_vanilla() {
	local r next sout sup share path peer

	fabric 4 islands=2
	net_vanilla
	JOB_ENV+=("${RING[@]}")
	run_job ring 4 stream 3 67108864
	for r in 0 1 2 3; do
		next=$(address $(((r + 1) % 4 + 1)))
		while read -r peer path share sout sup; do
			[ "$peer" = "$next" ] || continue
			case $r in
			0 | 2) [ "$path $sout" = "intra 0" ] && [ "$sup" -gt 0 ] ;;
			*) [ "$path $sup" = "inter 0" ] && [ "$sout" -gt 0 ] ;;
			esac || fail "rank $r to $peer: $path, SOUT $sout SUP $sup bytes"
			echo "$r" >>"$CASE/seen"
		done < <(sends $r)
		measured "rank $r to $next: $(sends $r | awk -v n="$next" '$1 == n { c++; o += $4; u += $5 }
			END { print c " connections, SOUT " o " SUP " u " bytes" }')"
	done
	[ "$(sort -u "$CASE/seen" | wc -l)" = 4 ] || fail "not every hop of the ring carried data"
	[ "$(grep -lE 'intra-island, vanilla.*all on SUP' "$CASE"/ring.*.nccl | wc -l)" = 4 ] ||
		fail "not every rank logged an intra-island connection on SUP"
	[ "$(grep -lE 'inter-island, vanilla.*all on SOUT' "$CASE"/ring.*.nccl | wc -l)" = 4 ] ||
		fail "not every rank logged an inter-island connection on SOUT"
}

# parts INTRA INTER: SUP's part of the bytes of every hop must be within 0.02 of these.
check_parts() {
	local r want next

	for r in 0 1 2 3; do
		want=$([ $((r % 2)) = 0 ] && echo "$1" || echo "$2")
		next=$(address $(((r + 1) % 4 + 1)))
		sends $r | awk -v n="$next" -v want="$want" '$1 == n { o += $4; u += $5 }
			END { part = (o + u) ? u / (o + u) : -1; print "SUP carried " part ", policy " want
			exit !(part > want - 0.02 && part < want + 0.02) }' >"$CASE/part" ||
			fail "rank $r to $next: $(cat "$CASE/part")"
		measured "rank $r to $next: $(cat "$CASE/part")"
	done
}

ISLANDS=('[islands]' 'A = 10.0.1.0/24' 'B = 10.0.2.0/24')

ring_advanced() {
	fabric 4 islands=2 joined=yes
	policy "${ISLANDS[@]}" '[policy]' 'intra = 75%' '[pair A B]' 'share = 25%'
	agents
	net_advanced
	JOB_ENV+=("${RING[@]}")
	run_job ring 4 stream 3 67108864
	check_parts 0.75 0.25
}

# The policy is edited while data flows: the latest share is the new one, and SUP's part lies between.
ring_edited() {
	local r

	fabric 4 islands=2 joined=yes
	policy "${ISLANDS[@]}" '[policy]' 'intra = 75%' '[pair A B]' 'share = 25%'
	agents
	net_advanced
	JOB_ENV+=("${RING[@]}")
	rank_job ring 4 stream 6 16777216
	until_progress 30
	policy "${ISLANDS[@]}" '[policy]' 'intra = 25%' '[pair A B]' 'share = 75%'
	reload
	finish || fail "exit statuses ${JOB_RC[*]}: $(job_tell)"
	for r in 0 1 2 3; do
		sends $r | awk -v n="$(address $(((r + 1) % 4 + 1)))" -v share="$([ $((r % 2)) = 0 ] && echo 256 || echo 768)" '
			$1 == n && $4 + $5 > 1000000 { c++; o += $4; u += $5; bad += $3 != share }
			END { part = u / (o + u + 1); print c " connections, share " share ", SUP carried " part " in all"
			exit !(c && !bad && part > 0.27 && part < 0.73) }' >"$CASE/part" ||
			fail "rank $r: $(cat "$CASE/part"): $(sends $r | paste -sd';')"
		measured "rank $r: $(cat "$CASE/part")"
	done
}

# ---- GPU memory -------------------------------------------------------------------------------------

# gdr RANKS plain|dmabuf: buffers stay in GPU memory; NCCL is told to flush.
gdr() {
	fabric "$1" gpu=yes
	policy '[policy]' 'intra = 50%'
	agents
	net_advanced
	# Where no peer-memory module is loaded, -1 leaves NCCL nothing but DMA-BUF.
	case $2 in
	plain) NET+=(MPIB_GPUDIRECT=1 NCCL_DMABUF_ENABLE=0) ;;
	dmabuf) NET+=(MPIB_GPUDIRECT=-1 NCCL_DMABUF_ENABLE=1) ;;
	esac
	JOB_ENV+=(NCCL_NET_GDR_LEVEL=SYS NCCL_NET_GDR_READ=1 NCCL_NET_FORCE_FLUSH=1)
	run_job gdr "$1" collectives "$GDR_BYTES"
	expect_log "GPU memory through"
	expect_log "via NET/MPIB/.*/GDRDMA"
	python3 - "$CASE"/gdr.*.out >"$CASE/flushes" <<-'END' || fail "$(cat "$CASE/flushes")"
		import json, sys
		for name in sys.argv[1:]:
		    for line in open(name):
		        if line.startswith('{"rank"'):
		            conns = json.loads(line)["connections"]
		            flushes = sum(c["flushes"] for c in conns if c["kind"] == "recv")
		            print(name.split(".")[-2], "flushes", flushes)
		            if not flushes:
		                sys.exit(1)
	END
	measured "$(job_log 'GPU memory through' | head -n 1 | sed 's/.*GPU memory/GPU memory/'); flushes by rank: $(awk '{ print $3 }' "$CASE/flushes" | paste -sd' ')"
}

# ---- a training run ---------------------------------------------------------------------------------

TRAIN_STEPS=200

# train NAME HOSTS PORT: by PyTorch's launcher on each host, as docs/operators.md has it.
train() {
	launch "$1" "$2" torchrun --nnodes "$2" --node-rank RANK --nproc-per-node 1 \
		--master-addr 127.0.0.1 --master-port "$3" "$GPU_TREE/tests/gpu/train.py" "$TRAIN_STEPS"
}

# operate: five other shares, and two agents that die and come back, while it trains.
operate() {
	local k=0 share host

	for share in 10% 90% 1:3 0 1024; do
		k=$((k + 1))
		until_progress $((k * 30))
		policy '[policy]' "intra = $share"
		reload
		if [ $k = 2 ] || [ $k = 4 ]; then
			until_progress $((k * 30 + 10))
			for ((host = 1; host <= FABRIC_HOSTS; host++)); do
				kill -KILL "${AGENTS[$host]}"
			done
			until_progress $((k * 30 + 15))
			agents
		fi
	done
}

# same_training RANKS OPERATE: trains over Socket, then over MPIB while OPERATE does what operators and fate do.
same_training() {
	local started

	fabric "$1"
	policy '[policy]' 'intra = 50%'
	agents
	NCCL_LIB=$(nccl_lib wheel)
	JOB_ENV+=("${RING[@]}" NCCL_MIN_NCHANNELS=2 NCCL_MAX_NCHANNELS=2 CUBLAS_WORKSPACE_CONFIG=:4096:8)

	net_socket
	started=$SECONDS
	train socket "$1" 29500
	finish || fail "over Socket: exit statuses ${JOB_RC[*]}: $(tail -n 5 "$CASE/socket.0.out")"
	measured "over Socket: $((SECONDS - started)) s with start"
	net_advanced
	started=$SECONDS
	train mpib "$1" 29501
	"$2"
	finish || fail "over MPIB: exit statuses ${JOB_RC[*]}: $(tail -n 5 "$CASE/mpib.0.out"; job_tell)"
	measured "over MPIB: $((SECONDS - started)) s with start"

	expect_log "Using network MPIB"
	[ "$(grep -c '^step' "$CASE/mpib.0.out")" = $TRAIN_STEPS ] || fail "not $TRAIN_STEPS steps"
	grep -h '^step\|^weights' "$CASE/socket.0.out" >"$CASE/losses.socket"
	grep -h '^step\|^weights' "$CASE/mpib.0.out" >"$CASE/losses.mpib"
	cmp "$CASE/losses.socket" "$CASE/losses.mpib" ||
		fail "losses differ: $(diff "$CASE/losses.socket" "$CASE/losses.mpib" | head -n 4 | paste -sd';')"
	measured "$TRAIN_STEPS losses and the weights' hash are equal; the last: $(grep '^step' "$CASE/losses.mpib" | tail -n 1)"
}

training() {
	same_training "$1" operate
	measured "host 1's agent: $(grep -cE '^(mpib-agentd: )?flow .* -> ' "$CASE/agent.1.log") changes of a share"
}

# ---- a rail lost and back ------------------------------------------------------------------------------

# expect_cuts COUNT: connections told of that many losses at least, and of as many returns as losses.
expect_cuts() {
	local lost back

	lost=$(job_log 'NET/MPIB : (SOUT|SUP) rail .* is lost' | wc -l)
	back=$(job_log 'NET/MPIB : (SOUT|SUP) rail .* is back' | wc -l)
	measured "losses $lost, returns $back, of all connections; $(job_log ' is lost ' | sed 's/.*MPIB : //' | head -n 1)"
	[ "$lost" -ge "$1" ] && [ "$back" = "$lost" ] || fail "$lost losses and $back returns told, of $1 cuts"
}

# cut_thrice: SUP, SOUT and SUP again, each back before the next.
cut_thrice() {
	local k=0 rail

	for rail in 1/sup 2/sout 2/sup; do
		k=$((k + 1))
		until_progress $((k * 50 - 20))
		fabricctl port "$rail" down
		until_progress $((k * 50))
		fabricctl port "$rail" up
	done
}

training_cut() {
	local TRAIN_STEPS=300 # the last return is due before the end, with two ranks as well

	same_training "$1" cut_thrice
	expect_cuts 3
}

# stream_cut RANKS: the all_reduces of a stream are checked; SUP goes and comes back under them.
stream_cut() {
	fabric "$1"
	policy '[policy]' 'intra = 75%'
	agents
	net_advanced
	rank_job stream "$1" stream 6 67108864
	until_progress 20
	fabricctl port 1/sup down
	until_progress 60
	fabricctl port 1/sup up
	finish || fail "exit statuses ${JOB_RC[*]}: $(job_tell)"
	expect_cuts 1
}

# both_cut_and_back RANKS: no rail is left for seconds, and the stream goes on with the first that is back.
both_cut_and_back() {
	fabric "$1"
	policy '[policy]' 'intra = 75%'
	agents
	net_advanced
	JOB_ENV+=(MPIB_IB_TIMEOUT=14 MPIB_IB_RETRY_CNT=3)
	rank_job both "$1" stream 14 67108864
	until_progress 20
	fabricctl port 1/sup down
	fabricctl port 1/sout down
	sleep 4
	fabricctl port 1/sup up
	until_progress 60
	fabricctl port 1/sout up
	finish || fail "exit statuses ${JOB_RC[*]}: $(job_tell)"
	expect_log 'is lost .*no rail is left, messages wait up to 60 s for one'
	expect_cuts 2
}

# vanilla_cut RANKS: within an island SUP alone carries data, until it is lost.
vanilla_cut() {
	fabric "$1"
	net_vanilla
	rank_job vanilla "$1" stream 6 67108864
	until_progress 20
	fabricctl port 1/sup down
	until_progress 60
	fabricctl port 1/sup up
	finish || fail "exit statuses ${JOB_RC[*]}: $(job_tell)"
	expect_log 'SUP rail .* is lost .*SOUT takes over'
	expect_cuts 1
}

# ---- faults -----------------------------------------------------------------------------------------

fabricctl() { "$GPU_STAGE/bin/fabricctl" "$@"; }

# All ranks but @1 must end by a communicator's error, in time.
all_failed() {
	local r

	finish || true
	for ((r = 0; r < JOB_RANKS; r++)); do
		[ "$r" = "$1" ] || [ "${JOB_RC[$r]}" = 3 ] ||
			fail "rank $r ended with ${JOB_RC[$r]}: $(tail -n 2 "$CASE/$JOB_NAME.$r.out")"
	done
	measured "$(grep -h 'communicator failed' "$CASE/$JOB_NAME".*.out | paste -sd';')"
	measured "$(job_log 'WARN.*(SOUT|SUP|peer|MPIB)' | sed 's/.*WARN //' | head -n 2 | paste -sd'|')"
}

rank_killed() {
	local started

	fabric "$1"
	net_vanilla
	JOB_SECONDS=60
	rank_job killed "$1" stream 50
	until_progress 30
	started=$SECONDS
	pkill -KILL -f "$CASE/../rank $(($1 - 1)) " || fail "no such rank"
	all_failed $(($1 - 1))
	measured "all ended $((SECONDS - started)) s after the kill"
	[ $((SECONDS - started)) -le 30 ] || fail "it took $((SECONDS - started)) s"
}

# What no other rail takes over: failover is off, or there is none left.
cut_rails() {
	local rail

	fabric 2
	JOB_SECONDS=60
	JOB_ENV+=(MPIB_IB_TIMEOUT=16 MPIB_IB_RETRY_CNT=3)
	rank_job cut 2 stream 50
	until_progress 30
	for rail in "$@"; do
		fabricctl port "1/$rail" down || fail "fabricctl"
	done
	all_failed none
	expect_log "WARN.*(SOUT|SUP).*(retr|RETRY|link)"
}

both_rails_cut() {
	net_vanilla
	JOB_ENV+=(MPIB_RAIL_WAIT_SEC=0)
	cut_rails sout sup
}

# Vanilla inside an island, without failover: SUP alone carries data, and nothing takes its place in silence.
sup_cut() {
	net_vanilla
	JOB_ENV+=(MPIB_FAILOVER=0)
	cut_rails sup
	expect_log "WARN.*SUP.*link down"
}
