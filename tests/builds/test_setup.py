#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/setup on a small project: test_setup.py TREE. Whatever state a build folder is in, it ends as a
new one would be, says why it had to be configured anew, and what Meson didn't make is still there."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = """project('small', meson_version: '>= 1.0.0')
probe = dependency('mpib-probe', method: 'pkg-config', required: get_option('unit_tests'))
configure_file(input: 'in', output: 'out', configuration: {'a': 'b'}, install_dir: 'etc')
test('always', find_program('true'))
if probe.found()
  test('probe', find_program('true'))
endif
"""
checks = 0


def claim(truth, what, text=""):
    global checks
    checks += 1
    if not truth:
        sys.exit(f"{what}\n{text}")


class Ground:
    def __init__(self, work):
        self.tree = work / "tree"
        self.build = self.tree / "build"
        self.packages = work / "packages"
        self.packages.mkdir()
        (self.tree / "tests").mkdir(parents=True)
        shutil.copy(Path(sys.argv[1]) / "tests/setup", self.tree / "tests/setup")
        (self.tree / "meson.build").write_text(PROJECT)
        (self.tree / "in").write_text("@a@\n")
        (self.tree / "meson_options.txt").write_text("option('unit_tests', type: 'feature', value: 'auto')\n")
        self.env = {**os.environ, "PKG_CONFIG_PATH": str(self.packages)}

    def probe(self, version):
        """The optional dependency in that version, or not installed."""
        path = self.packages / "mpib-probe.pc"
        path.unlink(missing_ok=True)
        if version:
            path.write_text(f"Name: probe\nDescription: probe\nVersion: {version}\n")

    def run(self, *arguments, tree=None, **env):
        result = subprocess.run([(tree or self.tree) / "tests/setup", *arguments], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                env={**self.env, **env})
        return result.returncode, result.stdout

    def meson(self, *arguments):
        subprocess.run(["meson", *arguments], check=True, stdout=subprocess.DEVNULL, env=self.env)

    def complete(self, what, build=None):
        """The folder is as a new one."""
        build = build or self.build
        told = {}
        for kind in ("tests", "buildoptions"):
            entries = json.loads((build / f"meson-info/intro-{kind}.json").read_text())
            told[kind] = {entry["name"]: entry.get("value") for entry in entries}
        claim([*told["tests"]] == ["always", "probe"], f"{what}: not all tests", told["tests"])
        options = told["buildoptions"]
        claim((options["werror"], options["prefix"], options["unit_tests"]) == (True, "/usr", "enabled"),
              f"{what}: other options", options)
        claim((build / "out").read_text() == "b\n", f"{what}: a configured file isn't there")
        claim((build / "build.ninja").is_file(), f"{what}: no build.ninja")

    def anew(self, what, reason, **env):
        """The next run mends the folder and says why."""
        rc, text = self.run(**env)
        claim(rc == 0 and "configured anew: " in text and reason in text, f"{what}: rc {rc}", text)
        self.complete(what)

    def content(self):
        """The next run has nothing to do."""
        when = (self.build / "build.ninja").stat().st_mtime_ns
        rc, text = self.run()
        claim((rc, text) == (0, ""), "not content with itself", text)
        claim((self.build / "build.ninja").stat().st_mtime_ns == when, "configured again")


def test_dependency(ground):
    rc, text = ground.run()
    claim(rc != 0 and "mpib-probe" in text and "failed" in text, "a build without a part that is wanted", text)
    ground.probe("1")
    ground.anew("after a half-done folder", "is not there")
    ground.content()
    ground.probe("2")
    ground.anew("another version", "mpib-probe was 1, is 2")
    ground.probe(None)
    rc, text = ground.run()
    claim(rc != 0 and "mpib-probe was 2, is absent" in text, "the part is gone", text)
    ground.probe("2")
    ground.anew("the part is back", "is not there")


def test_older(ground):
    """Folders of other times: made by hand, without the part and with it, and with other options."""
    for name, options in (("without", ["-Dunit_tests=disabled"]), ("with", ["--prefix=/opt"])):
        shutil.rmtree(ground.build)
        ground.meson("setup", str(ground.build), str(ground.tree), *options)
        (ground.build / "mine").write_text("kept")
        ground.anew(f"made by hand {name} the part", "mpib-setup.json is not there")
        claim((ground.build / "mine").read_text() == "kept", "a file of somebody else")
    ground.meson("configure", str(ground.build), "-Dwerror=false")
    ground.anew("another option since", "option werror was set to False")


def test_wiped(ground):
    for name in ("build.ninja", "out", "meson-info", "meson-private/build.dat"):
        path = ground.build / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        ground.anew(f"{name} wiped", name.split("/")[0])
    (ground.build / "meson-private/mpib-setup.json").write_text("{")
    ground.anew("a broken stamp", "can't be read")
    ground.content()


def test_elsewhere(ground):
    copy = ground.tree.parent / "copy"
    shutil.copytree(ground.tree, copy, symlinks=True)
    rc, text = ground.run(tree=copy)
    claim(rc == 0 and "configured anew: folder was" in text, "a copied clone", text)
    ground.complete("a copied clone", copy / "build")
    ground.anew("another compiler's options", "CFLAGS was unset, is -O1", CFLAGS="-O1")
    rc, text = ground.run("other", "-Dunit_tests=auto")
    claim((rc, text) == (0, "") and Path("other/build.ninja").is_file(), "a folder of another name", text)
    Path("file").write_text("")
    rc, text = ground.run("file")
    claim(rc == 1 and "is not a folder" in text, "a file", text)


with tempfile.TemporaryDirectory() as work:
    os.chdir(work)
    ground = Ground(Path(work).resolve())
    for test in (test_dependency, test_older, test_wiped, test_elsewhere):
        test(ground)
print(f"{checks} claims hold")
