#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/run on a small project: test_run.py TREE. A test that went missing, one that nobody listed, one that
passes at the second try only and a build that fails are told, and the last line is always the sums."""
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = """project('small', meson_version: '>= 1.0.0')
left_out = []
sh = find_program('sh')
test('good', sh, args: ['-c', 'exit 0'], suite: 'unit')
test('skipped', sh, args: ['-c', 'echo skipped: no moon; exit 77'], suite: ['unit', 'long'])
test('wavering', sh, args: ['-c', 'test -e "$0" || { touch "$0"; exit 1; }', meson.current_build_dir() / 'seen'],
  suite: 'unit')
test('tree-names', files('tests/tree/names.py'),
  args: [meson.project_source_root(), meson.project_build_root(), left_out], suite: 'tree')
"""
WITH_ALL = PROJECT.replace("'small',", "'small', 'c',") + """
test('compiled', executable('compiled', 'compiled.c'), suite: 'unit')
test('tree-tidy', files('tests/tree/tidy.sh'), suite: 'tidy')
"""
STUBS = {
    "compiled.c": "int main(void)\n{\n\treturn 0;\n}\n",
    "tests/tree/tidy.sh": "#!/bin/sh\necho skipped: no tidy\nexit 77\n",
    "tests/lab/cases/calm.sh": "",
    "tests/lab/cases/wobbly.sh": "",
    # Which cases it has to run again comes after "run".
    "tests/lab/lab": """#!/bin/sh
[ "$1" = run ] || exit 0
[ -z "$2" ] || { echo "PASS $2 (1 s)"; exit 0; }
printf 'lab: calm needs a quiet machine\\nPASS calm (3 s)\\n    measured: much\\nFAIL wobbly (1 s)\\n'
exit 1
""",
}
FILES = ["tests/run", "tests/setup", "tests/lab/lib/common.sh", "tests/tree/names.py"]
REMEDY = "run tests/run --write-names"
checks = 0


class Ground:
    def __init__(self, tree):
        self.tree = tree
        for name in FILES:
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(sys.argv[1]) / name, tree / name)
        shutil.copytree(Path(sys.argv[1]) / "tests/run.d", tree / "tests/run.d")
        (tree / "tests/lab/cases").mkdir()
        (tree / "tests/fuzz").mkdir()
        with (tree / "tests/lab/lib/common.sh").open("a") as stream:
            stream.write("need_packages() { :; }\n")
        (tree / "meson_options.txt").write_text("option('unit_tests', type: 'feature', value: 'auto')\n")
        self.project(PROJECT)

    def project(self, text):
        (self.tree / "meson.build").write_text(text)

    def run(self, *arguments):
        result = subprocess.run([self.tree / "tests/run", *arguments], text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return result.returncode, result.stdout

    def write_names(self):
        rc, text = self.run("--write-names")
        claim(rc == 0, "--write-names failed", text)
        return [line for line in (self.tree / "tests/names").read_text().splitlines() if line[0] != "#"]

    def ends(self, what, rc, sums, *lines, groups="unit,tree", more=()):
        """A run of these groups ends with that status and sums, and says these lines."""
        (self.tree / "build/seen").unlink(missing_ok=True)
        got, text = self.run("--only", groups, *more)
        last = text.splitlines()[-1]
        claim(re.fullmatch(r"\d+ passed, \d+ failed(, \d+ skipped)?", last), f"{what}: last line {last}", text)
        claim((got, last) == (rc, sums), f"{what}: ended with {got}, {last}", text)
        for line in lines:
            claim(f"{line}\n" in text, f"{what}: doesn't say: {line}", text)


def claim(truth, what, text=""):
    global checks
    checks += 1
    if not truth:
        sys.exit(f"{what}\n{text}")


def main(ground):
    ground.ends("without a list", 1, "0 passed, 1 failed",
                f"FAIL tests/names: is not there: {REMEDY}")
    names = ground.write_names()
    claim(names == ["tree tree-names", "unit good", "unit skipped long", "unit wavering"], "the list", names)
    ground.ends("all is well", 0, "3 passed, 0 failed, 1 skipped",
                "flaky: unit: wavering", "expected: 4 tests, 0 of them never ran",
                "SKIP unit: skipped: skipped: no moon",
                "PASS unit: wavering: at the second try; first: fail")
    demo = ground.tree / "tests/demo"
    for what, text, rc, sums, line in [
            ("shows it at the second try", "[ -e demo-seen ] || { touch demo-seen; exit 1; }", 0,
             "2 passed, 0 failed", "flaky: demo: fabric"),
            ("doesn't show it", "exit 1", 1, "1 passed, 1 failed", "FAIL demo: fabric")]:
        demo.write_text(f"#!/bin/sh\n{text}\n")
        demo.chmod(0o755)
        ground.ends(f"the demo {what}", rc, sums, line, "expected: 2 tests, 0 of them never ran", groups="tree",
                    more=["--demo"])
    ground.project(PROJECT.replace("test('good'", "# test('good'"))
    ground.ends("a test went missing", 1, "1 passed, 2 failed, 1 skipped",
                "FAIL unit: good: missing (tests/names lists it)",
                "    | in tests/names, but not in this build: unit good",
                f"    | tests/names is not what this build has: build what is left out, or {REMEDY}",
                "expected: 4 tests, 1 of them never ran")
    ground.project(PROJECT.replace("left_out = []", "left_out = ['the moon']").replace("test('good'", "# test('good'"))
    ground.ends("a part is left out", 1, "1 passed, 1 failed, 2 skipped",
                "FAIL unit: good: missing (tests/names lists it)",
                "SKIP tree: tree-names: skipped: this build leaves out: the moon")
    ground.project(PROJECT + "test('new', sh, args: ['-c', 'exit 1'], suite: 'unit')\n")
    ground.ends("a test that nobody listed", 1, "2 passed, 3 failed, 1 skipped",
                f"FAIL unit: new: not in tests/names: {REMEDY}", "FAIL unit: new: fail, twice",
                "expected: 5 tests, 0 of them never ran")
    claim("unit new" in ground.write_names(), "the list with one more")
    for name, text in STUBS.items():
        (ground.tree / name).write_text(text)
        (ground.tree / name).chmod(0o755)
    ground.project(WITH_ALL)
    ground.write_names()
    ground.ends("what is compiled beside, and the lab", 0, "8 passed, 0 failed, 2 skipped",
                "PASS asan: compiled", "SKIP tidy: tree-tidy: skipped: no tidy", "PASS lab: calm (3 s)",
                "    measured: much", "PASS lab: wobbly: at the second try; first: failed beside others",
                "flaky: unit: wavering, lab: wobbly, asan: wavering", "expected: 10 tests, 0 of them never ran",
                groups="unit,tidy,asan,lab")
    (ground.tree / "compiled.c").write_text("nonsense\n")
    ground.ends("a build with sanitizers that fails", 1, "0 passed, 2 failed", "FAIL compile build",
                "FAIL compile build-asan: 1",
                groups="asan")
    ground.project(PROJECT + "nonsense(\n")
    ground.ends("a build that fails", 1, "0 passed, 1 failed", "FAIL compile build",
                "expected: 5 tests, 5 of them never ran")


with tempfile.TemporaryDirectory() as work:
    main(Ground(Path(work).resolve() / "tree"))
print(f"{checks} claims hold")
