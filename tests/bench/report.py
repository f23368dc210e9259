# SPDX-License-Identifier: Apache-2.0
"""Tables and plots of what `run` wrote."""
from ground import KIB, MIB, name_of
from svg import Panel, plot

TARGETS = {256 * KIB: 0.95, MIB: 0.98, 4 * MIB: 0.98, 16 * MIB: 0.98, 64 * MIB: 0.98}
OWN = ("part", "case", "ratio", "size", "outstanding", "sum", "share", "command")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def verdict(good):
    return "met" if good else "missed"


def number(value, digits=3):
    return "" if value is None else f"{value:.{digits}f}"


class Results:
    def __init__(self, records):
        self.records = records

    def of(self, part, prefix=""):
        return [r for r in self.records if r["part"] == part and r["case"].startswith(prefix)]

    def one(self, part, case):
        found = [r for r in self.records if r["part"] == part and r["case"] == case]
        return found[0] if found else None


def others(points):
    """The names of the plugins beside ours."""
    return [key for key in points[0] if key not in (*OWN, "fused", "equal", "sout", "sup")]


def best(points, name):
    return max((p[name] for p in points if name in p), default=None)


# --- sections: a name, and the text for these results ("" where they have none) ---

def machine(results):
    about = results.one("about", "machine")
    if not about:
        return ""
    return (f"{about['cpu']}, {about['cores']} cores, Linux {about['kernel']}, {about['libc']}; "
            f"load before: {about['load_before']:.1f}"
            + ("; a quick look" if about["quick"] else "") + ".")


def instructions(results):
    rows = [[r["name"], r["plugin"], f"{r['instructions']:.0f}", f"{r['posts']:g}",
             f"{r['requests']:g}", f"{r['polls']:g}", f"{r['completions']:g}"]
            for r in results.of("instructions")]
    rows.sort(key=lambda row: row[0])
    return table(["case", "plugin", "instructions", "post calls", "work requests", "polls",
                  "completions"], rows) if rows else ""


def goodput(results):
    points = results.of("goodput")
    if not points:
        return ""
    names = others(points)
    rows = []
    for ratio in sorted({p["ratio"] for p in points}):
        for size in sorted({p["size"] for p in points}):
            here = [p for p in points if (p["ratio"], p["size"]) == (ratio, size)]
            if not here:
                continue
            fused, target = best(here, "fused"), TARGETS.get(size)
            at = min(p["outstanding"] for p in here if p["fused"] >= 0.995 * fused)
            rows.append([f"1:{ratio}", name_of(size), number(fused), at,
                         number(best(here, "equal")), *[number(best(here, n)) for n in names],
                         number(best(here, "sout")), number(best(here, "sup")),
                         f"≥ {target}: {verdict(fused >= target)}" if target else ""])
    return table(["SOUT:SUP", "message", "fused", "outstanding", "equal split",
                  *names, "SOUT alone", "SUP alone", "target"], rows)


def unlimited(results):
    points = results.of("unlimited")
    if not points:
        return ""
    names = list(points[0]["median"])
    rows = [[name_of(p["size"]), p["outstanding"],
             *[f"{p['median'][n] / 1e9:.2f} ({p['tenth'][n] / 1e9:.2f})" for n in names],
             *[number(p["fused_over"][n], 2) for n in names if n != "fused"]] for p in points]
    return table(["message", "outstanding", *[f"{n}, GB/s" for n in names],
                  *[f"fused / {n}" for n in names if n != "fused"]], rows)


def latency(results):
    rows = []
    points = results.of("latency", "small/")
    if not points:
        return ""
    names = list(points[0]["us"])
    for p in points:
        row = [name_of(p["size"]), f"{p['latency_us']} µs"]
        row += [f"{p['us'][n]:.2f}" + ("" if n == "single" else f" ({p['ratio'][n]:.3f})")
                for n in names]
        row.append(f"≤ 1.02: {verdict(p['ratio']['fused'] <= 1.02)}" if p["size"] == 8 else "")
        rows.append(row)
    head = ["message", "rails' latency", *[f"{n}, µs" for n in names], "target"]
    return table(head, rows)


def split_pays(results):
    points = results.of("latency", "split-pays/")
    if not points:
        return ""
    ratios = sorted({p["ratio"] for p in points})
    by = {(p["ratio"], p["size"]): p for p in points}
    rows = []
    for size in sorted({p["size"] for p in points}):
        cells = [by.get((ratio, size)) for ratio in ratios]
        rows.append([name_of(size), *[f"{p['split_over_whole']:.3f}" if p else "" for p in cells]])
    rows.append(["bytes alone", *[number(r / (1 + r)) for r in ratios]])
    return table(["message", *[f"1:{ratio}" for ratio in ratios]], rows)


def split_cost(results):
    found = results.one("latency", "split-cost")
    if not found:
        return ""
    if found["cost_us"] <= 0:
        return "The machine was too busy to tell what a second request takes."
    rows = [[f"{p['sup_rate'] * 8 / 1e9 / p['ratio']:.0f} + {p['sup_rate'] * 8 / 1e9:.0f} Gb/s",
             f"1:{p['ratio']}", f"{p['bytes'] / KIB:.0f} KiB"] for p in found["pays"]]
    return (f"A second request takes {found['cost_us']:.2f} µs "
            f"({', '.join(f'{c:.2f}' for c in found['costs_us'])} at 512, 1024 and 2048 bytes).\n\n"
            + table(["rails", "SOUT:SUP", "a split pays from"], rows))


def scale(results):
    points = results.of("scale", "cpu/")
    if not points:
        return ""
    rows = []
    for p in points:
        target = ""
        if p["plugin"] == "MPIB" and p["busy"] == 1 and p["connections"] == 1000:
            target = f"≤ 1.05: {verdict(p['ratio'] <= 1.05)}"
        count = results.one("scale", f"instructions/{p['plugin']}/{p['connections']}")
        rows.append([p["plugin"], p["connections"], p["busy"], f"{p['cpu_ns']:.0f}",
                     f"{p['messages_per_second'] / 1e6:.2f}", f"{p['ratio']:.3f}",
                     f"{count['instructions']:.0f}" if count and p["busy"] == 1 else "", target])
    return table(["plugin", "connections", "busy", "CPU ns", "million a second",
                  "over the first", "instructions", "target"], rows)


def set_up(results):
    points = results.of("scale", "fabric/")
    if not points:
        return ""
    rows = []
    for p in points:
        peer = results.one("scale", f"fabric/net_ib/{p['connections']}")
        ratio = p["seconds"] / peer["seconds"] if peer else None
        target = ""
        if p["connections"] == 1000 and p["plugin"].startswith("MPIB") and ratio:
            target = f"≤ 0.8: {verdict(ratio <= 0.8)}"
        busy = ", ".join(f"{n}: {v['per_second'] / 1e3:.0f}" for n, v in p["busy"].items())
        rows.append([p["plugin"], p["connections"], f"{p['seconds'] * 1e3:.1f}",
                     number(ratio, 2), number(p["cpu_ms_each"], 2), f"{p['kib_each']:.0f}",
                     f"{p['files_each']:g}", busy, target])
    return table(["plugin", "connections", "set-up, ms", "over net_ib", "CPU ms each",
                  "KiB each end", "files each end", "thousand messages/s (busy)", "target"], rows)


def hint(results):
    rows = []
    read = results.one("hint", "read")
    if read:
        rows.append(["hint read, warm", f"{read['warm_ns']:.1f} ns",
                     f"≤ 5 ns: {verdict(read['warm_ns'] <= 5)}"])
        rows.append(["hint read, a writer at 1 kHz", f"{read['written_ns']:.1f} ns", ""])
        rows.append(["hint read, its line in no cache", f"{read['cold_ns']:.0f} ns", ""])
    for p in results.of("hint", "register/"):
        clients = "1 client" if p["clients"] == 1 else f"{p['clients']} clients"
        rows.append([f"register and deregister, {clients}",
                     f"{p['per_second']} a second; register p50 {p['p50_us']:.0f} µs, "
                     f"p99 {p['p99_us']:.0f} µs", ""])
    slots = results.one("hint", "slots")
    if slots:
        rows.append([f"{slots['slots']} slots change, first to last", f"{slots['change_us']:.1f} µs",
                     ""])
        rows.append(["`mpibctl reload` that does it", f"{slots['reload_us'] / 1e3:.1f} ms", ""])
    return table(["what", "figure", "target"], rows) if rows else ""


ATTACKS = {"quiet": "none", "a02": "110 000 registrations, 8191 counters, the end",
           "a03": "STATUS and FLOWS in 64 pipelines, read slowly",
           "a08": "four processes that connect, register, leave",
           "a10": "two users who take slots, monitors, connections", "all": "all at once"}


def attacks(results):
    rows = [[ATTACKS.get(r["case"], r["case"]), f"{r['p50_us']:.0f}", f"{r['p99_us']:.0f}",
             f"{r['worst_us']:.0f}", f"{r['beat_gap_ms']:.0f}", f"{r['agent_percent']:.0f} %",
             verdict(r["p99_us"] <= 1000 and r["beat_gap_ms"] <= 1500 and not r["failed"])]
            for r in results.of("attacks")]
    return table(["attack", "p50, µs", "p99, µs", "worst, µs", "heartbeat, ms", "agent",
                  "≤ 1000 µs, ≤ 1500 ms"], rows) if rows else ""


def single(results):
    rows = []
    for r in results.of("single"):
        for name in ("before", "now"):
            if name in r:
                rows.append([{"together": "one core", "apart": "two cores"}[r["case"]], name,
                             f"{r[name]['p50_us']:.1f}", f"{r[name]['p99_us']:.1f}",
                             f"{r[name]['agent_us']:.1f}"])
        if "ratio" in r:
            rows.append(["", "ratio", f"{r['ratio']['p50_us']:.2f}", f"{r['ratio']['p99_us']:.2f}",
                         f"{r['ratio']['agent_us']:.2f}"])
    return table(["client and agent on", "agent", "p50, µs", "p99, µs", "agent's own, µs"],
                 rows) if rows else ""


def cuts(results):
    rows = []
    for r in results.of("cuts"):
        rows.append(["cuts; wrong, lost, hang", f"{r['cuts']}; {r['wrong']}, {r['lost']}, {r['hang']}", "", "",
                     "0, 0, 0: met"])
        for name, text, target in CUT_TIMES:
            of = r[name]
            rows.append([text, number(of["p50"], 1), number(of["p99"], 1), number(of["max"], 1),
                         f"≤ {target} ms: {verdict(of['p99'] <= target)} at p99" if target else ""])
        good = r["goodput"]
        if good:
            rows.append([f"goodput after the return over before, {good['pairs']} times: median, least",
                         number(good["median"]), "", number(good["least"]),
                         f"≥ 0.99: {verdict(good['median'] >= 0.99)}"])
    return table(["", "p50", "p99", "worst", "target"], rows) if rows else ""


CUT_TIMES = (("byte_ms", "first payload on the other rail once the receiver is over the loss, ms after the port's event", 20),
             ("settled_ms", "the receiver over the loss, ms", None),
             ("message_ms", "first message whole after that, ms", None),
             ("silence_ms", "longest time without a message, ms", None),
             ("back_ms", "the rail in use again, ms after its port", None))
SECTIONS = {"machine": machine, "instructions": instructions, "goodput": goodput,
            "unlimited": unlimited, "latency": latency, "split-pays": split_pays,
            "split-cost": split_cost, "scale": scale, "set-up": set_up, "hint": hint,
            "attacks": attacks, "single": single, "cuts": cuts}


def markdown(records):
    results = Results(records)
    parts = [(name, section(results)) for name, section in SECTIONS.items()]
    return "\n\n".join(f"### {name}\n\n{text}" for name, text in parts if text)


def into(records, document):
    """The text of @document with what stands between its marks replaced."""
    results = Results(records)
    for name, section in SECTIONS.items():
        start, end = f"<!-- bench {name} -->\n", f"<!-- end of {name} -->\n"
        found = section(results)
        if not found or start not in document:
            continue
        before, rest = document.split(start, 1)
        document = before + start + found + "\n" + end + rest.split(end, 1)[1]
    return document


# --- plots ---

def plots(records):
    """File name -> SVG."""
    results = Results(records)
    drawn = {}
    points = results.of("goodput")
    if points:
        drawn["bench-goodput.svg"] = goodput_plot(points)
    points = results.of("latency", "split-pays/")
    if points:
        drawn["bench-split.svg"] = split_plot(points)
    return drawn


def goodput_plot(points):
    sizes = sorted({p["size"] for p in points})
    panels = []
    for ratio in sorted({p["ratio"] for p in points}):
        panel = Panel(f"SOUT:SUP 1:{ratio}", [name_of(s) for s in sizes], 0, 1.05)
        for name in ("fused", "equal", *others(points)):
            here = {sizes.index(size): best([p for p in points if p["ratio"] == ratio
                                             and p["size"] == size], name) for size in sizes}
            panel.line({"equal": "equal split"}.get(name, name),
                       {k: v for k, v in here.items() if v is not None})
        panel.line("fused, 1 outstanding",
                   {sizes.index(p["size"]): p["fused"] for p in points
                    if p["ratio"] == ratio and p["outstanding"] == 1})
        panels.append(panel)
    return plot("Goodput over the sum of the rails", panels)


def split_plot(points):
    sizes = sorted({p["size"] for p in points})
    panel = Panel("time of a split message over that of a whole one", [name_of(s) for s in sizes],
                  0.4, 1.2)
    for ratio in sorted({p["ratio"] for p in points}):
        panel.line(f"1:{ratio}", {sizes.index(p["size"]): p["split_over_whole"] for p in points
                                  if p["ratio"] == ratio})
    return plot("Where a split pays", [panel], columns=1)
