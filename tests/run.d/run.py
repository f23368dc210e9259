#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All tests: builds, runs, sums up. The last line is "N passed, N failed", with ", N skipped" where some were; the
lines before it tell how many tests there had to be, and which passed at the second try only. Exit status 1 if one
failed. Meson runs its suites; this adds the lab and the fuzzers, what is compiled beside, and a second try."""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from beside import Beside
from report import Report, read, say, tail

# Groups: Meson's suites of the plain build, those that want a quiet machine, and others.
SUITES = ["unit", "agent", "tree", "builds", "netperf", "fuzz", "fabric", "plugin", "gin"]
GROUPS = [*SUITES, "bench", "tidy", "asan", "tsan", "lab"]
# Without the tests that are `long`: those take other sizes on the same paths.
SANITIZED = {
    "asan": ("address,undefined", ["unit", "netperf", "fuzz", "fabric", "agent", "plugin", "gin"], ["long", "no-asan"]),
    "tsan": ("thread", ["unit", "netperf", "fabric", "gin"], ["long", "no-tsan"]),
}
# As the sanitizers' authors advise: half the time to compile, and backtraces still have lines. Their checks make gcc
# wrong about how long a string can be.
SANITIZED_BUILD = ["-Db_lundef=false", "-Doptimization=1", "-Dc_args=-g1 -Wno-format-truncation"]
FUZZ_SECONDS = 5  # a target
NAMES = Path("tests/names")
REMEDY = "run tests/run --write-names"
LAB = ["tests/lab/lab", "run"]
report = Report()


def listed(suites, without=()):
    """Suite and name, by tests/names, of each test of these suites that is in none of the others."""
    rows = [line.split() for line in read(NAMES).splitlines() if line and line[0] != "#"]
    return {(suite, name) for suite, name, *marks in rows if suite in suites and not {*marks} & {*without}}


def fuzz_targets():
    return sorted(path.stem.removeprefix("fuzz_") for path in Path("tests/fuzz").glob("fuzz_*.c"))


# --- Meson's suites


def results(log):
    """Suite, name, PASS, FAIL or SKIP, why, and what it said, of each test of a log of Meson's."""
    for line in read(log).splitlines():
        test = json.loads(line)
        suite, name = test["name"].split(" / ", 1)
        said = test.get("stdout", "") + test.get("stderr", "")
        result, why = "FAIL", test["result"].lower()
        if test["result"] in ("OK", "EXPECTEDFAIL"):
            result, why = "PASS", ""
        elif test["result"] == "SKIP":
            result, why = "SKIP", next((line[:160] for line in said.splitlines() if "skip" in line.lower()), "")
        # "PROJECT:SUITE+SUITE…": the first suite is a test's own.
        yield suite.split(":")[-1].split("+")[0], name, result, why, said


def meson_test(folder, label, log, *options):
    """Most tests wait more than they compute: two for each processor. What hangs is to end, and nothing else: tests'
    limits are for a machine that has nothing else to do."""
    with open(f"{folder}/meson-logs/{log}.out", "w", encoding="utf-8") as out:
        return subprocess.run(
            ["meson", "test", "-C", folder, "--no-rebuild", "--logbase", log, "--timeout-multiplier",
             "8" if label in SANITIZED else "4", "--num-processes", str(2 * os.cpu_count()), *options],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False).returncode


def suites(folder, label, names, without=()):
    """Meson's suites in one go, so that no processor waits for the last test of one. Without label each is named."""
    log = label or names[0]
    path = Path(folder, "meson-logs", log + ".json")
    path.unlink(missing_ok=True)
    status = meson_test(folder, label, log, *(f"--suite={name}" for name in names),
                        *(f"--no-suite={name}" for name in without))
    wanted, ran, told = listed(names, without), set(), False
    for suite, name, result, why, said in results(path):
        ran.add((suite, name))
        if result == "FAIL":
            told = True
            tail(said)
            again(folder, label, suite, name, why)
        else:
            report.verdict(result, f"{label or suite}: {name}", why)
    if not ran:
        report.broken(label or "tests", "no test ran")
        tail(read(path.with_suffix(".out")))
    elif status != 0 and not told:
        # Meson itself may fail with every test content, say by a signal.
        report.broken(label or "tests", f"meson test ended with {status}")
    for suite, name in sorted(wanted - ran):
        report.broken(f"{label or suite}: {name}", "missing (tests/names lists it)")
    for suite, name in sorted(ran - wanted):
        report.expected += 1
        report.broken(f"{label or suite}: {name}", f"not in tests/names: {REMEDY}")


def again(folder, label, suite, name, why):
    """A test that failed beside others gets one more try, alone. Those of the tree would say the same again."""
    if suite != "tree" and meson_test(folder, label, f"again-{suite}-{name}", "--suite", suite, name) == 0:
        report.flaky(f"{label or suite}: {name}", why)
    else:
        report.verdict("FAIL", f"{label or suite}: {name}", why + ("" if suite == "tree" else ", twice"))


def compile_sanitized(label):
    """What the tests of its suites want compiled."""
    folder, names, without = f"{Path.cwd()}/build-{label}", *SANITIZED[label][1:]
    data = json.loads(subprocess.run(["meson", "introspect", folder, "--tests", "--targets"], check=True,
                                     capture_output=True).stdout)
    ids = set()
    for test in data["tests"]:
        marks = {name.split(":")[-1] for name in test["suite"]}
        ids.update(test["depends"] if marks & {*names} and not marks & {*without} else [])
    return ["ninja", "-C", folder] + [os.path.relpath(file, folder) for target in data["targets"]
                                      if target["id"] in ids for file in target["filename"]]


# --- Others


def lab(image, beside):
    """The lab's machines take all processors. With the suites beside it both were slower, and tests with bounds of
    time failed."""
    if image.wait() != 0:
        report.broken("lab: image")
        tail(read("build/lab-image.log"))
        return
    seen, again_names = set(), []
    with subprocess.Popen(LAB, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace") as run:
        for line in map(str.rstrip, run.stdout):
            result, _, rest = line.partition(" ")
            name = rest.split(" ")[0].rstrip(":")
            if line.startswith("lab: ") and line.endswith(" needs a quiet machine"):
                beside.pause()
            if result in ("PASS", "SKIP", "FAIL"):
                seen.add(("lab", name))
                beside.resume()
            if result in ("PASS", "SKIP"):
                report.verdict(result, f"lab: {rest}")
                continue
            if result == "FAIL":
                again_names.append(name)
            say(line)
    # As with the suites: one more try, alone, in machines booted anew.
    beside.pause()
    for name in again_names:
        done = subprocess.run([*LAB, name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", check=False)
        tail(done.stdout)
        if done.returncode == 0:
            report.flaky(f"lab: {name}", "failed beside others")
        else:
            report.verdict("FAIL", f"lab: {name}", "twice")
    beside.resume()
    for _, name in sorted(listed(["lab"]) - seen):
        report.broken(f"lab: {name}", "missing (tests/names lists it)")


def beside_verdict(beside, job, name, passed=""):
    """Of a job that is one test."""
    status = beside.wait(job)
    said = read(beside.log(job))
    if status == 0:
        report.verdict("PASS", name, passed or next(iter(said.splitlines()[-1:]), ""))
    elif status == 77:
        report.verdict("SKIP", name, next(iter(said.splitlines()[:1]), ""))
    else:
        report.verdict("FAIL", name, str(status))
        tail(said)


def start_beside(chosen, built):
    jobs = []
    for label in SANITIZED:
        if label in chosen:
            jobs.append((label, [["tests/setup", f"build-{label}", f"-Db_sanitize={SANITIZED[label][0]}",
                                  *SANITIZED_BUILD], lambda label=label: compile_sanitized(label)]))
    if built and "tidy" in chosen:
        jobs.append(("tidy", [["tests/tree/tidy.sh", os.getcwd(), f"{os.getcwd()}/build"]]))
    if built and "fuzz" in chosen:
        jobs += [(f"fuzz {name}", [["tests/fuzz/run", str(FUZZ_SECONDS), name]]) for name in fuzz_targets()]
    return Beside(jobs)


# --- All of it


def expect(chosen):
    """How many tests the chosen groups have, by tests/names."""
    for group in chosen:
        names, without = SANITIZED[group][1:] if group in SANITIZED else ([group], [])
        report.expected += len(listed(names, without)) + (len(fuzz_targets()) if group == "fuzz" else 0)


def run_built(chosen, image, beside):
    plain = [name for name in SUITES if name in chosen]
    if plain:
        with report.timed(" ".join(plain)):
            suites("build", "", plain)
    if "bench" in chosen:
        beside.pause()
        with report.timed("bench"):
            suites("build", "", ["bench"])
        beside.resume()
    if image:
        with report.timed("lab"):
            lab(image, beside)


def run_chosen(chosen):
    image = beside = None
    try:
        if "lab" in chosen:
            # Minutes of waiting for downloads: meanwhile the tree is compiled.
            with open("build/lab-image.log", "w", encoding="utf-8") as log:
                image = subprocess.Popen(["tests/lab/lab", "image"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        with report.timed("compile"):
            built = report.step("configure build", "tests/setup") and \
                report.step("compile build", "ninja", "-C", "build")
        beside = start_beside(chosen, built)
        if built:
            run_built(chosen, image, beside)
        for label, (_, names, without) in SANITIZED.items():
            if label in chosen:
                with report.timed(label):
                    if status := beside.wait(label):
                        report.broken(f"compile build-{label}", str(status))
                        tail(read(beside.log(label)))
                    else:
                        suites(f"build-{label}", label, names, without)
        if built and "tidy" in chosen:
            beside_verdict(beside, "tidy", "tidy: tree-tidy")
        if built and "fuzz" in chosen:
            for name in fuzz_targets():
                beside_verdict(beside, f"fuzz {name}", f"fuzz: {name} for {FUZZ_SECONDS} s")
    finally:
        if beside:
            beside.end()
        if image and image.poll() is None:
            image.terminate()


def main():
    parser = argparse.ArgumentParser(prog="tests/run", description=__doc__)
    parser.add_argument("--only", metavar="GROUP[,GROUP…]", help=" ".join(GROUPS))
    parser.add_argument("--list", action="store_true", help="names the groups")
    parser.add_argument("--demo", action="store_true", help="first of all tests/demo, as a newcomer does; counts it")
    parser.add_argument("--demo-was", help=argparse.SUPPRESS)
    parser.add_argument("--write-names", action="store_true", help="makes tests/names anew, from what there is")
    options = parser.parse_args()
    chosen = options.only.split(",") if options.only else GROUPS
    if unknown := {*chosen} - {*GROUPS}:
        parser.error(f"no such group: {', '.join(sorted(unknown))}; there are: {' '.join(GROUPS)}")
    if options.list:
        return print(*GROUPS, sep="\n")
    if options.write_names:
        return subprocess.call("tests/setup && ninja -C build build.ninja >/dev/null && "
                               "tests/tree/names.py . build --write", shell=True)
    if options.demo_was:
        result, seconds = options.demo_was.split(":")
        report.expected += 1
        if result == "AGAIN":
            report.flaky("demo: fabric", "something was not so")
        else:
            report.verdict(result, "demo: fabric")
        say(f"time demo: {seconds} s")
    if subprocess.call(["bash", "-c", '. tests/lab/lib/common.sh && need_packages "${BUILD_PACKAGES[@]}" '
                        '"${TEST_PACKAGES[@]}"']):
        report.broken("packages")
        return report.end()
    Path("build").mkdir(exist_ok=True)
    expect(chosen)
    if NAMES.exists():
        run_chosen(chosen)
    else:
        report.broken("tests/names", f"is not there: {REMEDY}")
    return report.end()


# Tests start python3 some hundred times; where that is a script itself (pyenv's), each start takes 0.3 s of CPU.
if not os.path.samefile(shutil.which("python3"), sys.executable):
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
sys.exit(main())
