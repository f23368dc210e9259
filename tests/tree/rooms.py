#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the rooms of plugin/ and agent/, the folders in them, to the arrows below: rooms.py TREE.

The same lines stand in docs/architecture.md. No room has more than ROOM_MAX files, and no files
include each other in a circle: X.c, X.h and X_impl.h count as one. rooms.py --print prints the
arrows."""
import re
import sys
from pathlib import Path

# ROOM -> rooms that its files may include, from above to below. A part of the tree without a line
# isn't held to any.
ARROWS = """\
plugin/nccl       -> gin setup data agent verbs base
plugin/gin        -> setup agent verbs wire base
plugin/setup      -> connection agent verbs wire base
plugin/data       -> connection verbs wire base
plugin/connection -> agent verbs wire base
plugin/agent      -> wire base
plugin/verbs      -> wire base
plugin/wire       -> base
plugin/base       ->
agent/daemon      -> clients keeper admin flows journal state policy base
agent/clients     -> keeper admin flows journal base
agent/admin       -> flows journal policy base
agent/keeper      ->
agent/flows       -> journal state slots policy base
agent/journal     -> state slots policy base
agent/state       -> base
agent/slots       -> policy base
agent/doctor      -> ctl policy base
agent/ctl         -> state policy admin base
agent/policy      -> base
agent/base        ->
"""
ROOM_MAX = 25
PICTURE = "docs/architecture.md"
ARROW = re.compile(r"^(plugin|agent)/\w+ +->")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def table():
    """The rooms that each room may use."""
    rows = (line.split(" -> ") if " -> " in line else [line.removesuffix("->"), ""]
            for line in ARROWS.splitlines())
    arrows = {}
    for room, below in rows:
        part = room.split("/")[0]
        arrows[room.strip()] = {f"{part}/{name}" for name in below.split()}
    return arrows


def includes(tree, parts):
    """File: the files that it includes by their names from the top of the tree."""
    files = [path for part in sorted(parts) for path in (tree / part).rglob("*.[ch]")]
    return {str(path.relative_to(tree)): INCLUDE.findall(path.read_text(errors="replace"))
            for path in sorted(files)}


def room(file):
    return file.rsplit("/", 1)[0]


def wrong_arrows(files, arrows):
    for file, names in files.items():
        if room(file) not in arrows:
            yield f"{file}: in no room of the table"
            continue
        for name in names:
            part_of_it = name.split("/")[0] == file.split("/")[0]
            if part_of_it and room(name) not in arrows[room(file)] | {room(file)}:
                yield f"{file}: includes {name}, and {room(file)} may not use {room(name)}"


def large_rooms(files):
    rooms = [room(file) for file in files]
    for name in sorted(set(rooms)):
        if rooms.count(name) > ROOM_MAX:
            yield f"{name}: {rooms.count(name)} files, more than {ROOM_MAX}"


def circle(files):
    """The members of a circle among the modules, or []."""
    def module(file):
        return re.sub(r"(_impl)?\.[ch]$", "", file)

    below = {module(file): set() for file in files}
    for file, names in files.items():
        below[module(file)] |= {module(name) for name in names} - {module(file)}
    left = {name: uses & set(below) for name, uses in below.items()}
    while free := [name for name, uses in left.items() if not uses]:
        for name in free:
            del left[name]
        for uses in left.values():
            uses.difference_update(free)
    # What is left leads into a circle: follow it until a module comes again.
    way = [min(left)] if left else []
    while way and way[-1] not in way[:-1]:
        way.append(min(left[way[-1]]))
    return way[way.index(way[-1]):] if way else []


def picture(tree):
    path = tree / PICTURE
    lines = path.read_text().splitlines() if path.is_file() else []
    if [line for line in lines if ARROW.match(line)] != ARROWS.splitlines():
        yield f"{PICTURE}: its arrows are not those that rooms.py --print prints"


def main(arguments):
    if arguments == ["--print"]:
        print(ARROWS, end="")
        return 0
    tree = Path(arguments[0])
    arrows = table()
    files = includes(tree, {name.split("/")[0] for name in arrows})
    bad = [*wrong_arrows(files, arrows), *large_rooms(files), *picture(tree)]
    if found := circle(files):
        bad.append("files in a circle: " + " -> ".join(found))
    print(ARROWS, end="")
    print(*bad, sep="\n", end="\n" if bad else "")
    return 1 if bad else 0


sys.exit(main(sys.argv[1:]))
