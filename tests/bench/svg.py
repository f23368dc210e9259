# SPDX-License-Identifier: Apache-2.0
"""Line plots as SVG text: panels side by side, a logarithmic axis below, one legend."""
from html import escape

WIDTH, HEIGHT = 330, 260
LEFT, TOP, BOTTOM, GAP = 56, 30, 44, 24
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#8c564b", "#ff7f0e")


def text(x, y, what, anchor="middle", size=11):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">'
            f"{escape(what)}</text>")


def ticks(low, high):
    """About five round values from low to high."""
    step = 10.0 ** -9
    for factor in (2, 2.5, 2) * 12:
        if (high - low) / step <= 6:
            break
        step *= factor
    value = -(-low // step) * step
    while value <= high + step / 1e6:
        yield value
        value += step


class Panel:
    def __init__(self, title, names, low, high):
        """@names: the marks of the axis below, each of the same width."""
        self.title, self.names, self.low, self.high = title, names, low, high
        self.lines = []  # label, {index: value}

    def line(self, label, points):
        self.lines.append((label, points))

    def draw(self, left, colours):
        across = (WIDTH - LEFT - GAP) / max(1, len(self.names) - 1)
        tall = HEIGHT - TOP - BOTTOM
        out = [text(left + LEFT + (WIDTH - LEFT - GAP) / 2, TOP - 12, self.title, size=12)]

        def place(index, value):
            value = min(max(value, self.low), self.high)
            return (left + LEFT + index * across,
                    TOP + tall * (1 - (value - self.low) / (self.high - self.low)))

        for value in ticks(self.low, self.high):
            x, y = place(0, value)
            out.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{left + WIDTH - GAP:.1f}" '
                       f'y2="{y:.1f}" stroke="#dddddd"/>')
            out.append(text(x - 6, y + 4, f"{value:g}", "end", 10))
        for index, name in enumerate(self.names):
            x, y = place(index, self.low)
            out.append(f'<g transform="translate({x:.1f},{y + 12:.1f}) rotate(-35)">'
                       + text(0, 0, name, "end", 9) + "</g>")
        for label, points in self.lines:
            colour = colours[label]
            spots = [place(index, value) for index, value in sorted(points.items())]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
            out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" '
                       f'points="{path}"/>')
            out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}"/>' for x, y in spots]
        return out


def plot(title, panels, columns=2):
    labels = list(dict.fromkeys(label for panel in panels for label, _ in panel.lines))
    colours = {label: COLOURS[n % len(COLOURS)] for n, label in enumerate(labels)}
    rows = -(-len(panels) // columns)
    width, height = WIDTH * min(columns, len(panels)), HEIGHT * rows + 54
    out = ['<?xml version="1.0" encoding="utf-8"?>',
           "<!-- SPDX-License-Identifier: Apache-2.0 -->",
           f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           'font-family="sans-serif">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           text(width / 2, 20, title, size=13)]
    for n, panel in enumerate(panels):
        out.append(f'<g transform="translate(0,{28 + HEIGHT * (n // columns)})">')
        out += panel.draw(WIDTH * (n % columns), colours)
        out.append("</g>")
    x = 20
    for label in labels:
        out.append(f'<line x1="{x}" y1="{height - 14}" x2="{x + 18}" y2="{height - 14}" '
                   f'stroke="{colours[label]}" stroke-width="2"/>')
        out.append(text(x + 23, height - 10, label, "start"))
        x += 40 + 7 * len(label)
    out.append("</svg>")
    return "\n".join(out) + "\n"
