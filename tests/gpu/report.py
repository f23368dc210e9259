#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""report.py FIGURES.jsonl FOLDER: tables on standard output, plots as gpu-*.svg into FOLDER."""
import json
import sys

SMALL = 1 << 16  # up to here the time tells, above it the bandwidth

NAMES = {
    "mpib-fused": "MPIB fused",
    "mpib-auto": "MPIB auto",
    "mpib-vanilla": "MPIB vanilla",
    "ib-merged": "net_ib merged",
    "ib-one": "net_ib one NIC",
    "socket": "Socket",
    "sout-alone": "SOUT alone",
    "sup-alone": "SUP alone",
    "one-rail": "one rail as fast as both",
}


def size(count):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count // unit} {name}"
    return f"{count} B"


def cell(figure):
    if figure["bytes"] <= SMALL:
        return f"{figure['us']:.1f} µs"
    return f"{figure['busbw']:.2f} GB/s"


def read(path):
    tables = {}
    for line in open(path):
        figure = json.loads(line)
        table = tables.setdefault((figure["rails"], figure["op"]), {})
        table.setdefault(figure["net"], {})[figure["bytes"]] = figure
    return tables


def table(nets, title):
    sizes = sorted({count for net in nets.values() for count in net})
    print(f"\n### {title}\n")
    print("| size |" + "".join(f" {NAMES[net]} |" for net in nets) + " MPIB / net_ib merged |")
    print("|---:|" + "---:|" * (len(nets) + 1))
    for count in sizes:
        row = [size(count)]
        for net in nets.values():
            figure = net.get(count)
            row.append(cell(figure) if figure else "")
        ours, theirs = nets["mpib-fused"].get(count), nets["ib-merged"].get(count)
        row.append(f"{theirs['us'] / ours['us']:.2f}" if ours and theirs else "")
        print("| " + " | ".join(row) + " |")


def ratios(tables):
    print("\n### Against the targets\n")
    for (rails, op), nets in tables.items():
        ours, merged = nets["mpib-fused"], nets["ib-merged"]
        for count, figure in sorted(ours.items()):
            ratio = merged[count]["us"] / figure["us"]
            if rails == "unshaped" and (count <= 8192 or count >= 1 << 20):
                verdict = "met" if ratio >= 1.0 else "missed"
                print(f"- {op}, {size(count)}: {ratio:.2f} times net_ib merged (1.0: {verdict})")
            if rails == "unshaped" and count == 1 << 28:
                ratio = nets["socket"][count]["us"] / figure["us"]
                verdict = "met" if ratio >= 1.5 else "missed"
                print(f"- {op}, {size(count)}: {ratio:.2f} times Socket (1.5: {verdict})")
            if rails == "shaped":
                both = nets["sout-alone"][count]["busbw"] + nets["sup-alone"][count]["busbw"]
                print(
                    f"- shaped, {op}, {size(count)}: {figure['busbw'] / both:.3f} of the sum of the"
                    f" rails (0.97), {ratio:.2f} times net_ib merged (2)"
                )
                if "one-rail" in nets:
                    auto = nets["mpib-auto"][count]["busbw"] / nets["one-rail"][count]["busbw"]
                    print(f"- shaped, {op}, {size(count)}, auto: {auto:.3f} of one rail as fast as both (0.97)")


def save(figure, path):
    """As the tree wants its files: with a licence, without blanks at the ends of lines."""
    figure.savefig(path, metadata={"Date": None})
    lines = [line.rstrip() for line in open(path)]
    lines.insert(1, "<!-- SPDX-License-Identifier: Apache-2.0 -->")
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")


def plot(nets, rails, op, folder):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "mpib", "svg.fonttype": "none"})
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4))
    for net, points in nets.items():
        counts = sorted(points)
        right.plot(counts, [points[c]["busbw"] for c in counts], marker="o", ms=3, label=NAMES[net])
        small = [c for c in counts if c <= SMALL] or counts
        left.plot(small, [points[c]["us"] for c in small], marker="o", ms=3, label=NAMES[net])
    for axes, what in ((left, "µs"), (right, "bus bandwidth, GB/s")):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("bytes")
        axes.set_ylabel(what)
        axes.grid(alpha=0.3)
    right.legend(fontsize=8)
    figure.suptitle(f"{op}, {rails} rails")
    figure.tight_layout()
    save(figure, f"{folder}/gpu-{rails}-{op}.svg")


def main():
    tables = read(sys.argv[1])
    for (rails, op), nets in tables.items():
        table(nets, f"{op}, {rails} rails")
        plot(nets, rails, op, sys.argv[2])
    ratios(tables)


main()
