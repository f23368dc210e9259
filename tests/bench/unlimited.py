# SPDX-License-Identifier: Apache-2.0
"""Bytes a second on rails without a limit, where what a plugin does between two messages shows."""
import contextlib

from ground import KIB, MIB, median, share_of

SIZES = (64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, MIB, 4 * MIB)
WINDOWS = (1, 2, 8)
BYTES = 32 * MIB  # a round: some ten milliseconds
ROUNDS = 41
MIN_MESSAGES = 8


def measure(ground):
    sizes = (64 * KIB, MIB) if ground.quick else SIZES
    windows = (1, 8) if ground.quick else WINDOWS
    points = [(size, window) for size in sizes for window in windows
              if ground.wanted(f"{size}/{window}")]
    if not points:
        return
    with contextlib.ExitStack() as stack:
        pairs = {"fused": stack.enter_context(ground.ends("MPIB", share_of(1))),
                 "vanilla": stack.enter_context(ground.ends("MPIB"))}
        for name in ground.merged:
            pairs[name] = stack.enter_context(ground.ends(name))
            pairs[f"{name} one NIC"] = stack.enter_context(ground.ends(f"{name}:1"))
        for pair in pairs.values():
            pair.stream(64 * KIB, 8, 64)
        for size, window in points:
            yield one_point(ground, pairs, size, window)


def one_point(ground, pairs, size, window):
    """Others on the machine only ever add to a time: the median of many short rounds in turns, and
    the tenth percentile, which they touch least."""
    count = max(BYTES // size, MIN_MESSAGES)
    found = {name: [] for name in pairs}
    for turn in range(5 if ground.quick else ROUNDS):
        for name in list(pairs)[:: 1 if turn % 2 else -1]:
            found[name].append(pairs[name].stream(size, window, count)["seconds"])
    fused = found["fused"]
    return ground.record(
        "unlimited", f"{size}/{window}", size=size, outstanding=window,
        median={name: count * size / median(took) for name, took in found.items()},
        tenth={name: count * size / sorted(took)[len(took) // 10] for name, took in found.items()},
        fused_over={name: round(median([b / a for a, b in zip(fused, took)]), 3)
                    for name, took in found.items() if name != "fused"})
