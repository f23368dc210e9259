# SPDX-License-Identifier: Apache-2.0
"""Bytes a second on rails without a limit, where what a plugin does between two messages shows."""
import contextlib

from ground import KIB, MIB, median, share_of

SIZES = (64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, MIB, 4 * MIB)
WINDOWS = (1, 2, 8)
BYTES = 32 * MIB  # a round: some ten milliseconds
# How fast two processes copy depends on where their buffers lie: new ones, some times.
OPENINGS, ROUNDS = 5, 9
MIN_MESSAGES = 8


def measure(ground):
    sizes = (64 * KIB, MIB) if ground.quick else SIZES
    windows = (1, 8) if ground.quick else WINDOWS
    points = [(size, window) for size in sizes for window in windows
              if ground.wanted(f"{size}/{window}")]
    found = {point: {} for point in points}
    for _ in range(1 if ground.quick else OPENINGS if points else 0):
        with contextlib.ExitStack() as stack:
            pairs = {"fused": stack.enter_context(ground.ends("MPIB", share_of(1))),
                     "vanilla": stack.enter_context(ground.ends("MPIB"))}
            for name in ground.merged:
                pairs[name] = stack.enter_context(ground.ends(name))
                pairs[f"{name} one NIC"] = stack.enter_context(ground.ends(f"{name}:1"))
            for pair in pairs.values():
                pair.stream(64 * KIB, 8, 64)
            for size, window in points:
                rounds(ground, pairs, size, window, found[size, window])
    for (size, window), took in found.items():
        yield one_point(ground, size, window, took)


def count_for(size):
    return max(BYTES // size, MIN_MESSAGES)


def rounds(ground, pairs, size, window, took):
    for turn in range(5 if ground.quick else ROUNDS):
        for name in list(pairs)[:: -1 if turn % 2 else 1]:
            done = pairs[name].stream(size, window, count_for(size))
            took.setdefault(name, []).append(done["seconds"])


def one_point(ground, size, window, took):
    """Others on the machine only ever add to a time: the median of many short rounds in turns, and
    the tenth percentile, which they touch least."""
    total = count_for(size) * size
    return ground.record(
        "unlimited", f"{size}/{window}", size=size, outstanding=window,
        median={name: total / median(t) for name, t in took.items()},
        tenth={name: total / sorted(t)[len(t) // 10] for name, t in took.items()},
        fused_over={name: round(median([b / a for a, b in zip(took["fused"], t)]), 3)
                    for name, t in took.items() if name != "fused"})
