# SPDX-License-Identifier: Apache-2.0

"""Durations of components, and the queue of each endpoint of an exporter."""

import re
from typing import Iterator

import kit
import pytest
from playwright.sync_api import Browser, expect

# Nothing listens on these ports.
ENDPOINTS = ("127.0.0.1:1", "127.0.0.1:2")
BALANCER = f"""
  loadbalancing:
    protocol: {{otlp: {{tls: {{insecure: true}}}}}}
    resolver: {{static: {{hostnames: {list(ENDPOINTS)}}}}}
"""
PIPELINE = "    traces: {receivers: [otlp], exporters: [loadbalancing]}"

# The median and the 99th percentile, such as `1.2 ms / 30 ms`.
QUANTILES = re.compile(r"^\d\S* (µs|ms|s) / \d\S* (µs|ms|s)$")


def takes_traces(gateway: kit.Gateway) -> bool:
    # An endpoint gets traces by their ids.
    try:
        gateway.post("traces", kit.spans(32))
    except OSError:
        return False
    return gateway.accepted["traces"] > 0


@pytest.fixture(scope="module")
def balancing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kit.Gateway]:
    directory = tmp_path_factory.mktemp("balancing")
    with kit.Gateway(directory, exporters=BALANCER, pipelines=PIPELINE, level="detailed", is_loaded=False) as running:
        kit.wait_for("an accepted request", lambda: takes_traces(running))
        yield running


def test_each_endpoint_has_its_queue_and_its_durations(browser: Browser, balancing: kit.Gateway) -> None:
    with kit.Watched(browser, balancing.url) as watched:
        page = watched.open("component/exporter/loadbalancing")
        queues = page.get_by_role("table", name=re.compile("^Queues"))
        for endpoint in ENDPOINTS:
            row = queues.get_by_role("row", name=re.compile(f"^{re.escape(endpoint)} traces"))
            # What is in the queue, and the durations of the attempts.
            expect(row.locator("td").nth(1)).to_have_text(re.compile("^[1-9]"))
            expect(row.locator("td").nth(4)).to_have_text(QUANTILES)
        expect(page.locator("main")).to_contain_text("The fullest queue is")
        watched.picture("queues")
        page = watched.open("graph")
        edge = page.get_by_role("row", name=re.compile("^traces no processors loadbalancing"))
        expect(edge.locator("td").nth(4)).to_have_text(QUANTILES)
        expect(page.locator("svg.graph a.node.exporter", has_text="loadbalancing").locator("title")).to_contain_text("sends in")
        page = watched.open("components")
        expect(page.get_by_role("row", name=re.compile("^loadbalancing exporter")).get_by_text(QUANTILES)).to_be_visible()
        assert watched.errors == []


def test_a_processor_shows_the_time_that_it_takes_for_a_batch(browser: Browser, balancing: kit.Gateway) -> None:
    with kit.Watched(browser, balancing.url) as watched:
        page = watched.open("component/processor/aggregate")
        row = page.get_by_role("table", name=re.compile("^Time that it takes")).get_by_role("row", name=re.compile("^metrics"))
        # Its own metrics are scraped each second.
        expect(row.locator("td").first).to_have_text(re.compile("^[1-9]"), timeout=60_000)
        for quantile in (1, 2):
            expect(row.locator("td").nth(quantile)).to_have_text(re.compile(r"^≤ \d"))
        assert watched.errors == []


def test_a_processor_without_durations_says_which_setting_measures_them(watched: kit.Watched) -> None:
    page = watched.open("component/processor/batch")
    expect(page.locator("main")).to_contain_text("set level: detailed of service::telemetry::metrics")
    assert watched.errors == []


def test_durations_are_those_of_a_minute_also_after_a_pause(watched: kit.Watched) -> None:
    page = watched.open("graph")
    batches = page.evaluate(
        """async (pages) => {
            const { Durations } = await import("/page/durations.js");
            const durations = new Durations("batch");
            const text = (count) => `otelcol_processor_internal_duration_bucket{processor="batch",pipeline="logs",le="+Inf"} ${count}`;
            return pages.map(([time, count]) => durations.add({ time, text: text(count) })[0].batches);
        }""",
        [[1000, 10], [1030, 12], [1060, 15], [1061, 16], [1600, 900], [1601, 903], [500, 910], [501, 911]],
    )
    assert batches == [0, 2, 5, 4, 0, 3, 0, 1]
    assert watched.errors == []
