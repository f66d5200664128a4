#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0

"""Draws docs/plot-*.svg from the figures of docs/benchmarks.md.

`cargo xtask reference` draws them too. With `--check` it writes nothing, names the pictures that differ, and ends with 1.
"""

import argparse
import math
import re
import sys
from html import escape
from pathlib import Path
from typing import Callable, Iterator, NamedTuple

import sizing

DOCS = Path(__file__).parent

# Measured programs, and their names. The first two have their values in the pictures.
PROGRAMS = {"tidegate": "tidegate", "otelcol": "OpenTelemetry Collector", "rotel": "Rotel", "telegraf": "Telegraf"}

# Jobs with a table of programs, and what a reader calls them.
JOBS = [
    ("otlp/grpc-1", "gRPC, 1 point a request"),
    ("otlp/grpc-100", "gRPC, 100 points"),
    ("otlp/grpc-1000", "gRPC, 1,000 points"),
    ("otlp/grpc-8000", "gRPC, 8,000 points"),
    ("otlp/grpc-1000-gzip", "gRPC, 1,000 points, gzip"),
    ("otlp/grpc-1000-zstd", "gRPC, 1,000 points, zstd"),
    ("otlp/http-1000", "HTTP, 1,000 points"),
    ("otlp/edit-1000", "gRPC, 1,000, edit and filter"),
    ("aggregate/aggregate", "gRPC, 1,000, aggregate"),
]

# Queries of `engine/beside`.
QUERIES = {
    "sum": "sum",
    "sum by label": "sum by label",
    "sum of rates by label": "sum of rates by label",
    "topk": "topk",
    "filter": "filter",
    "quantile of histograms": "quantile of histograms",
    "one of many": "one series",
}

STYLE = (
    "text{font:12px sans-serif;fill:#24292f}.t{font-size:15px;font-weight:bold}.s{font-size:11px;fill:#57606a}.p{fill:#fff}"
    ".g{stroke:#d0d7de}.m,.w,.l{stroke-width:2}.l,.h{fill:none}"
    ".c0{stroke:#0b63c5;fill:#0b63c5}.c1{stroke:#c2410c;fill:#c2410c}.c2{stroke:#15803d;fill:#15803d}"
    ".c3{stroke:#8b3fc0;fill:#8b3fc0}.m.h{fill:#fff}.l{fill:none}"
    "@media(prefers-color-scheme:dark){text{fill:#e6e8eb}.s{fill:#a3abb5}.p,.m.h{fill:#14171b}.g{stroke:#3a414a}"
    ".c0{stroke:#6cb2ff;fill:#6cb2ff}.c1{stroke:#ff9d6b;fill:#ff9d6b}.c2{stroke:#5fd38d;fill:#5fd38d}"
    ".c3{stroke:#d3a2f5;fill:#d3a2f5}.m.h{fill:#14171b}.l{fill:none}}"
)

WIDTH = 720
# Names of rows are left of here.
LEFT = 220
RIGHT = 700
TOP = 84
ROW = 32
PANEL = 230


class Value(NamedTuple):
    """A figure: the median, and the least and the most of all rounds. Of a lower bound, the program can do more."""

    median: float
    least: float
    most: float
    is_bound: bool = False


class Axis(NamedTuple):
    """Values from `low` to `high`, which lie at `begin` to `end` in the picture."""

    low: float
    high: float
    begin: float
    end: float
    is_log: bool = True

    def at(self, value: float) -> float:
        scaled = math.log10 if self.is_log else float
        part = (scaled(value) - scaled(self.low)) / (scaled(self.high) - scaled(self.low))
        return self.begin + part * (self.end - self.begin)

    def ticks(self) -> Iterator[float]:
        if self.is_log:
            decades = range(round(math.log10(self.low)), round(math.log10(self.high)) + 1)
            yield from (10.0**decade for decade in decades)
        else:
            yield from (self.low + (self.high - self.low) * step / 5 for step in range(6))


def decades(values: list[float], begin: float, end: float) -> Axis:
    """A logarithmic axis of whole decades."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return Axis(10.0**low, 10.0 ** max(high, low + 1), begin, end)


# A name, and its values in the order of the legend.
Row = tuple[str, list[Value | None]]


class Dots(NamedTuple):
    """A row of marks for each name, over one axis of values. The legend names the marks of a row."""

    title: str
    unit: str
    legend: list[str]
    rows: list[Row]
    # Where the figures are.
    sections: list[str]
    # The end of the axis, if it is linear from 0.
    linear_to: float | None = None


def number(text: str) -> float:
    found = re.match(r"([\d.]+)( M\b)?", text)
    assert found, f"`{text}` is not a figure"
    return float(found[1]) * (1e6 if found[2] else 1)


def value(text: str, spread: str = "") -> Value:
    """A figure with its spread, which may stand in brackets."""
    median = number(text)
    _, _, bracket = text.partition("[")
    least, dots, most = (bracket or spread).partition(" .. ")
    return Value(median, number(least) if dots else median, number(most) if dots else median, "bound by the load" in text)


def rows_of(benchmarks: str, section: str) -> Iterator[dict[str, str]]:
    """The rows of all tables of a section, by the heads of their columns."""
    head: list[str] = []
    for line in sizing.text_of(benchmarks, section).splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if not cells:
            head = []
        elif not head:
            head = cells
        elif not cells[0].startswith("---"):
            # The last column of figures, the verdict, has no name.
            yield dict(reversed(list(zip(head, cells))))


def figures(benchmarks: str, section: str) -> dict[str, Value]:
    rows = [row for row in rows_of(benchmarks, section) if "figure" in row]
    return {row["figure"]: value(row["value"], row["min .. max of runs"]) for row in rows}


def of_programs(benchmarks: str, section: str, column: str) -> list[Value | None]:
    """What each program has in a column. Some programs cannot do some jobs."""
    found = {row[""]: value(row[column]) for row in rows_of(benchmarks, section) if column in row}
    assert "tidegate" in found, f"docs/benchmarks.md has no `{column}` of tidegate in {section}"
    return [found.get(program) for program in PROGRAMS]


def of_jobs(benchmarks: str, column: str) -> list[Row]:
    return [(name, of_programs(benchmarks, section, column)) for section, name in JOBS]


SECTIONS = [section for section, _ in JOBS]


def processor(benchmarks: str) -> Dots:
    rows = of_jobs(benchmarks, "ns a point")
    unit = "ns of one core, user and system; less is better"
    return Dots("Processor time of a point", unit, list(PROGRAMS.values()), rows, SECTIONS)


def throughput(benchmarks: str) -> Dots:
    rows = of_jobs(benchmarks, "points a second")
    unit = "points/s; more is better. Hollow: the load was the limit"
    return Dots("Points a second through one core", unit, list(PROGRAMS.values()), rows, SECTIONS)


# Rows of memory: a name, the section, and the names of the figures of tidegate and of the Collector.
MEMORY = [
    ("100,000 series on a page", "memory", "tidegate, 100000 series: resident", "otelcol, 100000 series: resident"),
    (
        "50,000 series, 1 value/s each",
        "scrape",
        "tidegate, takes over OTLP 50000 series: memory",
        "otelcol-contrib, takes over OTLP 50000 series: memory",
    ),
    ("overload, limit of 100 MiB", "overload", "in memory: peak memory in all", "otelcol-contrib: peak memory in all"),
]


def memory(benchmarks: str) -> Dots:
    rows: list[Row] = [("idle, before the first request", of_programs(benchmarks, "otlp/grpc-1000", "idle"))]
    rows += of_jobs(benchmarks, "peak")
    for name, section, *both in MEMORY:
        found = figures(benchmarks, section)
        rows.append((name, [found[figure] for figure in both]))
    sections = SECTIONS + [section for _, section, *_ in MEMORY]
    title = "Resident memory, at the peak of the load if the row has requests"
    return Dots(title, "MiB; less is better", list(PROGRAMS.values()), rows, sections)


def queries(benchmarks: str) -> Dots:
    found = figures(benchmarks, "engine/beside")
    programs = ["tidegate", "Prometheus 3"]
    rows: list[Row] = [
        (f"{name}, {kind}", [found[f"{kind} query of 50000 series, {query}: {program}"] for program in programs])
        for query, name in QUERIES.items()
        for kind in ("instant", "range")
    ]
    return Dots("PromQL queries of 50,000 series", "ms until the answer; less is better", programs, rows, ["engine/beside"])


# Rows of latency: a name, the section, and the names of its figures at p99 and at p50.
LATENCIES = [
    ("ring to page, idle", "age", "idle node: p99 of 2000", "idle node: p50"),
    ("ring to page, 1.6 M events/s", "age", "node with 1.6 M events/s: p99 of 2000", "node with 1.6 M events/s: p50"),
    ("ring to query, idle", "instant", "query, idle: p99 of 10000", "query, idle: p50"),
    ("ring to query, 100k events/s", "instant", "query, 100k events/s: p99 of 10000", "query, 100k events/s: p50"),
    ("ring to watcher, 100k series", "instant", "crossing in a watcher's stream: p99", "crossing in a watcher's stream: p50"),
]


def latency(benchmarks: str) -> Dots:
    rows: list[Row] = []
    for name, section, p99, p50 in LATENCIES:
        found = figures(benchmarks, section)
        (budget,) = [row["budget"] for row in rows_of(benchmarks, section) if row.get("figure") == p99]
        rows.append((name, [found[p99], found[p50], value(budget.removeprefix("<= "))]))
    title = "Time from an event in a ring until a reader has it"
    return Dots(title, "ms; less is better", ["p99", "p50", "budget of p99"], rows, ["age", "instant"], linear_to=50)


class Line(NamedTuple):
    """A number of agents, and what that many take."""

    name: str
    colour: int
    points: list[tuple[float, float]]


class Panel(NamedTuple):
    title: str
    lines: list[Line]


def agents(benchmarks: str) -> list[Panel]:
    """What replicas and the broker take, by the number of agents."""
    rows = list(rows_of(benchmarks, "cluster/nats"))
    columns = [(float(head.split()[0]), head) for head in rows[0] if head.endswith(" agents")]
    alone = figures(benchmarks, "replica")
    producers = [100, 1000, 10000]
    names = {"replica-0": "a replica", "nats-server": "the broker, NATS"}

    def of(program: str, column: int) -> list[tuple[float, float]]:
        (row,) = [row for row in rows if row[""].startswith(f"{program}: cores, resident memory")]
        return [(count, number(row[head].split(", ")[column])) for count, head in columns]

    def lines(column: int, figure: str) -> list[Line]:
        found = [Line(name, colour, of(program, column)) for colour, (program, name) in enumerate(names.items())]
        points = [(float(count), alone[f"{count} producers: {figure}"].median) for count in producers]
        return [*found, Line("a replica's state alone", 2, points)]

    return [
        Panel("cores", lines(0, "cores, at an interval of 1 s")),
        Panel("MiB of resident memory", lines(1, "memory of the replica")),
    ]


def short(number: float) -> str:
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.3g}{letter}"
    return f"{number:.3g}"


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "") -> str:
    kinds = f' class="{kind}"' if kind else ""
    anchors = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{kinds}{anchors}>{escape(words)}</text>\n'


def rule(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>\n'


def mark(colour: int, x: float, y: float, is_hollow: bool = False) -> str:
    """A circle, a square, a diamond or a triangle, so that colours are not needed to tell them apart."""
    kind = f'class="m c{colour}{" h" if is_hollow else ""}"'
    if colour == 0:
        return f'<circle {kind} cx="{x:.1f}" cy="{y:.1f}" r="4"/>\n'
    square, diamond = [(-4, -4), (4, -4), (4, 4), (-4, 4)], [(0, -5), (5, 0), (0, 5), (-5, 0)]
    triangle = [(0, -5), (5, 4), (-5, 4)]
    corners = [square, diamond, triangle][colour - 1]
    points = " ".join(f"{x + right:.1f},{y + down:.1f}" for right, down in corners)
    return f'<polygon {kind} points="{points}"/>\n'


def legend(names: list[str]) -> str:
    drawn, x = "", 20.0
    for colour, name in enumerate(names):
        if name:
            drawn += mark(colour, x, 44) + text(x + 10, 48, name)
            x += 34 + 6.6 * len(name)
    return drawn


def svg(title: str, height: float, body: str) -> str:
    size = f'width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<title>{escape(title)}</title>\n<style>{STYLE}</style>\n'
    return f'{head}<rect class="p" width="{WIDTH}" height="{height:.0f}"/>\n' + text(12, 24, title, "t") + body + "</svg>\n"


def days(benchmarks: str, sections: list[str]) -> str:
    """When the figures of these sections were measured."""
    found = set()
    for section in sections:
        day = re.search(r"`, (\d{4}-\d\d-\d\d), ", sizing.text_of(benchmarks, section))
        assert day, f"section {section} of docs/benchmarks.md has no day"
        found.add(day[1])
    return f"measured {' to '.join(sorted({min(found), max(found)}))}"


def draw_row(values: list[Value | None], axis: Axis, y: float) -> str:
    """The marks of a row. The first two have their values above them, on the sides that are away from each other."""
    drawn = ""
    for kind, one in reversed(list(enumerate(values))):
        if one is None:
            continue
        x = axis.at(one.median)
        if one.least < one.most:
            drawn += rule(f"w c{kind}", axis.at(one.least), y, axis.at(one.most), y)
        drawn += mark(kind, x, y, one.is_bound)
        other = values[1 - kind] if kind < 2 else None
        if other is not None:
            is_left = one.median < other.median
            drawn += text(x, y - 8, short(one.median), "s", "end" if is_left else "")
    return drawn


def draw_dots(plot: Dots, benchmarks: str) -> str:
    bottom = TOP + ROW * len(plot.rows)
    if plot.linear_to is None:
        values = [one for _, row in plot.rows for one in row if one is not None]
        axis = decades([one.least for one in values] + [one.most for one in values], LEFT, RIGHT)
    else:
        axis = Axis(0, plot.linear_to, LEFT, RIGHT, is_log=False)
    body = legend(plot.legend)
    for tick in axis.ticks():
        body += rule("g", axis.at(tick), TOP - 12, axis.at(tick), bottom)
        body += text(axis.at(tick), bottom + 16, short(tick), anchor="middle")
    for index, (name, row) in enumerate(plot.rows):
        y = TOP + ROW * index + 12
        body += text(LEFT - 12, y + 4, name, anchor="end") + draw_row(row, axis, y)
    scale = "log scale; " if axis.is_log else ""
    body += text(LEFT, bottom + 36, plot.unit) + text(LEFT, bottom + 54, scale + days(benchmarks, plot.sections), "s")
    return svg(plot.title, bottom + 64, body)


def draw_panel(panel: Panel, left: float, right: float) -> str:
    points = [point for line in panel.lines for point in line.points]
    x = decades([count for count, _ in points], left, right)
    y = decades([one for _, one in points], TOP + PANEL, TOP)
    drawn = text(left, TOP - 14, panel.title)
    for tick in x.ticks():
        drawn += rule("g", x.at(tick), TOP, x.at(tick), TOP + PANEL)
        drawn += text(x.at(tick), TOP + PANEL + 16, short(tick), anchor="middle")
    for tick in y.ticks():
        drawn += rule("g", left, y.at(tick), right, y.at(tick)) + text(left - 6, y.at(tick) + 4, short(tick), anchor="end")
    for line in panel.lines:
        path = " ".join(f"{x.at(count):.1f},{y.at(one):.1f}" for count, one in line.points)
        drawn += f'<polyline class="l c{line.colour}" points="{path}"/>\n'
        drawn += "".join(mark(line.colour, x.at(count), y.at(one)) for count, one in line.points)
    return drawn


def draw_agents(benchmarks: str) -> str:
    panels = agents(benchmarks)
    body = legend([line.name for line in panels[0].lines])
    body += draw_panel(panels[0], 60, 345) + draw_panel(panels[1], 415, RIGHT)
    body += text(60, TOP + PANEL + 36, "agents, each with 70 series and an interval of 1 s")
    body += text(60, TOP + PANEL + 54, "log scales; " + days(benchmarks, ["cluster/nats", "replica"]), "s")
    return svg("What agents cost a replica and the broker", TOP + PANEL + 64, body)


# Each picture, and what draws it.
PLOTS: dict[str, Callable[[str], str]] = {
    "plot-processor.svg": lambda page: draw_dots(processor(page), page),
    "plot-throughput.svg": lambda page: draw_dots(throughput(page), page),
    "plot-memory.svg": lambda page: draw_dots(memory(page), page),
    "plot-latency.svg": lambda page: draw_dots(latency(page), page),
    "plot-queries.svg": lambda page: draw_dots(queries(page), page),
    "plot-agents.svg": draw_agents,
}


def pictures(benchmarks: str) -> dict[Path, str]:
    return {DOCS / name: draw(benchmarks) for name, draw in PLOTS.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, and name the pictures that differ")
    arguments = parser.parse_args()
    new = pictures((DOCS / "benchmarks.md").read_text())
    differing = [path for path, picture in new.items() if not path.exists() or path.read_text() != picture]
    for path in differing:
        print(f"{path.relative_to(DOCS.parent)}: differs")
        if not arguments.check:
            path.write_text(new[path])
    return 1 if arguments.check and differing else 0


if __name__ == "__main__":
    sys.exit(main())
