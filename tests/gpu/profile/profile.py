#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What sampler.c wrote, as tables: CPU time by part (fabric, plugin, NCCL, …), and by function.

    tests/gpu/profile/profile.py [--json] [--functions N] FILE...

What libc and the kernel did counts for whoever called them; how much of it, is told as well."""
import argparse
import bisect
import collections
import json
import os
import re
import subprocess
import sys

PARTS = [
    ("fabric", r"libibverbs\.so"),
    ("plugin", r"libnccl-net-mpib"),
    ("NCCL", r"libnccl\.so"),
    ("CUDA", r"libcuda|libcudart|\[vvar|/dev/nvidia"),
]
SERVANTS = re.compile(r"/(libc|libpthread|libm|ld-linux[^/]*|libasan|libtsan)[-.][^/]*$|^\[vdso\]$")


class Symbols:
    """Function names by file offset; local ones where the file has them."""

    def __init__(self):
        self.files = {}

    def load(self, path):
        found = []
        for options in ([], ["-D"]):
            try:
                text = subprocess.run(["nm", "-S", "--defined-only", *options, path], check=False,
                                      capture_output=True, text=True).stdout
            except OSError:
                text = ""
            for line in text.splitlines():
                words = line.split()
                if len(words) == 4 and words[2] in "tTwWiu":
                    start = int(words[0], 16)
                    found.append((start, start + int(words[1], 16), words[3].split("@")[0]))
            if found:
                break
        found.sort()
        return [f[0] for f in found], found

    def name(self, path, address):
        if path not in self.files:
            self.files[path] = self.load(path) if path.startswith("/") else ([], [])
        starts, found = self.files[path]
        k = bisect.bisect_right(starts, address) - 1
        if k >= 0 and address < found[k][1]:
            return found[k][2]
        return "local to " + os.path.basename(path)


class Process:
    def __init__(self, path, symbols):
        self.maps, self.base, self.samples = [], {}, []
        self.symbols = symbols
        with open(path, encoding="utf-8", errors="replace") as f:
            for line in f:
                if line.startswith("map "):
                    self.add_map(line[4:].split(None, 5))
                elif line.startswith("at "):
                    thread, words = line[3:].rstrip("\n").rsplit("\t", 1)
                    periods, thread = thread.split(" ", 1)
                    self.samples.append((int(periods), thread,
                                         [int(w, 16) for w in words.split()]))
        self.maps.sort()
        self.starts = [m[0] for m in self.maps]

    def add_map(self, words):
        low, high = (int(x, 16) for x in words[0].split("-"))
        path = words[5].strip() if len(words) > 5 else ""
        if path and int(words[2], 16) == 0:
            self.base.setdefault(path, low)
        if "x" in words[1]:
            self.maps.append((low, high, path))

    def find(self, address):
        k = bisect.bisect_right(self.starts, address) - 1
        if k >= 0 and address < self.maps[k][1]:
            return self.maps[k][2] or "[anonymous]"
        return None

    def where(self, words):
        """Object and function that the time is for, and the servant that spent it, or None."""
        path = self.find(words[0])
        if path is None:
            return "?", "?", None
        if not SERVANTS.search(path):
            return path, self.function(path, words[0]), None
        for word in words[1:]:
            caller = self.find(word)
            if caller and not SERVANTS.search(caller):
                return caller, self.function(caller, word), self.function(path, words[0])
        return path, self.function(path, words[0]), None

    def function(self, path, address):
        return self.symbols.name(path, address - self.base.get(path, 0))


def part_of(path):
    for name, pattern in PARTS:
        if re.search(pattern, path):
            return name
    return os.path.basename(path)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--json", action="store_true")
    options.add_argument("--functions", type=int, default=15, metavar="N")
    options.add_argument("files", nargs="+")
    options = options.parse_args()

    parts, functions = collections.Counter(), collections.Counter()
    threads, lent = collections.defaultdict(collections.Counter), collections.Counter()
    total, symbols = 0, Symbols()
    for path in options.files:
        process = Process(path, symbols)
        for periods, thread, words in process.samples:
            owner, function, servant = process.where(words)
            part = part_of(owner)
            total += periods
            parts[part] += periods
            threads[thread][part] += periods
            functions[part, function + (f" ({servant})" if servant else "")] += periods
            if servant:
                lent[part] += periods
    if not total:
        sys.exit("no samples")
    if options.json:
        print(json.dumps({
            "ms": total,
            "parts": {k: round(v / total, 4) for k, v in parts.most_common()},
            "functions": [{"part": p, "function": f, "share": round(v / total, 4)}
                          for (p, f), v in functions.most_common(options.functions)],
        }))
        return
    print(f"{total} ms of CPU time in {len(options.files)} process(es)\n")
    print("| part | CPU time | of it in libc and the kernel |\n|---|---:|---:|")
    for part, n in parts.most_common(8):
        print(f"| {part} | {n / total:.1%} | {lent[part] / total:.1%} |")
    print("\n| thread | CPU time | where |\n|---|---:|---|")
    for thread, where in sorted(threads.items(), key=lambda t: -sum(t[1].values()))[:8]:
        n = sum(where.values())
        text = ", ".join(f"{p} {k / n:.0%}" for p, k in where.most_common(4))
        print(f"| {thread} | {n / total:.1%} | {text} |")
    print("\n| function | part | CPU time |\n|---|---|---:|")
    for (part, function), n in functions.most_common(options.functions):
        print(f"| `{function}` | {part} | {n / total:.1%} |")


main()
