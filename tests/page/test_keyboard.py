# SPDX-License-Identifier: Apache-2.0

"""The views with fields, by the keyboard alone."""

import re

import kit
import pytest
from playwright.sync_api import expect

# A view, its table with a filter, and a word that some rows have.
FILTERS = [
    ("components", "Components", "vendor"),
    ("targets", "Scrape targets", "absent"),
    ("sources", "NIXL rings", "rank_1"),
    ("composites", "Composites", "qwen"),
]


def test_a_query_runs_by_enter_in_its_field_and_on_its_button(watched: kit.Watched) -> None:
    page = watched.open("query")
    watched.enter_content()
    assert watched.tab() == "PromQL expression"
    page.keyboard.type('queue_depth{model="qwen"}')
    page.keyboard.press("Enter")
    expect(page.get_by_role("row", name=re.compile("qwen"))).to_be_visible()
    expect(page.get_by_label("PromQL expression")).to_be_focused()
    assert watched.tab() == "Output"
    page.keyboard.press("ArrowDown")
    expect(page.get_by_label("Output")).to_have_value("60")
    assert watched.tab() == "Run"
    page.keyboard.press("Enter")
    expect(page.locator("svg.chart path.line")).to_have_count(1)
    assert watched.errors == []


def test_a_tap_starts_by_enter_and_stops_on_its_button(watched: kit.Watched) -> None:
    page = watched.open("tap")
    items = page.locator(".items li")
    start, stop = (page.get_by_role("button", name=name) for name in ("Start", "Stop"))
    watched.enter_content()
    assert watched.tab() == "Component"
    page.keyboard.type("receivers::otlp")
    assert [watched.tab() for _ in range(2)] == ["Side", "Where"]
    page.keyboard.type("queue_depth")
    assert watched.tab() == "Items"
    # The old number is selected.
    page.keyboard.type("10000")
    page.keyboard.press("Enter")
    expect(items.first).to_contain_text('"name": "queue_depth"')
    assert [watched.tab() for _ in range(2)] == ["Start", "Stop"]
    page.keyboard.press("Enter")
    expect(stop).to_be_disabled()
    assert '"name": "queue_depth"' in watched.tab()
    page.keyboard.press("Shift+Tab")
    expect(start).to_be_focused()
    page.keyboard.press("Enter")
    expect(stop).to_be_enabled()
    expect(items.first).to_be_visible()
    assert watched.errors == []


@pytest.mark.parametrize(("view", "table", "word"), FILTERS)
def test_a_filter_is_reached_by_tab_and_keeps_its_rows_after_enter(watched: kit.Watched, view: str, table: str, word: str) -> None:
    page = watched.open(view)
    rows = page.get_by_role("table", name=table, exact=True).locator("tbody tr")
    others = rows.filter(has_not_text=word)
    expect(rows.filter(has_text=word).first).to_be_visible()
    expect(others.first).to_be_visible()
    watched.enter_content()
    kit.wait_for("the filter", lambda: watched.tab() == f"Filter: {table}")
    page.keyboard.type(word)
    page.keyboard.press("Enter")
    expect(others).to_have_count(0)
    expect(rows.first).to_be_visible()
    assert watched.tab() == table
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert watched.errors == []
