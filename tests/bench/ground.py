# SPDX-License-Identifier: Apache-2.0
"""What the parts of `run` stand on: the programs of a build, agents, and pairs of processes on
software fabrics of their own."""
import contextlib
import json
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

KIB, MIB = 1 << 10, 1 << 20
RATIOS = (1, 2, 4, 8)  # SUP over SOUT
# Both rails together, bytes a second: slow enough that two cores are never what limits.
SUM = 400_000_000
LATENCY_US = 2
PART_TIMEOUT = 120


def share_of(ratio):
    """SUP's part in 1/1024 that fills both rails."""
    return round(1024 * ratio / (1 + ratio))


def name_of(size):
    for unit, text in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size // unit} {text}"
    return f"{size} B"


def median(values):
    return statistics.median(values)


class Agent:
    """mpib-agentd in a directory of its own."""

    def __init__(self, build, folder, policy):
        self.build = build
        self.dir = os.path.join(folder, "agent")
        self.ini = os.path.join(folder, "agent.ini")
        os.mkdir(self.dir, 0o755)
        self.write(policy)
        log = os.path.join(folder, "agent.log")  # a pipe that nobody reads would stop it
        with open(log, "w", encoding="utf-8") as out:
            self.process = subprocess.Popen(
                [os.path.join(build, "agent/mpib-agentd"), "--config", self.ini, "--dir", self.dir],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=out)
        for _ in range(400):
            if os.path.exists(os.path.join(self.dir, "agent.sock")):
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.025)
        self.process.kill()
        self.process.wait()
        with open(log, encoding="utf-8") as f:
            raise SystemExit("the agent did not start: " + f.read())

    def write(self, policy):
        with open(self.ini, "w", encoding="ascii") as f:
            f.write(policy)

    def reload(self):
        """Seconds until the verdict."""
        start = time.monotonic()
        subprocess.run([os.path.join(self.build, "agent/mpibctl"), "reload"], check=True,
                       env={**os.environ, "MPIB_AGENT_DIR": self.dir}, timeout=30,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        return time.monotonic() - start

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=30)


class Ends:
    """bench-ends, waiting for orders; `connected` is what its set-up took."""

    def __init__(self, command, env, folder):
        self.errors = open(os.path.join(folder, "errors"), "w+", encoding="utf-8")
        self.command = command
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.connected = self._answer()

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            self._failed()
        return json.loads(line)

    def _failed(self):
        self.process.kill()
        self.process.wait()
        self.errors.seek(0)
        raise SystemExit(f"{shlex.join(self.command)} failed:\n{self.errors.read()[-4000:]}")

    def order(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        return self._answer()

    def stream(self, size, window, count, busy=1):
        return self.order(f"stream {size} {window} {count} {busy}")

    def pingpong(self, size, count, gap_us=0):
        return self.order(f"pingpong {size} {count} {gap_us}")

    def close(self):
        self.process.stdin.close()
        if self.process.wait(timeout=PART_TIMEOUT) != 0:
            self._failed()
        self.errors.close()


class Ground:
    def __init__(self, build, merged, quick, only, cases, before=None, seed=None, count=None):
        self.build = os.path.abspath(build)
        self.shown_build = build
        self.merged = merged  # name -> path
        self.before = before and os.path.abspath(before)
        self.seed, self.count = seed, count  # of random cuts
        self.agent = None  # of the setting that is open last
        self.quick = quick
        self.only = only
        self.cases = cases
        self.plugin = os.path.join(self.build, "plugin/libnccl-net-mpib.so")

    def tool(self, name):
        return os.path.join(self.build, "tests/bench", name)

    def wanted(self, case):
        return not self.cases or any(case == c or case.startswith(c + "/") for c in self.cases)

    def record(self, part, case, **values):
        command = ["tests/bench/run", self.shown_build, "--only", part, "--case", case]
        for name, path in self.merged.items():
            command += ["--merged", f"{name}={path}"]
        if self.before:
            command += ["--before", self.before]
        if part == "cuts":
            command += ["--seed", str(self.seed), "--count", str(self.count)]
        if self.quick:
            command.append("--quick")
        return {"part": part, "case": case, **values,
                "command": shlex.join(command + ["--results", "DIR"])}

    def environment(self, folder, **extra):
        """Ours alone: settings of the caller's don't reach a measured program."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("MPIB_", "NCCL_"))}
        env.update(LD_LIBRARY_PATH=os.path.join(self.build, "tests/fabric/lib"), LD_BIND_NOW="1",
                   MPIB_FABRIC_DIR=os.path.join(folder, "fabric"))
        env.update(extra)
        return env

    def rails(self, folder, sout, sup, latency_us):
        """A fabric of two nodes; rates in bytes a second, 0 for none."""
        path = os.path.join(folder, "fabric.ini")
        with open(path, "w", encoding="ascii") as f:
            f.write("[fabric]\nname = bench\n")
            for name, rate in (("sout", sout), ("sup", sup)):
                f.write(f"[device {name}]\nrate = {rate}\nlatency_us = {latency_us}\n")
            for node in (1, 2):
                f.write(f"[node {node}]\nisland = 1\nsout.address = 10.0.1.{node}\n"
                        f"sup.address = 10.9.1.{node}\n")
        return path

    @contextlib.contextmanager
    def setting(self, name, share=None, null=False, rails=(0, 0, 0), more=None):
        """Environment, plugin and device of one variant: "MPIB" with the agent's share (None:
        vanilla), or the name of another plugin, its two NICs merged unless `name:0` says which."""
        folder = tempfile.mkdtemp(prefix="mpib-bench-")
        agent = None
        env = self.environment(folder, MPIB_FABRIC=self.rails(folder, *rails))
        if null:
            env["MPIB_FABRIC_NULL"] = "1"
        try:
            if name == "MPIB":
                plugin, how = self.plugin, "fused"
                env.update(MPIB_HCA_SOUT="sout", MPIB_HCA_SUP="sup", MPIB_OOB_IF="lo",
                           MPIB_MODE="0" if share is None else "1")
                if share is not None:
                    agent = Agent(self.build, folder, f"[policy]\nintra = {share}\n")
                    env["MPIB_AGENT_DIR"] = agent.dir
                self.agent = agent
            else:
                name, _, device = name.partition(":")
                plugin, how = self.merged[name], device or "merged"
                env.update(NCCL_IB_HCA="sout,sup", NCCL_SOCKET_IFNAME="lo", NCCL_IB_GID_INDEX="3")
            env.update(more or {})
            yield plugin, how, env, folder
        finally:
            if agent:
                agent.stop()
            shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def ends(self, name, share=None, connections=1, rails=(0, 0, 0), more=None):
        with self.setting(name, share, rails=rails, more=more) as (plugin, how, env, folder):
            pair = Ends([self.tool("bench-ends"), plugin, how, str(connections)], env, folder)
            try:
                yield pair
                pair.close()
            finally:
                if pair.process.poll() is None:
                    pair.process.kill()
                    pair.process.wait()

    def run_json(self, command, env, timeout=PART_TIMEOUT):
        run = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True,
                             text=True, timeout=timeout, check=False)
        if run.returncode != 0:
            raise SystemExit(f"{shlex.join(command)} failed:\n{run.stdout}{run.stderr[-4000:]}")
        return json.loads(run.stdout.strip().splitlines()[-1])
