# SPDX-License-Identifier: Apache-2.0

"""The comparison in README.md: each cell is backed by a test, by a figure, or by a document of the other project."""

import re
from pathlib import Path
from typing import Iterator, NamedTuple
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[2]

HEADING = "## Beside other programs"

# The addresses of the documents of each project.
PROJECTS = {
    "OpenTelemetry Collector": (
        "https://opentelemetry.io/docs/",
        "https://github.com/open-telemetry/opentelemetry-collector/",
        "https://github.com/open-telemetry/opentelemetry-collector-contrib/",
    ),
    "Grafana Alloy": ("https://grafana.com/docs/alloy/latest/",),
    "vmagent": ("https://docs.victoriametrics.com/victoriametrics/",),
    "Vector": ("https://vector.dev/docs/",),
}

FIGURES = "docs/benchmarks.md"

LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")

FIGURE = re.compile(r"\d+(?:\.\d+)? (?:ns|MiB)")


class Cell(NamedTuple):
    project: str
    row: str
    text: str

    def links(self) -> list[tuple[str, str]]:
        return [(found[1], found[2]) for found in LINK.finditer(self.text)]


def table() -> list[list[str]]:
    section = (ROOT / "README.md").read_text().split(f"{HEADING}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not line.startswith("| ---")]


def cells() -> Iterator[Cell]:
    head, *rows = table()
    for row in rows:
        assert len(row) == len(head), row
        for project, text in zip(head[1:], row[1:]):
            yield Cell(project, row[0], text)


def test_the_table_compares_with_all_projects() -> None:
    head, *rows = table()
    assert head == ["", "tidegate", *PROJECTS]
    assert len(rows) >= 10


@pytest.mark.parametrize("cell", list(cells()), ids=lambda cell: f"{cell.project}: {cell.row}")
def test_a_cell_is_backed(cell: Cell) -> None:
    links = cell.links()
    assert links and re.fullmatch(r"(?: and |; )?", LINK.sub("", cell.text)), f"not only links: {cell.text}"
    for text, target in links:
        if target.startswith(FIGURES):
            check_figure(cell.project, text, target)
        elif cell.project == "tidegate":
            check_test(target)
        else:
            assert target.startswith(PROJECTS[cell.project]), f"{target} is not a document of {cell.project}"
            assert urlsplit(target).path.strip("/"), target


def check_test(target: str) -> None:
    """The file of a link has the test that the link names."""
    path, _, name = target.partition("#")
    source = (ROOT / path).read_text()
    if path.endswith(".py"):
        assert re.search(rf"(?m)^def {name}\(", source), f"{path} has no test {name}"
    else:
        attribute = r"#\[(?:tokio::)?test(?:\([^\]]*\))?\]\s+(?:#\[[^\]]*\]\s+)*"
        assert re.search(rf"{attribute}(?:async )?fn {name}\(", source), f"{path} has no test {name}"


def check_figure(project: str, text: str, target: str) -> None:
    """The section of a link has the figure in the row of the project. Without a figure, the section has no row of it."""
    anchor = target.partition("#")[2]
    program = {"OpenTelemetry Collector": "otelcol", "Grafana Alloy": "alloy"}.get(project, project.lower())
    sections = re.split(r"(?m)^## ", (ROOT / FIGURES).read_text())
    (section,) = [each for each in sections if each.partition("\n")[0].replace("/", "") == anchor]
    rows = [line for line in section.splitlines() if line.startswith(f"| {program} |")]
    if FIGURE.fullmatch(text):
        (row,) = rows
        assert re.search(rf"\| {re.escape(text)}(?: \[[^\]]*\])? \|", row), f"{text} is not in: {row}"
    else:
        assert rows == [], f"{text}, and yet there is: {rows}"


def test_the_introduction_has_the_figures_of_its_section() -> None:
    introduction = (ROOT / "README.md").read_text().partition("\n## ")[0]
    section = (ROOT / FIGURES).read_text().split("\n## instant\n")[1].split("\n## ")[0]
    assert f"]({FIGURES}#instant)" in introduction
    for row in ("query, 100k events/s: p99 of 10000", "composite over HTTP, 100k series: p99"):
        (figure,) = re.findall(rf"(?m)^\| {row} \| (.+?) \|", section)
        assert f" {figure} (p99" in introduction, f"{row}: {figure}"


def test_the_introduction_is_five_lines_and_a_picture() -> None:
    title, lines, picture, *_ = (ROOT / "README.md").read_text().split("\n\n")
    assert title == "# tidegate" and len(lines.splitlines()) == 5
    assert re.fullmatch(r"!\[[^\]]+\]\(docs/[\w.-]+\.png\)", picture)


def test_the_limits_state_the_stability_of_components() -> None:
    pages = list((ROOT / "docs/reference").rglob("*.md"))
    is_any_stable = any(re.search(r"\bStable\b", page.read_text()) for page in pages)
    assert pages and ("No component is `Stable` yet" in (ROOT / "README.md").read_text()) is not is_any_stable


@pytest.mark.parametrize(
    "target", ["tests/it/promql.rs#no_such_test", "tests/it/promql.rs#none_of", "tests/docs/test_comparison.py#check_figures"]
)
def test_a_link_to_no_test_is_found(target: str) -> None:
    with pytest.raises(AssertionError, match="has no test"):
        check_test(target)


@pytest.mark.parametrize(("project", "text"), [("tidegate", "117 ns"), ("OpenTelemetry Collector", "not measured")])
def test_a_wrong_figure_is_found(project: str, text: str) -> None:
    with pytest.raises(AssertionError):
        check_figure(project, text, f"{FIGURES}#otlpgrpc-1000")
