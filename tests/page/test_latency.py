# SPDX-License-Identifier: Apache-2.0

"""Durations of components, and the queue of each endpoint of an exporter."""

import re
from pathlib import Path

import kit
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


def test_each_endpoint_has_its_queue_and_its_durations(browser: Browser, tmp_path: Path) -> None:
    gateway = kit.Gateway(tmp_path, exporters=BALANCER, pipelines=PIPELINE, is_loaded=False)
    with gateway, kit.Watched(browser, gateway.url) as watched:
        # One endpoint after another gets traces by their ids.
        for _ in range(4):
            gateway.post("traces", kit.spans(32))
        page = watched.open("component/exporter/loadbalancing")
        queues = page.get_by_role("table", name=re.compile("^Queues"))
        for endpoint in ENDPOINTS:
            row = queues.get_by_role("row", name=re.compile(f"^{re.escape(endpoint)} traces"))
            # In the queue, and the durations of the attempts.
            expect(row.locator("td").nth(1)).to_have_text(re.compile("^[1-9]"))
            expect(row.locator("td").nth(4)).to_have_text(QUANTILES)
        expect(page.locator("main")).to_contain_text("The fullest queue is")
        page = watched.open("graph")
        edge = page.get_by_role("row", name=re.compile("^traces no processors loadbalancing"))
        expect(edge.locator("td").nth(4)).to_have_text(QUANTILES)
        expect(page.locator("svg.graph a.node.exporter", has_text="loadbalancing").locator("title")).to_contain_text("sends in")
        page = watched.open("components")
        expect(page.get_by_role("row", name=re.compile("^loadbalancing exporter")).get_by_text(QUANTILES)).to_be_visible()
        assert watched.errors == []


def test_a_processor_shows_the_time_that_it_takes_for_a_batch(watched: kit.Watched) -> None:
    page = watched.open("component/processor/aggregate")
    row = page.get_by_role("table", name=re.compile("^Time that it takes")).get_by_role("row", name=re.compile("^metrics"))
    expect(row.locator("td").first).to_have_text(re.compile("^[1-9]"))
    for quantile in (1, 2):
        expect(row.locator("td").nth(quantile)).to_have_text(re.compile(r"^≤ \d"))
    watched.picture("processor")
    assert watched.errors == []
