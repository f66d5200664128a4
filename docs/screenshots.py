#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0

"""Takes the pictures docs/tutorial-*.png: the page of the gateway that docs/tutorial.md starts, at the steps of the tutorial.

It runs the commands of the tutorial, as its test does, and opens the page in a browser. `cargo xtask docs` sets what it needs:

    UPDATE_GOLDEN=1 cargo xtask docs -k screenshots

`cargo xtask docs` takes the debug build. The memory in a picture is that of a release if `TIDEGATE_BINARY` names one, and
`TIDEGATE_CHROMIUM` and `PYTHONPATH` name the parts `chromium`, `playwright` and `python-tools` of `target/testenv`.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "tests/docs"), str(ROOT / "tests/page")]

import blocks  # noqa: E402
import kit  # noqa: E402
from playwright.sync_api import Browser, expect  # noqa: E402

ADMIN = "127.0.0.1:8080"

WIDTH = 1100

# A command of the tutorial, and the pictures after it: a name, the view, and a text of the view.
STEPS = [
    ("grep '^agent_tx_bytes_total'", [("graph", "graph", "prometheus"), ("composites", "composites", "rank_3")]),
    # The first command after the agents ended.
    ("tidegate composites get", [("idle", "composites", "idle")]),
]

# The lower edge of what a view shows.
BOTTOM = "Math.max(...[...document.querySelectorAll('main *')].map((one) => one.getBoundingClientRect().bottom))"


class Done(Exception):
    """All pictures are there."""


class Tutorial(blocks.Page):
    """A run of the tutorial that takes the pictures on its way, all in one tab. A view begins its curves when it opens."""

    def __init__(self, directory: Path, browser: Browser, output: Path, seconds: float, steps: int) -> None:
        super().__init__("tutorial.md", directory, os.environ["TIDEGATE_BINARY"])
        self.tab = kit.Watched(browser, f"http://{self.moved(ADMIN)}", viewport={"width": WIDTH, "height": 800})
        self.output = output
        self.seconds = seconds
        self.steps = STEPS[:steps]

    def compare(self, at: str, command: str, expected: str) -> None:
        super().compare(at, command, expected)
        wanted, pictures = self.steps[0]
        if wanted not in command:
            return
        for name, view, text in pictures:
            self.take(name, view, text)
        # The tab has the curves of its last view.
        self.seconds = 0
        del self.steps[0]
        if not self.steps:
            raise Done

    def take(self, name: str, view: str, text: str) -> None:
        page = self.tab.open(view)
        expect(page.locator("main")).to_contain_text(text)
        page.wait_for_timeout(self.seconds * 1000)
        assert self.tab.errors == [], self.tab.errors
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": page.evaluate(BOTTOM) + 16}
        page.screenshot(path=self.output / f"tutorial-{name}.png", clip=clip)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "docs", help="the directory of the pictures")
    parser.add_argument("--seconds", type=float, default=60, help="how long curves grow before a picture")
    parser.add_argument("--steps", type=int, default=len(STEPS), help="how many steps of the tutorial get pictures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "browser").mkdir()
        (Path(scratch) / "tutorial").mkdir()
        for browser in kit.browsers(Path(scratch) / "browser"):
            try:
                Tutorial(Path(scratch) / "tutorial", browser, arguments.output, arguments.seconds, arguments.steps).run()
            except Done:
                return 0
    print("the tutorial does not have all commands of docs/screenshots.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
