# SPDX-License-Identifier: Apache-2.0
"""Verdicts, and what tests/run says at its end."""
import contextlib
import subprocess
import time
from pathlib import Path

TAIL_LINES = 25


def say(line):
    print(line, flush=True)


class Report:
    def __init__(self):
        self.count = {"PASS": 0, "FAIL": 0, "SKIP": 0}
        self.failures, self.flakes = [], []
        self.expected = self.broken_steps = 0

    def verdict(self, result, name, why=""):
        """Of one test: a line, and the sums. result is PASS, FAIL or SKIP."""
        self.count[result] += 1
        if result == "FAIL":
            self.failures.append(name)
        say(f"{result} {name}{': ' if why else ''}{why}")

    def broken(self, name, why=""):
        """A step without which tests can't run, so that it fails as one."""
        self.broken_steps += 1
        self.verdict("FAIL", name, why)

    def flaky(self, name, why):
        """Passed at the second try only. Such a test must be mended."""
        self.flakes.append(name)
        self.verdict("PASS", name, f"at the second try; first: {why}")

    @contextlib.contextmanager
    def timed(self, name):
        start = time.monotonic()
        yield
        say(f"time {name}: {time.monotonic() - start:.0f} s")

    def step(self, name, *command):
        """A command that is told only if it fails; whether it went well."""
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", check=False)
        if done.returncode != 0:
            self.broken(name)
            tail(done.stdout)
        return done.returncode == 0

    def end(self):
        """The last line is the sums alone, so that programs find them. The exit status of it all."""
        ended = sum(self.count.values()) - self.broken_steps
        missing = max(self.expected - ended, 0)
        if self.failures:
            say("\n    ".join(["failed:", *self.failures]))
        elif missing:
            # Whatever became of them, too: a run that skips a part in silence is no run.
            self.broken("tests", f"{missing} never ran")
        if self.flakes:
            say(f"flaky: {', '.join(self.flakes)}")
        say(f"expected: {self.expected} tests, {missing} of them never ran")
        skipped = f", {self.count['SKIP']} skipped" if self.count["SKIP"] else ""
        say(f"{self.count['PASS']} passed, {self.count['FAIL']} failed{skipped}")
        return 1 if self.count["FAIL"] else 0


def tail(text):
    """What is worth reading of it, under the line of its test."""
    for line in text.splitlines()[-TAIL_LINES:]:
        say(f"    | {line[:300]}")


def read(path):
    return Path(path).read_text(errors="replace") if Path(path).exists() else ""
