# SPDX-License-Identifier: Apache-2.0

"""The plots show the figures of docs/benchmarks.md."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import plots  # noqa: E402

BENCHMARKS = (ROOT / "docs/benchmarks.md").read_text()

SVG = "{http://www.w3.org/2000/svg}"


def marks(picture: str, kind: str = "c0") -> list[float]:
    """Where the circles of the first program are."""
    circles = ElementTree.fromstring(picture).iter(f"{SVG}circle")
    return [float(circle.attrib["cx"]) for circle in circles if kind in circle.attrib["class"]]


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def test_the_plots_are_those_of_the_figures() -> None:
    result = subprocess.run([sys.executable, str(ROOT / "docs/plots.py"), "--check"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"run `cargo xtask reference`, and commit what it writes:\n{result.stdout}{result.stderr}"


def test_a_page_that_is_published_again_keeps_the_plots() -> None:
    head = BENCHMARKS.partition("<!-- section ")[0]
    assert re.findall(r"\]\((plot-.*\.svg)\)", head) == list(plots.PLOTS)
    assert head.strip() in (ROOT / "bench/src/publish.rs").read_text()


@pytest.mark.parametrize("name", plots.PLOTS)
def test_a_plot_names_its_axis_and_its_days_within_its_bounds(name: str) -> None:
    picture = plots.PLOTS[name](BENCHMARKS)
    root = ElementTree.fromstring(picture)
    found = texts(picture)
    assert found[0] == root.findtext(f"{SVG}title")
    assert any("measured 20" in text for text in found) and "prefers-color-scheme" in picture
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for element in root.iter(f"{SVG}text"):
        length = 7 * len(element.text or "")
        x = float(element.attrib["x"]) - {"end": length, "middle": length / 2}.get(element.attrib.get("text-anchor", ""), 0)
        assert x > -12 and x + length < width + 30 and 0 < float(element.attrib["y"]) < height, element.text
    for x in marks(picture):
        assert 20 <= x <= plots.RIGHT


def test_a_mark_moves_with_its_figure_and_its_label_is_the_figure() -> None:
    row = "| tidegate | 118 ns [99.6 .. 166] |"
    assert BENCHMARKS.count(row) == 1
    before = plots.PLOTS["plot-processor.svg"](BENCHMARKS)
    after = plots.PLOTS["plot-processor.svg"](BENCHMARKS.replace(row, "| tidegate | 1180 ns [996 .. 1660] |"))
    moved = [two - one for one, two in zip(marks(before), marks(after)) if one != two]
    # The axis has five decades.
    assert moved == [pytest.approx((plots.RIGHT - plots.LEFT) / 5, abs=0.2)]
    assert "118" in texts(before) and "1.18k" in texts(after)


def test_a_figure_that_is_gone_is_an_error_and_not_a_gap() -> None:
    with pytest.raises(AssertionError, match="no section otlp/grpc-1000"):
        plots.pictures(BENCHMARKS.replace("<!-- section otlp/grpc-1000 -->", ""))
    with pytest.raises(AssertionError, match="no `ns a point` of tidegate in aggregate/aggregate"):
        plots.pictures(BENCHMARKS.replace("| tidegate | 292 ns", "| other | 292 ns"))
    with pytest.raises(KeyError, match="idle node: p50"):
        plots.pictures(BENCHMARKS.replace("| idle node: p50 |", "| idle node: median |"))


def test_figures_are_read_with_their_units_and_spreads() -> None:
    assert plots.value("7.9 M /s, bound by the load [6.6 M .. 9.9 M]") == plots.Value(7.9e6, 6.6e6, 9.9e6, True)
    assert plots.value("535742 /s", "342799 .. 614311 of 25") == plots.Value(535742, 342799, 614311)
    assert plots.value("16.4 MiB") == plots.Value(16.4, 16.4, 16.4)
