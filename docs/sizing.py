# SPDX-License-Identifier: Apache-2.0

"""The tables of docs/operations.md for sizing, from the figures of docs/benchmarks.md."""

import re

BEGIN, END = "<!-- sizing: begin -->\n", "<!-- sizing: end -->\n"

# Work, the section with its figure, and the name of the figure: nanoseconds of a processor for one item.
PROCESSOR = [
    ("events of NIXL rings", "ring", "version 4: processor time an event"),
    ("points by OTLP/gRPC, passed on", "otlp/grpc-1000", "grpc-1000, tidegate: processor time a point"),
    ("points by OTLP/HTTP, passed on", "otlp/http-1000", "http-1000, tidegate: processor time a point"),
    ("points by OTLP/gRPC with gzip, passed on", "otlp/grpc-1000-gzip", "grpc-1000-gzip, tidegate: processor time a point"),
    ("points whose attributes change on the way", "otlp/edit-1000", "edit-1000, tidegate: processor time a point"),
    ("points that `aggregate` adds up", "aggregate/aggregate", "aggregate, tidegate: processor time a point"),
    ("samples that the gateway scrapes", "scrape", "tidegate, scrapes 50000 series: processor time a sample"),
    ("series on a page that is scraped", "scrape", "tidegate, takes over OTLP 50000 series: processor time a series shown"),
]

RATES = [10_000, 100_000, 1_000_000]

# The same for bytes of memory.
MEMORY = [
    ("series held, and shown on a page", "memory", "tidegate, 100000 series: a series held and exposed"),
    ("the same with `admin`", "memory", "tidegate with admin, 100000 series: a series held and exposed"),
    ("series that the gateway scrapes", "scrape", "tidegate, scrapes 50000 series: memory a series"),
]

SERIES = [10_000, 100_000, 1_000_000]

IDLE = ("start", "resident memory, idle")


def text_of(benchmarks: str, section: str) -> str:
    _, begin, rest = benchmarks.partition(f"<!-- section {section} -->\n")
    assert begin, f"docs/benchmarks.md has no section {section}"
    return rest.partition("<!-- section ")[0]


def figure(benchmarks: str, section: str, name: str) -> tuple[float, str]:
    """The value of a figure, and its unit."""
    text = text_of(benchmarks, section)
    found = re.search(rf"^\| {re.escape(name)} \| ([\d.]+) (\S+) \|", text, re.MULTILINE)
    assert found, f"docs/benchmarks.md has no figure `{name}` in {section}"
    return float(found[1]), found[2]


def link(section: str) -> str:
    return f"[{section}](benchmarks.md#{section.replace('/', '')})"


def short(value: float) -> str:
    """Two digits that count."""
    return f"{value:,.0f}" if value >= 10 else f"{float(f'{value:.2g}'):g}"


def tables(benchmarks: str) -> str:
    heads = " | ".join(f"{rate:,}/s" for rate in RATES)
    text = f"| cores for | one takes | {heads} | measured in |\n| --- | --- | --- | --- | --- | --- |\n"
    for work, section, name in PROCESSOR:
        value, unit = figure(benchmarks, section, name)
        assert unit == "ns", f"{name}: {unit}"
        cores = " | ".join(short(value * rate / 1e9) for rate in RATES)
        text += f"| {work} | {value:g} ns | {cores} | {link(section)} |\n"
    heads = " | ".join(f"{series:,}" for series in SERIES)
    text += f"\n| memory for | one takes | {heads} | measured in |\n| --- | --- | --- | --- | --- | --- |\n"
    for kind, section, name in MEMORY:
        value, unit = figure(benchmarks, section, name)
        assert unit == "B", f"{name}: {unit}"
        sizes = " | ".join(f"{short(value * series / 2**20)} MiB" for series in SERIES)
        text += f"| {kind} | {value:g} B | {sizes} | {link(section)} |\n"
    idle, unit = figure(benchmarks, *IDLE)
    text += f"\nAn idle gateway takes {idle:g} {unit} ({link(IDLE[0])}). Add the rows that apply.\n"
    return text


def sized(page: str, benchmarks: str) -> str:
    """The page with new tables."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, "docs/operations.md has no marks for the tables"
    return f"{before}{begin}\n{tables(benchmarks)}\n{end}{after}"
