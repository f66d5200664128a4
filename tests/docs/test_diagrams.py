# SPDX-License-Identifier: Apache-2.0

"""The diagrams of docs/concepts.md are those of docs/diagrams.py, have a text for those who do not see them, and are legible."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import diagrams  # noqa: E402

CONCEPTS = (ROOT / "docs/concepts.md").read_text()
READ = Path(__file__).with_name("diagrams.js").read_text()
SVG = "{http://www.w3.org/2000/svg}"

# A narrow page shows a diagram at this part of its width.
NARROW = 0.8


def test_the_diagrams_are_those_of_the_script() -> None:
    command = [sys.executable, str(ROOT / "docs/diagrams.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"run `cargo xtask reference`, and commit what it writes:\n{result.stdout}{result.stderr}"
    assert {path.name for path in (ROOT / "docs").glob("concept-*.svg")} == set(diagrams.DIAGRAMS)


def test_the_page_shows_each_diagram_with_a_text() -> None:
    shown = re.findall(r"!\[([^\]]*)\]\((concept-.*?\.svg)\)", CONCEPTS)
    assert [name for _, name in shown] == list(diagrams.DIAGRAMS)
    assert [name for text, name in shown if len(text.split()) < 8] == []


@pytest.mark.parametrize("name", diagrams.DIAGRAMS)
def test_a_diagram_has_a_title_and_two_schemes_of_colours(name: str) -> None:
    picture = diagrams.DIAGRAMS[name]()
    root = ElementTree.fromstring(picture)
    assert root.attrib["role"] == "img" and root.findtext(f"{SVG}title")
    assert "prefers-color-scheme:dark" in picture and "http" not in picture.replace('xmlns="http://www.w3.org/2000/svg"', "")


def problems(browser: Any, picture: str, scheme: str) -> list[str]:
    """The faults of a picture on a narrow page."""
    page = browser.new_page(color_scheme=scheme)
    try:
        page.set_content(f"<style>svg{{width:{NARROW * diagrams.WIDTH}px;height:auto}}</style>{picture}")
        found: list[str] = page.evaluate(READ)
        return found
    finally:
        page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", diagrams.DIAGRAMS)
def test_a_diagram_is_legible_on_a_narrow_page(name: str, scheme: str, browser: Any) -> None:
    assert problems(browser, diagrams.DIAGRAMS[name](), scheme) == []


def test_labels_that_are_hard_to_read_are_found(browser: Any) -> None:
    body = diagrams.text(300, 60, "first label") + diagrams.text(340, 64, "second label") + diagrams.line("M100 120H400")
    body += diagrams.text(250, 124, "struck") + diagrams.text(670, 200, "too far") + diagrams.box("in", 100, 160, 40, 30, "too wide")
    dark = diagrams.text(300, 200, "grey", "b").replace('class="b"', 'style="fill:#999"')
    found = problems(browser, diagrams.svg("Labels", 240, body + dark), "light")
    assert found == [
        "first label: on the label second label",
        "struck: on a line",
        "too far: beyond the edge",
        "too wide: on the border of a box",
        "grey: the contrast is low",
    ]
