# SPDX-License-Identifier: Apache-2.0
"""The agent's side: a hint read, a registration, a change of many slots."""
import json
import os
import re
import subprocess
import tempfile

from ground import Agent, median

POLICY = "[agent]\nslots = 512\n[policy]\ninter = {0}\nintra = {0}\n"
SLOTS = 256
CLIENTS = (1, 32)


def measure(ground):
    if ground.wanted("read"):
        yield read(ground)
    for clients in CLIENTS:
        if ground.wanted(f"register/{clients}"):
            yield register(ground, clients)
    if ground.wanted("slots"):
        yield slots(ground)


def read(ground):
    more = ground.run_json([ground.tool("bench-hint-more"), "read"], None)
    # the benchmark of the read alone has the last word on it
    text = subprocess.run([os.path.join(ground.build, "tests/unit/common/hint-bench")], check=True,
                          capture_output=True, text=True, timeout=60).stdout
    more["warm_ns"] = float(re.search(r"([0-9.]+) ns", text).group(1))
    return ground.record("hint", "read", **more)


def register(ground, clients):
    total = 2000 if ground.quick else 20000
    with tempfile.TemporaryDirectory() as folder:
        agent = Agent(ground.build, folder, POLICY.format(1))
        try:
            runs = [ground.run_json([ground.tool("bench-hint-more"), "register", agent.dir,
                                     str(clients), str(total)], None)
                    for _ in range(1 if ground.quick else 3)]
        finally:
            agent.stop()
    return ground.record("hint", f"register/{clients}", clients=clients,
                         **{key: round(median([r[key] for r in runs]), 2) for key in
                            ("per_second", "p50_us", "p99_us")}, count=runs[0]["count"])


# A watcher that looked away for longer when the first slot changed hasn't seen how long it took.
LATE_US = 10
TRIES = 60


def slots(ground):
    """From the first slot that changes to the last, and the whole command with its verdict."""
    changes, reloads, wanted = [], [], 2 if ground.quick else 10
    with tempfile.TemporaryDirectory() as folder:
        agent = Agent(ground.build, folder, POLICY.format(1))
        try:
            for turn in range(TRIES):
                share = 2 + turn
                with subprocess.Popen([ground.tool("bench-hint-more"), "slots", agent.dir,
                                       str(SLOTS), str(share)], stdout=subprocess.PIPE,
                                      text=True) as watcher:
                    if watcher.stdout.readline() != "ready\n":
                        raise SystemExit("bench-hint-more slots failed")
                    agent.write(POLICY.format(share))
                    reload_us = agent.reload() * 1e6
                    found = json.loads(watcher.stdout.readline())
                if found["late_us"] <= LATE_US:
                    changes.append(found["change_us"])
                    reloads.append(reload_us)
                if len(changes) == wanted:
                    break
        finally:
            agent.stop()
    if not changes:
        raise SystemExit("hint: the machine is too busy to see a change of slots begin")
    return ground.record("hint", "slots", slots=SLOTS, change_us=round(median(changes), 1),
                         reload_us=round(median(reloads), 1), rounds=len(changes))
