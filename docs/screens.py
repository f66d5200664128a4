#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0

"""Draws a terminal as SVG: types a command into a real one, waits, and prints the picture.

The pictures `docs/screen-*.svg` are made with it. It needs tmux, and bash finds the programs in `PATH`:

    tidegate quickstart                       # in another terminal
    docs/screens.py --rows 20 'tidegate top' > docs/screen-top.svg
"""

import argparse
import os
import re
import subprocess
import sys
import time
from html import escape
from typing import Iterator, NamedTuple

# The size of a character, in pixels of the picture.
WIDTH, HEIGHT, MARGIN = 7.8, 17, 12

# Colours 0 to 15 of a terminal, for light and for dark pages.
LIGHT = "#24292f #b3261e #1a6b34 #7d5700 #0a58b5 #7d3fa8 #0b6875 #4b535c #5b636d #b3261e #1a6b34 #7d5700 #0a58b5 #7d3fa8 #0b6875 #24292f".split()
DARK = "#e6e8eb #ff8a80 #6bd68d #e3b341 #79b8ff #d3a2f5 #5fd3e2 #c2c8cf #a3abb5 #ff8a80 #6bd68d #e3b341 #79b8ff #d3a2f5 #5fd3e2 #e6e8eb".split()


class Style(NamedTuple):
    """How text looks. A colour is 0 to 15; without one, it is the usual one."""

    ink: int | None = None
    paper: int | None = None
    is_bold: bool = False
    is_dim: bool = False
    is_underlined: bool = False
    is_reverse: bool = False

    def after(self, codes: list[int]) -> "Style":
        """The style after an escape sequence."""
        style, rest = self, list(codes)
        while rest:
            code = rest.pop(0)
            if code in (38, 48, 58):
                colour = rest[1] if rest[:1] == [5] and len(rest) > 1 and rest[1] < 16 else None
                del rest[: 2 if rest[:1] == [5] else 4]
                if code != 58:
                    style = style._replace(**{"ink" if code == 38 else "paper": colour})
            elif code == 0:
                style = Style()
            elif code in (1, 2, 4, 7):
                name = {1: "is_bold", 2: "is_dim", 4: "is_underlined", 7: "is_reverse"}[code]
                style = style._replace(**{name: True})
            elif code == 22:
                style = style._replace(is_bold=False, is_dim=False)
            elif code in (24, 27):
                style = style._replace(**{"is_underlined" if code == 24 else "is_reverse": False})
            elif 30 <= code <= 37 or 90 <= code <= 97:
                style = style._replace(ink=code - 30 if code < 90 else code - 82)
            elif code in (39, 49):
                style = style._replace(**{"ink" if code == 39 else "paper": None})
            elif 40 <= code <= 47 or 100 <= code <= 107:
                style = style._replace(paper=code - 40 if code < 100 else code - 92)
        return style

    def classes(self) -> str:
        """The classes of the text in the picture."""
        has_paper = self.is_reverse or self.paper is not None
        names = ["p" if has_paper else "" if self.ink is None else f"c{self.ink}"]
        names += [name for name, holds in [("b", self.is_bold), ("d", self.is_dim), ("u", self.is_underlined)] if holds]
        return " ".join(filter(None, names))


def runs(line: str, style: Style) -> Iterator[tuple[str, Style]]:
    """The pieces of a line with their styles."""
    for piece in re.split(r"(\x1b\[[\d;:]*m)", line):
        if piece.startswith("\x1b["):
            style = style.after([int(code or 0) for code in re.split("[;:]", piece[2:-1])])
        yield piece if not piece.startswith("\x1b[") else "", style


def typed(command: str, columns: int, rows: int, seconds: float, keys: list[str]) -> list[str]:
    """The lines of a terminal, some time after somebody typed a command and pressed keys."""
    tmux = ["tmux", "-f", os.devnull, "-L", f"screens-{os.getpid()}"]
    shell = "env PS1='$ ' TERM=tmux-256color bash --norc --noprofile"
    subprocess.run([*tmux, "new-session", "-d", "-x", str(columns), "-y", str(rows), shell], check=True)
    try:
        time.sleep(0.5)
        subprocess.run([*tmux, "send-keys", "-l", command], check=True)
        subprocess.run([*tmux, "send-keys", "Enter"], check=True)
        time.sleep(seconds)
        for key in keys:
            subprocess.run([*tmux, "send-keys", key], check=True)
            time.sleep(2)
        pane = subprocess.run([*tmux, "capture-pane", "-e", "-p"], check=True, capture_output=True, text=True)
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)
    return pane.stdout.split("\n")


def palette(colours: list[str], page: str, frame: str) -> str:
    inks = "".join(f".c{number}{{fill:{colour}}}.q{number}{{fill:{colour}}}" for number, colour in enumerate(colours))
    return f"text{{fill:{colours[0]}}}.w{{fill:{page};stroke:{frame}}}.p{{fill:{page}}}.r{{fill:{colours[0]}}}{inks}"


def picture(lines: list[str], columns: int, title: str) -> str:
    """The lines as SVG. Columns stay in line with every font, because each word group has its own position."""
    while lines and not re.sub(r"\x1b\[[\d;:]*m", "", lines[-1]).strip().strip("$"):
        lines.pop()
    papers, texts, style = [], [], Style()
    for row, line in enumerate(lines):
        column, top = 0, MARGIN + row * HEIGHT
        for text, style in runs(line, style):
            if text and (style.paper is not None or style.is_reverse):
                name = "r" if style.paper is None else f"q{style.paper}"
                x, width = MARGIN + column * WIDTH, len(text) * WIDTH
                papers.append(f'<rect class="{name}" x="{x:.1f}" y="{top}" width="{width:.1f}" height="{HEIGHT}"/>')
            for part in re.finditer(r"\S+(?: \S+)*", text):
                x, width = MARGIN + (column + part.start()) * WIDTH, len(part[0]) * WIDTH
                names = f' class="{style.classes()}"' if style.classes() else ""
                position = f'x="{x:.1f}" y="{top + 13}" textLength="{width:.1f}"'
                texts.append(f"<text{names} {position}>{escape(part[0], quote=False)}</text>")
            column += len(text)
    width, height = round(columns * WIDTH + 2 * MARGIN), len(lines) * HEIGHT + 2 * MARGIN
    style_of_text = "text{font:13px ui-monospace,Menlo,Consolas,monospace;white-space:pre}"
    rest = ".b{font-weight:bold}.d{opacity:.75}.u{text-decoration:underline}"
    dark = f"@media(prefers-color-scheme:dark){{{palette(DARK, '#14171b', '#3a414a')}}}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">'
    page = f'<rect class="w" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="6"/>'
    styles = f"<style>{style_of_text}{palette(LIGHT, '#fff', '#c9ced6')}{rest}{dark}</style>"
    return "\n".join([head, f"<title>{escape(title)}</title>", styles, page, *papers, *texts, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", help="what to type")
    parser.add_argument("--columns", type=int, default=80)
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=4, help="time until the picture, or until the keys")
    parser.add_argument("--keys", nargs="*", default=[], help="keys as tmux names them, 2 s apart")
    arguments = parser.parse_args()
    lines = typed(arguments.command, arguments.columns, arguments.rows, arguments.seconds, arguments.keys)
    sys.stdout.write(picture(lines, arguments.columns, f"A terminal with {arguments.command.split(';')[-1].strip()}"))


if __name__ == "__main__":
    main()
