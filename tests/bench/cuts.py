# SPDX-License-Identifier: Apache-2.0
"""A rail is cut under load, at random places, shares and sizes, and comes back: every byte is checked by
bench-cuts, which ends this run where one is wrong, a message is lost or nothing moves any more."""
import random
import sys

from ground import Ends, median, share_of

CUTS = 1000
BLOCK = 50  # cuts of one connection
MEASURED = 8  # of them, with goodput before and after
MEASURE_MS = 150
RATIO = 4
LATENCY_US = 2
# Bytes a second of both rails: a quarter of what the other parts have, since every byte is also made and checked.
SUM = 100_000_000
QPS = ((1, 1), (2, 4), (4, 2), (16, 16))
SETTINGS = {"MPIB_SPLIT_MIN": "0", "MPIB_IB_TIMEOUT": "8", "MPIB_IB_RETRY_CNT": "3"}
SHARES = (0, 1, 256, 512, 768, 1023, 1024)


def percentile(values, part):
    return sorted(values)[min(int(len(values) * part), len(values) - 1)]


def measure(ground):
    count = ground.count or (BLOCK // 2 if ground.quick else CUTS)
    seed = ground.seed or random.randrange(1, 1 << 32)
    if not ground.wanted("random"):
        return
    print(f"cuts: seed {seed}", file=sys.stderr)
    chance = random.Random(seed)
    found = []
    for first in range(0, count, BLOCK):
        found += block(ground, chance, min(BLOCK, count - first), first)
    ground.seed, ground.count = seed, count  # so that the record's command repeats this run
    yield summary(ground, "random", seed, found)


def block(ground, chance, count, before):
    """Cuts of one connection."""
    sout = SUM // (1 + RATIO)
    qps = chance.choice(QPS)
    more = {**SETTINGS, "MPIB_SOUT_QP": str(qps[0]), "MPIB_SUP_QP": str(qps[1])}
    measured = set() if ground.quick else set(chance.sample(range(count), min(MEASURED, count)))
    found = []
    with ground.setting("MPIB", 512, rails=(sout, SUM - sout, LATENCY_US), more=more) as (
            plugin, _, env, folder):
        agent = ground.agent
        ends = Ends([ground.tool("bench-cuts"), plugin, str(chance.randrange(1, 1 << 32))], env, folder)
        try:
            for n in range(count):
                one = a_cut(chance, n in measured)
                agent.write(f"[policy]\nintra = {one['share']}\n")
                agent.reload()
                one.update(ends.order("cut {node} {rail} {nth} {late_us} {down_ms} {window} {size} "
                                      "{measure_ms}".format(**one)))
                found.append(one)
                print(f"cut {before + len(found)}: {one}", file=sys.stderr)
            ends.close()
        finally:
            if ends.process.poll() is None:
                ends.process.kill()
                ends.process.wait()
    return found


def a_cut(chance, measured):
    # the share that fills both rails where goodput is measured, so that both matter
    share = share_of(RATIO) if measured else chance.choice((*SHARES, chance.randrange(1025)))
    return {"node": chance.choice((1, 1, 2)), "rail": chance.randrange(2), "share": share,
            "nth": chance.choice((0, chance.randrange(1, 4), chance.randrange(1, 60))),
            "late_us": chance.choice((0, 0, 5000, 20000)), "down_ms": chance.randrange(20),
            "window": 8 if measured else chance.choice((1, 4, 8, 32)),
            "size": 65536 if measured else chance.choice((0, 0, 0, 1, 65536, 262144)),
            "measure_ms": MEASURE_MS if measured else 0}


def summary(ground, case, seed, found):
    times = {}
    for name in ("byte_ms", "settled_ms", "message_ms", "silence_ms", "back_ms"):
        values = [one[name] for one in found]
        times[name] = {"p50": round(median(values), 2), "p99": round(percentile(values, 0.99), 2),
                       "max": round(max(values), 2)}
    ratios = [one["goodput_after"] / one["goodput_before"] for one in found if one["measure_ms"]]
    return ground.record("cuts", case, seed=seed, cuts=len(found), wrong=0, lost=0, hang=0,
                         messages=sum(one["messages"] for one in found),
                         bytes=sum(one["bytes"] for one in found), **times,
                         goodput={"pairs": len(ratios), "median": round(median(ratios), 4),
                                  "least": round(min(ratios), 4)} if ratios else {})
