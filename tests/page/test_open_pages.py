# SPDX-License-Identifier: Apache-2.0

"""A short run of the measurement of open pages. `cargo xtask page --open` judges the figures of a release build."""

import kit
import open_pages
import pytest
from playwright.sync_api import Browser


def test_a_run_through_all_views_has_its_figures_and_no_growth_of_nodes(gateway: kit.Gateway, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ALONE", (0.5, 0.5)), ("SHORTEST_VISIT", 0.0), ("SETTLE", 1.0)):
        monkeypatch.setattr(open_pages, name, value)
    shown: list[str] = []
    show = open_pages.Tab.show

    def noted(tab: open_pages.Tab, view: int) -> None:
        show(tab, view)
        shown.append(open_pages.VIEWS[view % len(open_pages.VIEWS)])

    monkeypatch.setattr(open_pages.Tab, "show", noted)
    figures = {figure.name: figure for figure in open_pages.measure(gateway, browser, 2.5, 2)}
    assert set(shown) == set(open_pages.VIEWS)
    assert figures["gateway with the pages, of a core"].value > 0
    assert figures["gateway, resident memory, start"].value > 1
    assert figures["nodes of a tab, mean, end"].holds, figures
    assert figures["errors in the consoles of the tabs"].holds, figures


def test_a_figure_above_its_budget_misses_it() -> None:
    start, end = open_pages.growth("heap", "MiB", 10.0, 11.1, 0.5)
    assert start.holds and not end.holds
    assert "MISSED" in str(end)
    assert open_pages.growth("heap", "MiB", 10.0, 11.0, 0.5)[1].holds
