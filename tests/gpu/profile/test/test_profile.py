#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_profile.py SAMPLER BUSY PROFILE: the shares of a program whose shares are known."""
import glob
import json
import os
import subprocess
import sys
import tempfile

sampler, busy, profile = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    out = os.path.join(folder, "samples")
    subprocess.run([busy], check=True, timeout=120,
                   env={**os.environ, "LD_PRELOAD": sampler, "MPIB_SAMPLER_OUT": out})
    files = glob.glob(out + ".*")
    assert len(files) == 1, files
    text = subprocess.run([profile, *files], check=True, capture_output=True, text=True).stdout
    seen = json.loads(subprocess.run([profile, "--json", *files], check=True,
                                     capture_output=True, text=True).stdout)
print(text)
assert 1200 <= seen["ms"] <= 1700, "a second and a half of CPU time"
work = sum(v for k, v in seen["parts"].items() if k.startswith("libprofile-work"))
own = seen["parts"].get("profile-busy", 0)
assert 0.60 <= work <= 0.73, "two thirds in the library, its memcpy included"
assert 0.27 <= own <= 0.40, "one third in the program"
assert any(f["function"].startswith("work_by_copying (") for f in seen["functions"]), "its callee"
assert any(f["function"].startswith("spin") for f in seen["functions"]), "spin by name"
