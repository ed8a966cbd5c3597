"""Draws latency against rate as SVG, for light and dark colour schemes.

There are several panels with one line for each server. The axis of times is logarithmic.
"""

import html
import math

WIDTH, HEIGHT = 400, 300  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 56, 20, 34, 46
COLUMNS = 3
HEAD = 40
LEGEND = 26
TICKS = 4
COLOURS = (("#0969da", "#58a6ff"), ("#1a7f37", "#3fb950"), ("#bc4c00", "#f0883e"),
           ("#8250df", "#bc8cff"), ("#bf3989", "#f778ba"))


class Panel:
    """One plot: points (rate, microseconds) by the name of the line."""

    def __init__(self, title, curves):
        self.title = title
        self.curves = curves
        points = [point for curve in curves.values() for point in curve if point[1] > 0]
        self.x_step = find_step(max(x for x, _ in points))
        self.x_max = math.ceil(max(x for x, _ in points) / self.x_step) * self.x_step
        self.low = math.floor(math.log10(min(y for _, y in points)))
        self.high = max(math.ceil(math.log10(max(y for _, y in points))), self.low + 1)

    def place(self, x, y):
        """Returns the position of a point in the panel."""
        part = (math.log10(y) - self.low) / (self.high - self.low)
        return (LEFT + x / self.x_max * (WIDTH - LEFT - RIGHT),
                HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM))


def find_step(largest):
    """Returns the step of an axis: 1, 2 or 5 times a power of ten, with at most TICKS steps."""
    power = 10 ** math.floor(math.log10(largest / TICKS))
    return next(factor * power for factor in (1, 2, 5, 10) if largest / (factor * power) <= TICKS)


def name_time(decade):
    """Returns the label for 10 ** decade microseconds."""
    unit, zero = (("us", 0), ("ms", 3), ("s", 6))[min(max(decade // 3, 0), 2)]
    return f"{10 ** (decade - zero):g} {unit}"


def text(kind, x, y, what):
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{html.escape(what)}</text>'


def line(x1, y1, x2, y2):
    return f'<line class="grid" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def draw_axes(panel):
    lines = [text("head", LEFT, TOP - 14, panel.title)]
    for step in range(round(panel.x_max / panel.x_step) + 1):
        x, y = panel.place(step * panel.x_step, 10 ** panel.low)
        lines += [line(x, y, x, TOP), text("mid", x, y + 16, f"{step * panel.x_step:g}")]
    for decade in range(panel.low, panel.high + 1):
        x, y = panel.place(0, 10 ** decade)
        lines += [line(x, y, WIDTH - RIGHT, y), text("end", x - 6, y + 4, name_time(decade))]
    lines.append(text("mid", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "requests/s"))
    return lines


def draw_panel(panel, names):
    """Returns the elements of a panel at the origin."""
    lines = draw_axes(panel)
    for name, points in panel.curves.items():
        colour = names.index(name) % len(COLOURS)
        places = [panel.place(x, y) for x, y in points if y > 0]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        lines.append(f'<polyline class="line l{colour}" points="{path}"/>')
        lines += [f'<circle class="d{colour}" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>'
                  f'{html.escape(name)}: {value:.0f} us at {rate:.0f}/s</title></circle>'
                  for (x, y), (rate, value) in zip(places, points)]
    return lines


def style():
    """Returns the style element. Colour n has the classes ln for lines and dn for dots."""
    light = "".join(f".l{n}{{stroke:{a}}}.d{n}{{fill:{a}}}" for n, (a, _) in enumerate(COLOURS))
    dark = "".join(f".l{n}{{stroke:{b}}}.d{n}{{fill:{b}}}" for n, (_, b) in enumerate(COLOURS))
    return ("<style>.paper{fill:#fff}text{fill:#1f2328}.grid{stroke:#d5d9de}" + light +
            "@media (prefers-color-scheme:dark){.paper{fill:#0d1117}text{fill:#e6edf3}"
            ".grid{stroke:#30363d}" + dark + "}.title{font-size:16px;font-weight:bold}"
            ".head{font-weight:bold}.mid{text-anchor:middle}.end{text-anchor:end}"
            ".line{fill:none;stroke-width:2}</style>")


def draw(panels, subtitle):
    """Returns the text of the SVG file."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    columns = min(COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    width, height = columns * WIDTH, HEAD + LEGEND + rows * HEIGHT
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
             'font-family="sans-serif" font-size="12">', style(),
             f'<rect class="paper" width="{width}" height="{height}"/>',
             text("title", LEFT, 24, "Latency against rate, open loop"),
             text("end", width - RIGHT, 24, subtitle)]
    for position, name in enumerate(names):
        x = LEFT + position * (width - LEFT) / max(len(names), 1)
        lines.append(f'<rect class="d{position % len(COLOURS)}" x="{x:.1f}" y="{HEAD + 4}" '
                     'width="14" height="5"/>')
        lines.append(text("legend", x + 20, HEAD + 11, name))
    for position, panel in enumerate(panels):
        x, y = position % columns * WIDTH, HEAD + LEGEND + position // columns * HEIGHT
        lines += [f'<g transform="translate({x} {y})">', *draw_panel(panel, names), "</g>"]
    return "\n".join(lines + ["</svg>", ""])
