#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds a file against the rules of OpenMetrics that the agent's text must keep: openmetrics.py FILE.

Every sample belongs to the family announced last, by HELP and TYPE in this order, with the suffix
of its type; families, and the samples of one, come once; labels are well formed; the last line is
EOF. As the textfile collector of node_exporter reads the same text, blanks are single ones."""
import re
import sys

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf'({NAME})(?:\{{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*"(?:,(?!\}}))?)+)\}})? (-?\d+(?:\.\d+)?)$')
LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\[\\"n])*)"')
SUFFIX = {"gauge": "", "counter": "_total"}


def check(text):
    if not text.endswith("# EOF\n") or text.count("# EOF") != 1:
        return "the last line is not # EOF"
    families, seen, labels_of = {}, set(), {}
    name = kind = None
    for number, line in enumerate(text.split("\n")[:-2], 1):
        where = f"line {number}: {line}: "
        if m := re.fullmatch(rf"# HELP ({NAME}) (\S.*\S)", line):
            name, kind = m[1], None
            if name in families:
                return where + "a family comes twice"
            families[name] = None
        elif m := re.fullmatch(rf"# TYPE ({NAME}) (\w+)", line):
            if m[1] != name or kind or m[2] not in SUFFIX:
                return where + "no type that its help announced"
            kind = families[name] = m[2]
        elif m := SAMPLE.match(line):
            if not kind or m[1] != name + SUFFIX[kind]:
                return where + "not a sample of the family announced last"
            labels = LABEL.findall(m[2] or "")
            keys = [key for key, _ in labels]
            if len(set(keys)) != len(keys) or labels_of.setdefault(name, keys) != keys:
                return where + "labels twice, or others than its family has"
            if (m[1], m[2]) in seen:
                return where + "a sample comes twice"
            seen.add((m[1], m[2]))
            if kind == "counter" and m[3].startswith("-"):
                return where + "a counter below zero"
        else:
            return where + "neither a comment nor a sample"
    return None if seen else "no sample"


# Each differs from good text in one thing, and must be refused.
GOOD = '# HELP a b c\n# TYPE a counter\na_total{x="1"} 2\n# EOF\n'
BAD = [
    ("# EOF\n", ""), ("a_total", "a"), ('x="1"', 'x=1'), ("} 2", "} two"), ("} 2", "}  2"),
    ("# TYPE a counter\n", ""), ("counter", "count"), ("} 2", "} -2"), ('"1"', '"1'),
    ("a_total{", "b_total{"), ('x="1"', 'x="1",x="2"'), ("# EOF", "\n# EOF"),
    ('a_total{x="1"} 2\n', 'a_total{x="1"} 2\na_total{x="1"} 3\n'),
    ('a_total{x="1"} 2\n', 'a_total{x="1"} 2\na_total{y="1"} 3\n'),
    ('a_total{x="1"} 2\n', ""), ("# EOF\n", '# HELP a b\n# TYPE a counter\na_total{x="3"} 2\n# EOF\n'),
]


def main():
    if check(GOOD):
        sys.exit(f"good text is refused: {check(GOOD)}")
    for old, new in BAD:
        if not check(GOOD.replace(old, new, 1)):
            sys.exit(f"bad text passes: {GOOD.replace(old, new, 1)!r}")
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            if wrong := check(file.read()):
                sys.exit(f"{path}: {wrong}")


if __name__ == "__main__":
    main()
