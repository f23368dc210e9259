# SPDX-License-Identifier: Apache-2.0
"""Latency of short messages against a single rail, and the size from which a split pays."""
import contextlib

from ground import KIB, LATENCY_US, RATIOS, SUM, median, share_of

SMALL = (8, 64, 512, 4 * KIB)
# The fabric lets a wire that was idle for under 10 ms make up for it; after a longer pause a
# message takes the time that it takes.
GAP_US = 11000
SPLIT_SIZES = tuple(512 << n for n in range(10))
# A split's own time is what it takes where the bytes take none; from there, rails that are as fast
# as real ones, in bytes a second.
REAL = ((12.5e9, 1), (25e9, 1), (50e9, 1), (50e9, 2), (50e9, 4), (50e9, 8))
COST_SIZES = (512, 1024, 2048)
# Others on the machine only ever add to a time: where what is asked is a difference of two times,
# the tenth percentile tells more than the median.
NO_MINIMUM = {"MPIB_SPLIT_MIN": "0"}


def measure(ground):
    for latency in (LATENCY_US,) if ground.quick else (LATENCY_US, 0):
        sizes = [size for size in ((8, 4 * KIB) if ground.quick else SMALL)
                 if ground.wanted(f"small/{latency}us/{size}")]
        if sizes:
            yield from small(ground, latency, sizes)
    if ground.wanted("split-cost"):
        yield from split_cost(ground)
    for ratio in (4,) if ground.quick else RATIOS:
        sizes = [size for size in ((4 * KIB, 64 * KIB) if ground.quick else SPLIT_SIZES)
                 if ground.wanted(f"split-pays/1:{ratio}/{size}")]
        if sizes:
            yield from split_pays(ground, ratio, sizes)


def alternate(pairs, rounds, take):
    """Medians of what take(pair) gives, and of its ratio to the first pair's in the same round."""
    found = {name: [] for name in pairs}
    for turn in range(rounds):
        order = list(pairs) if turn % 2 == 0 else list(pairs)[::-1]
        for name in order:
            found[name].append(take(pairs[name]))
    first = found[next(iter(pairs))]
    ratios = {name: median([a / b for a, b in zip(values, first)]) for name, values in
              found.items()}
    return {name: median(values) for name, values in found.items()}, ratios


def small(ground, latency, sizes):
    rails = (0, 0, latency)
    rounds, count = (5, 300) if ground.quick else (21, 1000)
    with contextlib.ExitStack() as stack:
        pairs = {"single": stack.enter_context(ground.ends("MPIB", rails=rails)),
                 "fused": stack.enter_context(ground.ends("MPIB", 819, rails=rails))}
        for name in ground.merged:
            pairs[name] = stack.enter_context(ground.ends(name, rails=rails))
            pairs[f"{name} one NIC"] = stack.enter_context(ground.ends(f"{name}:1", rails=rails))
        for pair in pairs.values():
            pair.pingpong(8, 300)
        for size in sizes:
            us, ratios = alternate(pairs, rounds, lambda p: p.pingpong(size, count)["median_us"])
            yield ground.record(
                "latency", f"small/{latency}us/{size}", size=size, latency_us=latency,
                rounds=rounds, us={k: round(v, 3) for k, v in us.items()},
                ratio={k: round(v, 4) for k, v in ratios.items()})


def split_cost(ground):
    """What two requests take more than one, in microseconds, on rails without a limit."""
    rails = (0, 0, LATENCY_US)
    rounds, count = (5, 300) if ground.quick else (21, 1000)
    with contextlib.ExitStack() as stack:
        pairs = {"whole": stack.enter_context(ground.ends("MPIB", 1024, rails=rails)),
                 "split": stack.enter_context(ground.ends("MPIB", 512, rails=rails,
                                                          more=NO_MINIMUM))}
        costs = []
        for size in COST_SIZES:
            us, _ = alternate(pairs, rounds, lambda p: p.pingpong(size, count)["p10_us"])
            costs.append(us["split"] - us["whole"])
    cost = max(median(costs), 0)
    # whole S/B, split S/(B + B/r) + cost: equal at S = cost * B * (1 + r)
    pays = [{"sup_rate": rate, "ratio": ratio, "bytes": round(cost * 1e-6 * rate * (1 + ratio))}
            for rate, ratio in REAL]
    yield ground.record("latency", "split-cost", cost_us=round(cost, 3),
                        costs_us=[round(c, 3) for c in costs], pays=pays)


def split_pays(ground, ratio, sizes):
    sout = SUM // (1 + ratio)
    rails = (sout, SUM - sout, LATENCY_US)
    rounds, count = (1, 5) if ground.quick else (3, 11)
    with contextlib.ExitStack() as stack:
        pairs = {"whole": stack.enter_context(ground.ends("MPIB", 1024, rails=rails)),
                 "split": stack.enter_context(ground.ends("MPIB", share_of(ratio), rails=rails,
                                                          more=NO_MINIMUM))}
        for size in sizes:
            us, ratios = alternate(pairs, rounds,
                                   lambda p: p.pingpong(size, count, GAP_US)["p10_us"])
            yield ground.record(
                "latency", f"split-pays/1:{ratio}/{size}", ratio=ratio, size=size, sum=SUM,
                us={k: round(v, 2) for k, v in us.items()}, split_over_whole=round(ratios["split"], 4),
                bytes_alone=round(ratio / (1 + ratio), 4))
