#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0

"""Draws docs/concept-*.svg, the diagrams of docs/concepts.md.

`cargo xtask reference` draws them too. With `--check` it writes nothing, names the pictures that differ, and ends with 1.
"""

import argparse
import sys
from html import escape
from pathlib import Path
from typing import Callable, Iterable

DOCS = Path(__file__).parent

STYLE = (
    "text{font:12px ui-monospace,monospace;fill:#1b1f24;text-anchor:middle}.s{text-anchor:start}.h{font-size:11px;fill:#5b636d}"
    ".g{fill:#fff}.f{fill:#f3f4f6;stroke:#c9ced6}.l{fill:none;stroke:#5b636d}"
    ".d{fill:none;stroke:#8b939d;stroke-dasharray:4 3}.a,.o{fill:#5b636d}"
    ".in{fill:#dbeafe;stroke:#2f6db5}.out{fill:#dcf5e3;stroke:#2b8049}.bad{fill:#fde2e0;stroke:#b3261e}"
    ".p{fill:#fff;stroke:#5b636d}.i{fill:#2f6db5}"
    "@media(prefers-color-scheme:dark){text{fill:#e6e8eb}.h{fill:#a3abb5}"
    ".g{fill:#14171b}.f{fill:#1d2126;stroke:#3a414a}.l{stroke:#a3abb5}.d{stroke:#7a828c}.a,.o{fill:#a3abb5}"
    ".in{fill:#173354;stroke:#6cb2ff}.out{fill:#153a22;stroke:#5fd38d}.bad{fill:#4a1c19;stroke:#ff8a80}"
    ".p{fill:#14171b;stroke:#a3abb5}.i{fill:#6cb2ff}}"
)

HEAD = (
    '<marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path class="a" d="M0 0L8 4L0 8z"/></marker>'
)

WIDTH = 680


def text(x: int, y: int, words: str, kind: str = "") -> str:
    """Words around x, or from x with the class `s`. The class `h` is for explanations."""
    written = f' class="{kind}"' if kind else ""
    return f'<text{written} x="{x}" y="{y}">{escape(words, quote=False)}</text>\n'


def box(kind: str, x: int, y: int, width: int, height: int, words: str = "") -> str:
    """A box with words in its middle."""
    drawn = f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>\n'
    return drawn + (text(x + width // 2, y + height // 2 + 4, words) if words else "")


def boxes(*rows: tuple[str, int, int, int, int, str]) -> str:
    return "".join(box(*row) for row in rows)


def arrow(path: str) -> str:
    return f'<path class="l" marker-end="url(#arrow)" d="{path}"/>\n'


def arrows(*rows: tuple[str, int, int, str]) -> str:
    """Arrows, each with an explanation around x."""
    return "".join(arrow(path) + text(x, y, words, "h") for path, x, y, words in rows)


def dashes(path: str) -> str:
    return f'<path class="d" d="{path}"/>\n'


def line(path: str) -> str:
    return f'<path class="l" d="{path}"/>\n'


def dots(kind: str, y: int, places: Iterable[int]) -> str:
    """Observations on a line. The class `i` is for those that count."""
    return "".join(f'<circle class="{kind}" cx="{x}" cy="{y}" r="4"/>\n' for x in places)


def svg(title: str, height: int, body: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n{HEAD}\n"
        f'<rect class="g" width="{WIDTH}" height="{height}"/>\n{body}</svg>\n'
    )


def source() -> str:
    """The lives of three sources, and the state of a value that needs them all."""
    left, right, gone = 130, 560, 368
    body = text(20, 26, "source", "s h") + text(left, 26, "signs of life", "s h") + text(right + 24, 26, "now", "s h")
    for y, name, places, now in (
        (54, "pod 1", range(140, right, 35), "alive"),
        (94, "pod 2", [140, 175, 210, *range(280, right, 35)], "alive"),
        (134, "pod 3", [140, 175, 210, 245, 280], "missing"),
    ):
        end = gone if now == "missing" else right
        body += text(20, y + 4, name, "s") + line(f"M{left} {y}H{end}") + dots("i", y, places)
        body += text(right + 24, y + 4, now, "s")
    body += dashes(f"M{gone} 134H{right}M{gone} 124V176")
    body += text(245, 84, "restart at 0", "h") + text(325, 124, "silent", "h") + text(464, 124, "its lease is over", "h")
    body += text(20, 194, "value of all", "s")
    body += boxes(("out", left, 176, gone - left, 28, "fresh"), ("bad", gone, 176, right - gone, 28, "partial"))
    body += arrows((f"M{left} 222H{right}", right, 240, "time"))
    return svg("The lives of three sources", 252, body)


def series() -> str:
    """Three sources, and the two series that a rule makes of what they send."""
    body = text(20, 26, "sources, with what each sends", "s h") + text(381, 26, "by: [model]", "h")
    body += text(462, 26, "series after the rule", "s h")
    for y, height, name, sent in (
        (40, 30, "pod 1", ['requests{model="llama"} 10']),
        (82, 50, "pod 2", ['requests{model="llama"}  5', 'requests{model="qwen"}   4']),
        (144, 30, "pod 3", ['requests{model="qwen"}   3']),
    ):
        body += box("f", 20, y, 290, height) + text(34, y + height // 2 + 4, name, "s")
        for row, words in enumerate(sent):
            body += text(98, y + 19 + 20 * row, words.replace("  ", " "), "s")
    body += boxes(("out", 450, 58, 210, 32, 'requests{model="llama"} 15'), ("out", 450, 124, 210, 32, 'requests{model="qwen"} 7'))
    for start, end in ((55, 68), (97, 80), (117, 134), (159, 146)):
        body += arrow(f"M310 {start}C380 {start} 380 {end} 448 {end}")
    return svg("Three sources and two series", 190, body)


def window() -> str:
    """Observations on a line of time, and those of the last 10 s before a question."""
    body = box("in", 330, 44, 250, 44) + arrows(("M30 66H650", 650, 86, "time"))
    body += dots("o", 66, [70, 140, 190, 290]) + dots("i", 66, [350, 395, 410, 480, 540, 568])
    body += text(180, 32, "left the window", "h") + text(455, 32, "in the window: they make the value")
    body += dashes("M330 44V112M580 44V112") + arrow("M455 104H578") + arrow("M455 104H332")
    body += text(455, 124, "10 s", "h") + text(600, 132, "question") + arrow("M580 122V92")
    return svg("A sliding window of 10 seconds", 150, body)


def states() -> str:
    """The states of a composite, and what leads from one to another."""
    body = boxes(
        ("p", 30, 100, 90, 40, "absent"),
        ("out", 250, 100, 90, 40, "fresh"),
        ("in", 250, 20, 90, 40, "idle"),
        ("f", 480, 100, 90, 40, "partial"),
        ("bad", 480, 190, 90, 40, "stale"),
    )
    body += arrows(
        ("M120 114H248", 184, 106, "first data"),
        ("M284 100V62", 214, 84, "window is empty"),
        ("M306 60V98", 340, 84, "data"),
        ("M340 112H478", 410, 104, "a source is gone"),
        ("M480 130H342", 410, 146, "it is there again"),
        ("M525 140V188", 576, 168, "all are gone"),
        ("M480 206C380 206 310 190 300 142", 410, 182, "all are there again"),
        ("M480 222C240 236 90 220 76 142", 210, 238, "every source has left"),
    )
    return svg("The states of a composite", 250, body)


def temporality() -> str:
    """The same increases as cumulative points and as deltas. One point is lost."""
    body = ""
    for base, name, meaning, result, points in (
        (124, "cumulative", "the total since the start", "the reader has 9: nothing is lost", ((3, "3"), (5, "5"), (9, "9"))),
        (220, "delta", "the increase since the last point", "the reader has 3 + 4 = 7: 2 are lost", ((3, "+3"), (2, "+2"), (4, "+4"))),
    ):
        body += text(20, base - 36, name, "s") + text(20, base - 18, meaning, "s h") + text(20, base, result, "s h")
        body += line(f"M290 {base}H660")
        for x, (count, words) in zip((390, 490, 590), points):
            is_lost = x == 490
            body += box("bad" if is_lost else "in", x - 30, base - 8 * count, 60, 8 * count)
            body += text(x, base - 8 * count - 6, f"{words} lost" if is_lost else words)
    body += arrows(("M290 246H660", 646, 264, "time"))
    for x, words in ((290, "0 s"), (390, "10 s"), (490, "20 s"), (590, "30 s")):
        body += line(f"M{x} 242V250") + text(x, 264, words, "h")
    return svg("Cumulative points and deltas", 276, body)


def acknowledgement() -> str:
    """When a sender gets its answer."""
    body = boxes(
        ("p", 30, 16, 100, 32, "sender"),
        ("in", 230, 16, 100, 32, "gateway"),
        ("f", 390, 16, 90, 32, "disk"),
        ("out", 550, 16, 110, 32, "destination"),
    )
    body += dashes("M80 48V256M280 48V256M435 48V256M605 48V256") + arrow("M435 142H282")
    body += arrows(
        ("M80 72H278", 180, 66, "batch"),
        ("M280 96H82", 180, 90, "answer: in the queue"),
        ("M280 122H433", 357, 116, "write"),
        ("M280 160H82", 180, 154, "with storage"),
        ("M280 186H603", 357, 180, "send"),
        ("M605 208H282", 520, 202, "taken"),
        ("M280 230H82", 180, 224, "with wait_for_result"),
    )
    return svg("When a sender gets its answer", 270, body)


# Each picture, and what draws it.
DIAGRAMS: dict[str, Callable[[], str]] = {
    "concept-series.svg": series,
    "concept-source.svg": source,
    "concept-window.svg": window,
    "concept-states.svg": states,
    "concept-temporality.svg": temporality,
    "concept-acknowledgement.svg": acknowledgement,
}


def pictures() -> dict[Path, str]:
    return {DOCS / name: draw() for name, draw in DIAGRAMS.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, and name the pictures that differ")
    arguments = parser.parse_args()
    differing = [path for path, picture in pictures().items() if not path.exists() or path.read_text() != picture]
    for path in differing:
        print(f"{path.relative_to(DOCS.parent)}: differs")
        if not arguments.check:
            path.write_text(pictures()[path])
    return 1 if arguments.check and differing else 0


if __name__ == "__main__":
    sys.exit(main())
