#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Alerts and dashboard against what there is: test_monitoring.py names RULES DASHBOARD PAGE AGENTD MPIBCTL, or
test_monitoring.py alerts RULES.

names: each metric and label that they ask for is one that `mpibctl metrics` prints of an agent with a flow, and
each alert has its line in the operators' page. alerts: promtool judges the rules by alerts.yml, which has to
notice an alert that never comes, one that always does, and one that doesn't wait."""
import array
import fcntl
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

try:
    import yaml
except ImportError:
    yaml = None

CASES = Path(__file__).with_name("alerts.yml")
# node_exporter's own, of the file that carries ours; and what Prometheus adds to each sample.
FOREIGN = {"node_textfile_mtime_seconds"}
ADDED = {"instance", "job", "file"}
METRIC = re.compile(r"(?<![:\w/\"-])((?:mpib|node)_\w+)(?:\{([^}]*)\})?")
ALERT = re.compile(r"^ +- alert: (\w+)\n((?: {8}.*\n)+)", re.M)


def without_comments(text):
    return re.sub(r"^ *#.*\n", "", text, flags=re.M)


# ---- names


def hand_over_counters(job):
    """A table with the entry of connection 1, which has both rails."""
    size = 64 + 256
    table = os.memfd_create("mpib-counters", os.MFD_ALLOW_SEALING)
    os.ftruncate(table, size)
    fcntl.fcntl(table, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    os.pwrite(table, struct.pack("=IIIIII", 0x4D504943, 1, 1, 256, 0, 1), 0)
    os.pwrite(table, struct.pack("=III28xI", 1, 1, 1, 3), 64)
    job.sendmsg([struct.pack("=IHBBI", 0x4D504952, 12, 3, 0, size)],
                [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [table]))])
    assert job.recv(12)[8] == 0
    os.close(table)


def printed(agentd, mpibctl):
    """What mpibctl metrics says of a running agent with one flow, whose counters tell its rails."""
    with tempfile.TemporaryDirectory() as work, socket.socket(socket.AF_UNIX) as job:
        directory, config = Path(work, "mpib"), Path(work, "agent.ini")
        config.write_text("[policy]\ninter = 25%\n")
        agent = subprocess.Popen([agentd, "--dir", directory, "--config", config], stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 20
            while not (directory / "agent.sock").exists():
                if agent.poll() is not None or time.monotonic() > deadline:
                    sys.exit("no agent")
                time.sleep(0.05)
            job.settimeout(20)
            job.connect(str(directory / "agent.sock"))
            job.sendall(struct.pack("=IHBBIIIII", 0x4D504952, 28, 1, 0, 1, 1, 2, 1, 2))
            assert len(job.recv(16)) == 16
            hand_over_counters(job)
            while True:
                said = subprocess.run([mpibctl, "--dir", directory, "metrics"], check=True, timeout=20,
                                      stdout=subprocess.PIPE, text=True).stdout
                if "\nmpib_flow_rails_up{" in said:
                    return said
                assert time.monotonic() < deadline, "the counters aren't looked at"
                time.sleep(0.1)
        finally:
            agent.kill()
            agent.wait()


def samples_of(text):
    """Name: label sets, of each sample."""
    samples = {}
    for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", text, re.M):
        samples.setdefault(name, []).append(dict(re.findall(r'(\w+)="([^"]*)"', labels)))
    return samples


def unknown(expression, samples):
    """What the expression asks for and nobody prints."""
    for name, selector in METRIC.findall(expression):
        if name in FOREIGN:
            continue
        if name not in samples:
            yield name
            continue
        wanted = {key: value for key, how, value in re.findall(r'(\w+)\s*(=~?|!=|!~)\s*"([^"]*)"', selector)
                  if key not in ADDED and how == "=" and "$" not in value}
        if not any(wanted.items() <= labels.items() for labels in samples[name]):
            yield f"{name}{{{selector}}}"
    labels = ADDED.union(*(labels for sets in samples.values() for labels in sets))
    for group in re.findall(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)", expression):
        yield from (f"label {label}" for label in re.split(r"[,\s]+", group.strip()) if label not in labels)
    for label in re.findall(r"\{\{\s*(?:\$labels\.)?([a-z]\w*)\s*\}\}", expression):
        if label not in labels:
            yield f"label {label}"


def strings(node):
    if isinstance(node, dict):
        node = list(node.values())
    if isinstance(node, list):
        for value in node:
            yield from strings(value)
    elif isinstance(node, str):
        yield node


def recorded(rules):
    return set(re.findall(r"^ +- record: (\S+)$", rules, re.M))


def names(rules_file, dashboard_file, page, agentd, mpibctl):
    samples = samples_of(printed(agentd, mpibctl))
    rules, page = without_comments(Path(rules_file).read_text()), Path(page).read_text()
    cases = without_comments(CASES.read_text())
    dashboard = json.loads(Path(dashboard_file).read_text())
    wrong = []

    for file, text in [(rules_file, rules), (dashboard_file, "\n".join(strings(dashboard)))]:
        found = METRIC.findall(text)
        assert len(found) > 10, f"{file}: {len(found)} metrics"
        wrong += [f"{file}: nobody prints {what}" for what in unknown(text, samples)]
        wrong += [f"{file}: no rule records {name}" for name in re.findall(r"\bflow:\w+:\w+", text)
                  if name not in recorded(rules)]
    # The made-up series are of metrics that there are, with their labels.
    series = re.findall(r"series: '(\w+)\{([^}]*)\}'", cases)
    for name, selector in series:
        labels = {key for key, _ in re.findall(r'(\w+)="([^"]*)"', selector)} - ADDED
        if name not in FOREIGN and (name not in samples or labels != set(samples[name][0])):
            wrong.append(f"{CASES}: nobody prints {name} with {sorted(labels)}")
    # Our checks notice: each a word that nobody prints.
    for bad in ["mpib_nonsense > 1", 'mpib_flow_bytes_total{rail="third"}', "sum by (colour) (mpib_flows)",
                "{{ $labels.colour }}"]:
        assert list(unknown(bad, samples)), f"{bad} passes"

    alerts = [name for name, _ in ALERT.findall(rules)]
    assert len(alerts) > 8 and len(series) > 20
    in_page = re.findall(r"^\| `(Mpib\w+)` \|", page, re.M)
    if sorted(in_page) != sorted(alerts):
        wrong.append(f"docs/operators.md: alerts are {alerts}, its table has {in_page}")
    identities = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(identities)) == len(identities) and dashboard["uid"] and dashboard["title"]
    print(*wrong, sep="\n")
    print(f"{len(samples)} metrics, {len(alerts)} alerts, {len(identities)} panels")
    return bool(wrong)


# ---- alerts


def judge(promtool, work, rules, cases=None):
    (work / "rules.yml").write_text(rules)
    (work / "cases.yml").write_text((cases or CASES.read_text()).replace("RULES", str(work / "rules.yml")))
    result = subprocess.run([promtool, "test", "rules", work / "cases.yml"], check=False, timeout=60,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return result.returncode == 0, result.stdout


def of_alert(name):
    """The cases of that alert alone: the others would only be computed once more for each way to break it."""
    cases = yaml.safe_load(CASES.read_text())
    for test in cases["tests"]:
        test["alert_rule_test"] = [one for one in test["alert_rule_test"] if one["alertname"] == name]
    cases["tests"] = [test for test in cases["tests"] if test["alert_rule_test"]]
    return json.dumps(cases)


def broken(rules):
    """Alerts, each changed and without the others, and what was done to it."""
    alerts = list(ALERT.finditer(rules))
    for match in alerts:
        name, body = match.groups()
        head, tail = rules[:match.start(2)], rules[match.end(2):]
        for other in alerts:
            if other.group(1) != name:
                head, tail = head.replace(other.group(0), ""), tail.replace(other.group(0), "")
        for what, expression in [("never comes", "vector(0) > 1"), ("always comes", "vector(1)")]:
            new = re.sub(r"^ {8}expr:.*\n(?: {10}.*\n)*", f"        expr: {expression}\n", body, flags=re.M)
            yield name, what, head + new + tail
        if "        for: " in body:
            yield name, "doesn't wait", head + re.sub(r"^ {8}for:.*\n", "", body, flags=re.M) + tail


def alerts(rules_file):
    promtool = shutil.which("promtool")
    if not promtool or not yaml:
        print("skipped: promtool or python3-yaml is not installed (packages prometheus, python3-yaml)")
        return 77
    checked = subprocess.run([promtool, "check", "rules", rules_file], check=False, timeout=60)
    rules = without_comments(Path(rules_file).read_text())
    with tempfile.TemporaryDirectory() as name:
        good, said = judge(promtool, Path(name), rules)
        print(said)
        missed = []
        count = 0
        for alert, what, text in broken(rules):
            count += 1
            passed, said = judge(promtool, Path(name), text, of_alert(alert))
            if passed or "alertname" not in said:
                missed.append(f"not noticed: {alert} {what}: {said}")
    print(*missed, sep="\n")
    print(f"{count} broken rules")
    return checked.returncode != 0 or not good or bool(missed) or count < 20


sys.exit({"names": names, "alerts": alerts}[sys.argv[1]](*sys.argv[2:]))
