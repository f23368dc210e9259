# SPDX-License-Identifier: Apache-2.0
"""Goodput: bytes a second over the sum of both rails' rates, on rails that a rate limits."""
import contextlib

from ground import KIB, LATENCY_US, MIB, RATIOS, SUM, median, share_of

SIZES = (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
WINDOWS = (1, 2, 8, 32)
IN_FLIGHT = 128 * MIB  # more bytes than this are never on the way
SINGLE_WINDOW = 8
SECONDS = 0.07
ROUNDS = 3


def count_for(size, window, rate, seconds):
    return max(int(seconds * rate / size), 2 * window, 3)


def measure(ground):
    ratios = (1, 4) if ground.quick else RATIOS
    sizes = (64 * KIB, MIB) if ground.quick else SIZES
    windows = (1, 8) if ground.quick else WINDOWS
    for ratio in ratios:
        points = [(size, window) for size in sizes for window in windows
                  if size * window <= max(IN_FLIGHT, size)
                  and ground.wanted(f"1:{ratio}/{size}/{window}")]
        if points:
            yield from one_ratio(ground, ratio, points)


def one_ratio(ground, ratio, points):
    rates = (SUM // (1 + ratio), SUM - SUM // (1 + ratio))
    rails = (*rates, LATENCY_US)
    names = list(ground.merged)
    # What each takes of the sum, so that all of them run about as long.
    expected = {"fused": 1, "equal": 2 / (1 + ratio), "sout": rates[0] / SUM, "sup": rates[1] / SUM}
    expected.update({name: 2 / (1 + ratio) for name in names})
    shares = {"fused": share_of(ratio), "equal": 512, "sout": 0, "sup": 1024}
    with contextlib.ExitStack() as stack:
        pairs = {}
        for name, share in shares.items():
            pairs[name] = stack.enter_context(ground.ends("MPIB", share, rails=rails))
        for name in names:
            pairs[name] = stack.enter_context(ground.ends(name, rails=rails))
        for pair in pairs.values():
            pair.stream(64 * KIB, 8, 64)
        for size, window in points:
            yield one_point(ground, ratio, size, window, pairs, expected, rates)


def one_point(ground, ratio, size, window, pairs, expected, rates):
    found = {name: [] for name in pairs}
    single = ("sout", "sup")
    seconds = 0.06 if ground.quick else SECONDS
    for turn in range(1 if ground.quick else ROUNDS):
        for name, pair in pairs.items():
            if name in single and (window != min(SINGLE_WINDOW, IN_FLIGHT // size) or turn):
                continue
            count = count_for(size, window, SUM * expected[name], seconds)
            # a long one is exact enough the first time
            if turn and count * size > 2 * seconds * SUM * expected[name]:
                continue
            took = pair.stream(size, window, count)
            found[name].append(count * size / took["seconds"])
    values = {name: round(median(rate) / SUM, 4) for name, rate in found.items() if rate}
    for name, rate in zip(single, rates):
        if name in values:  # of its own rail
            values[name] = round(values[name] * SUM / rate, 4)
    return ground.record("goodput", f"1:{ratio}/{size}/{window}", ratio=ratio, size=size,
                         outstanding=window, sum=SUM, share=share_of(ratio), **values)
