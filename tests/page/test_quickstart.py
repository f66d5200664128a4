# SPDX-License-Identifier: Apache-2.0

"""The page of `tidegate quickstart` in a real browser."""

import re
import subprocess
import urllib.request
from pathlib import Path

import kit
from playwright.sync_api import Browser, expect

# Each view with a text that the simulated node gives.
VIEWS = {
    "graph": "aggregate",
    "components": "composite",
    "ledger": "processors::aggregate@metrics",
    "targets": "No targets",
    "sources": "rank_7",
    "composites": "nixl_xfer_time_avg_10s",
    "query/agent_tx_bytes_total": "rank_0",
    "cardinality": "agent_tx_bytes_total",
    "rules": "Rules are not configured.",
    "config": "nixl_xfer_time_avg_10s",
}


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=60).close()
    except OSError:
        return False
    return True


def test_all_views_and_the_tap_show_the_simulated_node(browser: Browser, tmp_path: Path) -> None:
    command = [kit.program("binary"), "quickstart", "--directory", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        first = re.match(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
        assert first, "the first line begins with the address of the page"
        url = first[0]
        kit.wait_for("the page", lambda: answers(url))
        with kit.Watched(browser, url) as watched:
            for view, text in VIEWS.items():
                expect(watched.open(view).locator("main")).to_contain_text(text)
            page = watched.open("tap")
            page.get_by_label("Component").fill("aggregate")
            page.get_by_role("button", name="Start").click()
            expect(page.locator("main")).to_contain_text("agent_")
            assert watched.errors == []
    finally:
        kit.terminate(process)
