# SPDX-License-Identifier: Apache-2.0
"""The agent under attack beside the agent at rest: what 300 well-behaved clients see of it."""
import json
import os
import subprocess
import sys

CASES = ("quiet", "a02", "a03", "a08", "a10", "all")


def measure(ground):
    """The best of three by p99: what else the machine did isn't the agent's."""
    if os.geteuid() != 0:
        print("attacks: needs root, to become other users", file=sys.stderr)
        return
    env = dict(os.environ, MPIB_AGENTD=os.path.join(ground.build, "agent/mpib-agentd"),
               MPIBCTL=os.path.join(ground.build, "agent/mpibctl"))
    tool = os.path.join(ground.build, "tests/agent/bench-hostile")
    for case in CASES:
        if not ground.wanted(case):
            continue
        runs = []
        for _ in range(1 if ground.quick else 3):
            run = subprocess.run([tool, case], env=env, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, text=True, timeout=180, check=True)
            runs.append(json.loads(run.stdout.splitlines()[-1]))
        yield ground.record("attacks", case, **min(runs, key=lambda r: r["p99_us"]))
