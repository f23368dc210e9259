#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds tests/names against the tests that a build has, and the cases of the lab:
names.py TREE BUILD [--write | PART…]. With --write the file is made anew; each PART is what the build was
told to leave out.

A test that went away without a word, with a dependency or by a slip in a meson.build, is found here."""
import json
import sys
from collections import Counter
from pathlib import Path

HEADER = """# SPDX-License-Identifier: Apache-2.0
# All tests, but those that need GPUs: suite, name, and the other suites that it is in. `tests/run` fails
# for each that doesn't run; run tests/run --write-names after adding one.
"""
REMEDY = "run tests/run --write-names"


def there(tree, build):
    """A line for each test that there is."""
    lines = []
    for test in json.loads((build / "meson-info/intro-tests.json").read_text()):
        suite, *marks = (name.split(":")[-1] for name in test["suite"])
        lines.append(" ".join([suite, test["name"], *marks]))
    lines += [f"lab {path.stem}" for path in (tree / "tests/lab/cases").glob("*.sh")]
    return sorted(lines)


def check(lines, path):
    twice = [line for line, count in Counter(tuple(line.split()[:2]) for line in lines).items() if count > 1]
    for suite, name in twice:
        print(f"two tests of the suite {suite} are called {name}: rename one")
    listed = []
    if path.exists():
        listed = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    for line in sorted({*listed} - {*lines}):
        print(f"in tests/names, but not in this build: {line}")
    for line in sorted({*lines} - {*listed}):
        print(f"in this build, but not in tests/names: {line}")
    if listed != lines:
        print(f"tests/names is not what this build has: build what is left out, or {REMEDY}")
    return not twice and listed == lines


def main(tree, build, *options):
    tree, build = Path(tree), Path(build)
    path = tree / "tests/names"
    lines = there(tree, build)
    if options == ("--write",):
        path.write_text(HEADER + "".join(f"{line}\n" for line in lines))
        return 0
    if options:
        print(f"skipped: this build leaves out: {'; '.join(options)}")
        return 77
    if not check(lines, path):
        return 1
    print(f"{len(lines)} tests, as listed")
    return 0


sys.exit(main(*sys.argv[1:]))
