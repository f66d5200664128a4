# SPDX-License-Identifier: Apache-2.0

"""Rows of views that the gateway of the other tests leaves empty: alerts, rules, reloads and cells."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Iterator

import kit
import pytest
from playwright.sync_api import Browser, Page, Route, expect

RECORD_QUERY = "min by (job) (up)"
ALERT_QUERY = 'up{job="self"} + 41.5'
RULES = [
    {"record": "job:up:min", "expr": RECORD_QUERY},
    {"alert": "Scraped", "expr": ALERT_QUERY, "labels": {"severity": kit.HOSTILE}, "annotations": {"summary": "it is {{ $value }}"}},
]

DATE = re.compile(r"\d{4}, \d\d:\d\d:\d\d$")

# The length of a time up to its seconds: 2026-11-30T12:00:00.
SECOND = 19


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kit.Gateway]:
    directory = tmp_path_factory.mktemp("full")
    # JSON is YAML.
    (directory / "rules.yaml").write_text(json.dumps({"groups": [{"name": "scrapes", "interval": "1s", "rules": RULES}]}))
    extensions = f'  rules: {{files: ["{directory}/rules.yaml"]}}'
    receivers = f'  shm: {{directories: ["{directory}/cells/*"]}}'
    pipelines = "    metrics/cells: {receivers: [shm], exporters: [prometheus]}"
    with kit.Gateway(directory, extensions=extensions, order="rules, ", receivers=receivers, pipelines=pipelines, is_loaded=False) as running:
        yield running


def runtime(gateway: kit.Gateway) -> dict[str, str]:
    with gateway.get("/api/v1/status/runtimeinfo") as answer:
        return json.load(answer)["data"]


def text_of(page: Page, time: str) -> str:
    """A time as the page shows it."""
    return page.evaluate("(time) => import('/page/format.js').then((format) => format.time(time))", time)


@pytest.fixture
def shown(browser: Browser, full: kit.Gateway) -> Iterator[kit.Watched]:
    with kit.Watched(browser, full.url) as page:
        yield page


def test_alerts_and_rules_have_rows_with_their_state(shown: kit.Watched) -> None:
    page = shown.open("rules")
    alert = page.get_by_role("table", name="Active alerts").get_by_role("row", name=re.compile("^Scraped")).locator("td")
    expect(alert.nth(0)).to_have_text("firing")
    expect(alert.nth(0)).to_have_attribute("data-mark", "bad")
    for label in ('alertname="Scraped"', 'job="self"', f'severity="{kit.HOSTILE}"'):
        expect(alert.nth(1)).to_contain_text(label)
    expect(alert.nth(2)).to_have_text("42.5")
    expect(alert.nth(3)).to_have_text(DATE)
    expect(alert.nth(4)).to_have_text("summary: it is 42.5")
    rules = page.get_by_role("table", name="Rules", exact=True)
    for name, kind, query, state in (("job:up:min", "recording", RECORD_QUERY, ""), ("Scraped", "alerting", ALERT_QUERY, "firing")):
        rule = rules.get_by_role("row", name=re.compile(f"^{name} ")).locator("td")
        for index, text in enumerate(("scrapes", kind, query, state, "ok")):
            expect(rule.nth(index)).to_have_text(text)
        expect(rule.nth(4)).to_have_attribute("data-mark", "good")
        expect(rule.nth(5)).to_have_text(re.compile(r"^\d\S* (µs|ms|s)$"))
        expect(rule.nth(6)).to_have_text(DATE)
    expect(page.get_by_text("Rules are not configured.")).to_be_hidden()
    shown.check("job:up:min", "rules-rows")


def test_the_keyboard_leads_from_a_rule_to_its_query(shown: kit.Watched) -> None:
    page = shown.open("rules")
    expect(page.get_by_role("row", name=re.compile("^job:up:min "))).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("^Scraped firing"))).to_be_visible()
    shown.enter_content()
    assert [shown.tab() for _ in range(2)] == ["Active alerts", "Filter: Rules"]
    page.keyboard.type("alerting")
    expect(page.get_by_role("row", name=re.compile("^job:up:min "))).to_have_count(0)
    assert [shown.tab() for _ in range(2)] == ["Rules", ALERT_QUERY]
    page.keyboard.press("Enter")
    expect(page.get_by_label("PromQL expression")).to_have_value(ALERT_QUERY)
    expect(page.get_by_role("row", name=re.compile(r"self.* 4[12]\.5 "))).to_be_visible()
    assert shown.errors == []


def test_the_configuration_shows_an_applied_and_a_refused_reload(shown: kit.Watched, full: kit.Gateway) -> None:
    started = runtime(full)["startTime"]
    page = shown.open("config")
    expect(page.locator("main")).to_contain_text("The configuration of the start runs.")
    loaded = page.locator(".facts div", has_text="lastConfigTime").locator("dd")
    expect(loaded).to_have_text(text_of(page, started))
    # The page shows whole seconds.
    kit.wait_for("a second after the start", lambda: runtime(full)["serverTime"][:SECOND] > started[:SECOND], 30)
    rows = page.get_by_role("table", name="Reloads, newest first").locator("tbody tr")
    before = full.config.read_text()
    changed = before.replace("queue_size: 100", "queue_size: 200")
    for count, text in ((1, changed), (2, f"{changed}nonsense: 1\n")):
        full.config.write_text(text)
        os.kill(full.processes[0].pid, signal.SIGHUP)
        expect(rows).to_have_count(count)
        applied_at = text_of(page, runtime(full)["lastConfigTime"])
        expect(loaded).to_have_text(applied_at, timeout=30_000)
        assert applied_at != text_of(page, started)
    refused, applied = (rows.nth(index).locator("td") for index in range(2))
    for row, result, mark in ((refused, "failed, the old one runs", "bad"), (applied, "applied", "good")):
        expect(row.nth(0)).to_have_text("SIGHUP")
        expect(row.nth(1)).to_have_text(result)
        expect(row.nth(1)).to_have_attribute("data-mark", mark)
    expect(refused.nth(2)).to_have_text("")
    expect(refused.nth(3)).to_contain_text('unknown key "nonsense"')
    expect(applied.nth(2)).to_have_text("rebuilt exporters::otlphttp/vendor")
    expect(applied.nth(3)).to_have_text("")
    running = page.get_by_label("Configuration", exact=True)
    expect(running).to_contain_text("queue_size: 200")
    expect(running).not_to_contain_text("a-secret-key")
    shown.check("applied", "config-reloads")
    shown.enter_content()
    assert [shown.tab() for _ in range(3)] == ["Reloads, newest first", "Clusters", "Configuration"]


def test_an_earlier_answer_does_not_replace_a_later_one(shown: kit.Watched) -> None:
    held: list[Route] = []

    def hold_first(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    shown.page.route("**/api/v1/status/flags", hold_first)
    # The view asks when it opens, and again when the stream gives it the configuration.
    with shown.page.expect_event("requestfailed", lambda request: request.url.endswith("/status/flags")):
        page = shown.open("config")
    expect(page.locator(".facts")).to_contain_text("query.max-samples")
    assert shown.errors == []


def test_cells_have_rows_that_count_their_processes(shown: kit.Watched, full: kit.Gateway) -> None:
    page = shown.open("sources")
    cells = page.get_by_role("table", name="Cells and their processes")
    series = cells.get_by_role("row", name=re.compile("^tidegate_shm_series receiver=shm ")).locator("td").nth(1)
    expect(series).to_have_text("0")
    # The build of the gateway makes this program, too. It counts and ends.
    subprocess.run([Path(kit.program("binary")).parent / "examples/cells"], cwd=full.directory, check=True, timeout=180)
    expect(series).to_have_text("2")
    expect(cells.get_by_role("row", name="tidegate_shm_directories receiver=shm 1")).to_be_visible()
    expect(cells.get_by_role("row", name="tidegate_shm_processes receiver=shm, state=dead 1")).to_be_visible()
    names = cells.locator("tbody th").all_inner_texts()
    assert names == sorted(names)
    shown.check("tidegate_shm_series", "sources-cells")
    shown.enter_content()
    assert [shown.tab() for _ in range(3)] == ["Filter: NIXL rings", "Cells and their processes", "Sockets and multi-process stores"]
