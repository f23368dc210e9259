# SPDX-License-Identifier: Apache-2.0
"""A registration at a time while 300 clients are connected, beside an older agent's where one is given."""
import json
import os
import subprocess
import sys

from ground import median

CASES = ("together", "apart")
FIGURES = ("p50_us", "p99_us", "whole_p99_us", "agent_us")


def run(ground, build, case):
    env = dict(os.environ, MPIB_AGENTD=os.path.join(build, "agent/mpib-agentd"),
               MPIBCTL=os.path.join(build, "agent/mpibctl"))
    done = subprocess.run([os.path.join(ground.build, "tests/agent/bench-single"), case], env=env,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=60,
                          check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(ground):
    """Both in turns, so that what else the machine does is the same for both; medians."""
    if not os.path.exists(os.path.join(ground.build, "tests/agent/bench-single")):
        print("single: not built (cmocka is missing)", file=sys.stderr)
        return
    builds = {"now": ground.build, **({"before": ground.before} if ground.before else {})}
    for case in CASES:
        if not ground.wanted(case):
            continue
        if case == "apart" and len(os.sched_getaffinity(0)) < 2:
            continue
        runs = {name: [] for name in builds}
        for _ in range(1 if ground.quick else 5):
            for name, build in builds.items():
                runs[name].append(run(ground, build, case))
        found = {name: {key: round(median([r[key] for r in of]), 2) for key in FIGURES}
                 for name, of in runs.items()}
        if ground.before:
            found["ratio"] = {key: round(found["now"][key] / found["before"][key], 3)
                              for key in FIGURES}
        yield ground.record("single", case, **found)
