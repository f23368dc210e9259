# SPDX-License-Identifier: Apache-2.0
"""Many connections: what a message costs beside idle ones, set-up and memory."""
import importlib.machinery
import importlib.util
import os
import shutil

from ground import KIB, median

COUNTS = (1, 10, 100, 1000)
BUSY = (1, 10, 0)  # 0: all
TURNS = 3
STREAM = 4 * KIB


def measure(ground):
    counts = (1, 100) if ground.quick else COUNTS
    plugins = ["MPIB", *ground.merged]
    for busy in (1,) if ground.quick else BUSY:
        yield from cpu(ground, plugins, counts, busy)
    if shutil.which("valgrind"):
        yield from instructions(ground, plugins, (1, 20) if ground.quick else (1, 1000))
    yield from fabric(ground, plugins, counts)


def busy_of(connections, busy):
    return busy or connections


def cpu(ground, plugins, counts, busy):
    """One thread is both ends, on the fabric's null mode: its CPU time is the messages' own."""
    messages, rounds = (4000, 5) if ground.quick else (20000, 9)
    wanted = [n for n in counts if n >= busy_of(n, busy) and (busy != 0 or n > 10)]
    for name in plugins:
        if not any(ground.wanted(f"cpu/{name}/{n}/{busy_of(n, busy)}") for n in wanted):
            continue
        found = {n: [] for n in wanted}
        for _ in range(1 if ground.quick else TURNS):
            for n in wanted:
                with ground.setting(name, 512 if name == "MPIB" else None, null=True) as (
                        plugin, how, env, _folder):
                    found[n].append(ground.run_json(
                        [ground.tool("bench-driver-many"), plugin, how, str(n),
                         str(busy_of(n, busy)), str(messages), str(rounds)], env)["min_ns"])
        for n in wanted:
            yield ground.record(
                "scale", f"cpu/{name}/{n}/{busy_of(n, busy)}", plugin=name, connections=n,
                busy=busy_of(n, busy), cpu_ns=round(median(found[n]), 1),
                messages_per_second=round(1e9 / median(found[n])),
                ratio=round(median([a / b for a, b in zip(found[n], found[wanted[0]])]), 4))


def counter():
    """`instructions`, as a module: it reads what callgrind writes."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "instructions")
    loader = importlib.machinery.SourceFileLoader("instructions", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def instructions(ground, plugins, counts):
    """The same, counted: exact, and blind to caches."""
    count = counter()
    messages = 800
    for name in plugins:
        for n in counts:
            if not ground.wanted(f"instructions/{name}/{n}"):
                continue
            with ground.setting(name, 512 if name == "MPIB" else None, null=True) as (
                    plugin, how, env, folder):
                out = os.path.join(folder, "callgrind.out")
                command = ["valgrind", "--fair-sched=yes", "--tool=callgrind", "--quiet",
                           "--collect-atstart=no",
                           "--toggle-collect=mpib_bench_measured",
                           "--zero-before=mpib_bench_measured",
                           "--dump-after=mpib_bench_measured", f"--callgrind-out-file={out}",
                           *[f"--toggle-collect={f}" for f in count.OUTSIDE],
                           ground.tool("bench-driver-many"), plugin, how, str(n), "1",
                           str(messages), "1"]
                ground.run_json(command, env, timeout=300)
                total = sum(count.parse(out + ".1").values())
            yield ground.record("scale", f"instructions/{name}/{n}", plugin=name, connections=n,
                                busy=1, instructions=round(total / messages, 2))


def fabric(ground, plugins, counts):
    """Two processes: set-up, memory, and what the whole way takes, fabric included."""
    kinds = [("MPIB", "MPIB", 512, {}), ("MPIB vanilla", "MPIB", None, {}),
             ("MPIB one QP a rail", "MPIB", 512, {"MPIB_SOUT_QP": "1", "MPIB_SUP_QP": "1"})]
    kinds += [(name, name, None, {}) for name in plugins[1:]]
    for n in [n for n in counts if n != 10]:
        found = {kind[0]: [] for kind in kinds if ground.wanted(f"fabric/{kind[0]}/{n}")}
        for turn in range(1 if ground.quick else 2 if n >= 1000 else 3):
            for kind, name, share, more in kinds:
                if kind in found:
                    found[kind].append(one_fabric(ground, name, share, more, n, turn == 0))
        for kind, runs in found.items():
            first = {k: v for k, v in runs[0].items() if k != "seconds"}
            seconds = median([r["seconds"] for r in runs])
            yield ground.record("scale", f"fabric/{kind}/{n}", plugin=kind, connections=n,
                                seconds=round(seconds, 4), ms_each=round(seconds * 1e3 / n, 3),
                                **first)


def one_fabric(ground, name, share, more, n, stream):
    messages = 2000 if ground.quick else 10000
    with ground.ends(name, share, connections=n, more=more) as pair:
        was = pair.connected
        found = {"seconds": was["seconds"], "cpu_ms_each": round(was["cpu"] * 1e3 / n, 3),
                 "kib_each": round((was["sender_kib"] + was["receiver_kib"]) / n / 2, 1),
                 "files_each": round((was["sender_files"] + was["receiver_files"]) / n / 2, 2)}
        if stream:
            rates = {}
            for busy in sorted({min(b or n, n) for b in BUSY}):
                pair.stream(STREAM, 8, max(16 * busy, 100), busy)
                run = pair.stream(STREAM, 8, max(messages, 16 * busy), busy)
                rates[str(busy)] = {
                    "per_second": round(run["messages"] / run["seconds"]),
                    "cpu_us": round((run["cpu_send"] + run["cpu_receive"]) * 1e6 /
                                    run["messages"], 3)}
            found["busy"] = rates
        return found
