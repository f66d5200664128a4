# SPDX-License-Identifier: Apache-2.0

"""What pages cost that stay open: the gateway's processor time and memory, and the memory of the tabs.

`cargo xtask page --open [MINUTES]` runs this against a release build under a steady load. It prints the figures, writes them as
JSON, and exits with 1 if one exceeds its budget.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import kit
from playwright.sync_api import Browser, expect

MINUTES = 60.0
PAGES = 20

# Of a core in per cent, for all pages together.
MOST_CPU = 1.0
# Memory does not grow: allocators and collectors have this margin, as a factor and as an amount in MiB.
MARGIN = 1.05
MARGIN_RSS = 4.0
MARGIN_HEAP = 0.5
# Rows of the newest data may be a few more.
MARGIN_NODES = 20.0

# Pages are open for this long before the run begins, so that they have all their points: two minutes of each line.
WARM_UP = 150.0
# The longest and the shortest time without pages, before and after the run, in seconds.
ALONE = (120.0, 10.0)
# The shortest time that a page stays on a view, in seconds.
SHORTEST_VISIT = 10.0
# The time in which a view gets its first data, before memory is read, in seconds.
SETTLE = 3.0
# The time in which a page must be connected, in milliseconds: all of them share the machine.
PATIENCE = 60_000

VIEWS = list(kit.VIEWS)

MIB = float(1 << 20)


@dataclass
class Figure:
    """A row of the report."""

    name: str
    value: float
    unit: str
    at_most: float | None = None

    @property
    def holds(self) -> bool:
        return self.at_most is None or self.value <= self.at_most

    def __str__(self) -> str:
        budget = "" if self.at_most is None else f"<= {self.at_most:.2f}"
        verdict = "" if self.at_most is None else "holds" if self.holds else "MISSED"
        return f"{self.name:58} {self.value:>12.2f} {self.unit:4} {budget:12} {verdict}"


@dataclass
class TabMemory:
    """The memory of a tab after a collection: its heap in MiB, and its nodes."""

    heap: float
    nodes: float


class Tab:
    """A page in a window of its own, because a window has only six connections to a server."""

    def __init__(self, browser: Browser, url: str, start: int) -> None:
        self.watched = kit.Watched(browser, url)
        self.view = self.start = start
        self.page = self.watched.open(VIEWS[start % len(VIEWS)])
        self.session = self.watched.context.new_cdp_session(self.page)
        self.session.send("Performance.enable")

    def show(self, view: int) -> None:
        self.view = view
        self.page.evaluate("(view) => {location.hash = `#/${view}`}", VIEWS[view % len(VIEWS)])

    def check(self) -> None:
        """Fails unless the page shows live data of its view."""
        expect(self.page.locator("#stream")).to_have_text("live", timeout=PATIENCE)
        text = kit.VIEWS[VIEWS[self.view % len(VIEWS)]]
        expect(self.page.locator("main")).to_contain_text(text, timeout=PATIENCE)
        expect(self.page.locator("#health")).not_to_be_empty(timeout=PATIENCE)

    def memory(self) -> TabMemory:
        for _ in range(2):
            self.session.send("HeapProfiler.collectGarbage")
        metrics = {one["name"]: one["value"] for one in self.session.send("Performance.getMetrics")["metrics"]}
        return TabMemory(metrics["JSHeapUsedSize"] / MIB, metrics["Nodes"])


class OpenPages:
    """The tabs. While they wait, they go through the views one after another."""

    def __init__(self, tabs: list[Tab]) -> None:
        self.tabs = tabs

    def wait(self, seconds: float) -> None:
        # It also handles the events of the browser.
        self.tabs[0].page.wait_for_timeout(seconds * 1000)

    def stay(self, seconds: float, visit: float, report: Callable[[float], None]) -> None:
        """Stays open. Each page shows another view after `visit` seconds, not all at one moment."""
        began = time.monotonic()
        turns = 0
        while True:
            # A busy machine catches up with its turns at the end.
            elapsed = min(time.monotonic() - began, seconds)
            due = int(elapsed / visit * len(self.tabs))
            for turn in range(turns, due):
                tab = self.tabs[turn % len(self.tabs)]
                tab.show(tab.view + 1)
            turns = due
            if elapsed >= seconds:
                return
            report(elapsed)
            self.wait(min(1.0, visit / len(self.tabs), max(0.01, seconds - elapsed)))

    def show_first_views(self) -> None:
        for tab in self.tabs:
            tab.show(tab.start)
        self.wait(SETTLE)
        for tab in self.tabs:
            tab.check()

    def memory(self) -> list[TabMemory]:
        return [tab.memory() for tab in self.tabs]


def rss(gateway: kit.Gateway) -> float:
    """The resident memory of the gateway in MiB."""
    status = Path(f"/proc/{gateway.processes[0].pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


class Share:
    """The processor time of the gateway since the start of the measurement, in per cent of a core."""

    def __init__(self, gateway: kit.Gateway) -> None:
        self.gateway = gateway
        self.began = (time.monotonic(), gateway.seconds_of_cpu())

    def read(self) -> float:
        time_before, cpu_before = self.began
        return 100 * (self.gateway.seconds_of_cpu() - cpu_before) / (time.monotonic() - time_before)


def alone(gateway: kit.Gateway, seconds: float) -> float:
    share = Share(gateway)
    time.sleep(seconds)
    return share.read()


def growth(name: str, unit: str, start: float, end: float, margin: float) -> list[Figure]:
    return [Figure(f"{name}, start", start, unit), Figure(f"{name}, end", end, unit, start * MARGIN + margin)]


def measure(gateway: kit.Gateway, browser: Browser, seconds: float, count: int) -> list[Figure]:
    longest, shortest = ALONE
    quiet = min(longest, max(shortest, seconds / 10))
    visit = max(SHORTEST_VISIT, seconds / len(VIEWS))
    before = alone(gateway, quiet)
    print(f"without pages: {before:.2f} % of a core", flush=True)
    with ExitStack() as stack:
        tabs = [Tab(browser, gateway.url, index) for index in range(count)]
        for tab in tabs:
            stack.enter_context(tab.watched)
        pages = OpenPages(tabs)
        # The engine of the browser keeps the compiled code of each view, so every tab shows all of them before the start.
        warm_up = min(WARM_UP, seconds)
        pages.stay(warm_up, min(visit, warm_up / len(VIEWS)), lambda _: None)
        pages.show_first_views()
        rss_start, start = rss(gateway), pages.memory()
        share = Share(gateway)
        told = 0.0

        def report(elapsed: float) -> None:
            nonlocal told
            if elapsed - told >= max(10.0, seconds / 12):
                told = elapsed
                print(f"{elapsed / 60:5.1f} min: {share.read():.2f} % of a core, {rss(gateway):.1f} MiB", flush=True)

        pages.stay(seconds, visit, report)
        with_pages = share.read()
        pages.show_first_views()
        rss_end, end = rss(gateway), pages.memory()
        errors = [error for tab in tabs for error in tab.watched.errors]
    print("".join(f"error in a page: {error}\n" for error in errors), end="", flush=True)
    # The gateway notices the closed connections.
    time.sleep(1)
    after = alone(gateway, quiet)
    print(f"without pages, afterwards: {after:.2f} % of a core\n", flush=True)
    worst = max(range(count), key=lambda index: end[index].heap - start[index].heap)
    return [
        Figure("pages", count, ""),
        Figure("minutes", seconds / 60, "min"),
        Figure("gateway without pages, before, of a core", before, "%"),
        Figure("gateway without pages, after, of a core", after, "%"),
        Figure("gateway with the pages, of a core", with_pages, "%"),
        Figure("cost of the pages, of a core", with_pages - (before + after) / 2, "%", MOST_CPU),
        *growth("gateway, resident memory", "MiB", rss_start, rss_end, MARGIN_RSS),
        *growth("heap of a tab, mean", "MiB", mean(start, "heap"), mean(end, "heap"), MARGIN_HEAP),
        *growth("heap of the tab that grew most", "MiB", start[worst].heap, end[worst].heap, MARGIN_HEAP),
        *growth("nodes of a tab, mean", "", mean(start, "nodes"), mean(end, "nodes"), MARGIN_NODES),
        Figure("errors in the consoles of the tabs", len(errors), "", 0),
    ]


def mean(all_tabs: list[TabMemory], name: str) -> float:
    return statistics.fmean(getattr(one, name) for one in all_tabs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="cargo xtask page --open")
    parser.add_argument("minutes", nargs="?", type=float, default=MINUTES)
    parser.add_argument("--pages", type=int, default=PAGES)
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args()
    if asked.minutes <= 0 or asked.pages <= 0:
        parser.error("it needs some minutes and at least one page")
    with ExitStack() as stack:
        directory, scratch = (Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2))
        gateway = stack.enter_context(kit.Gateway(directory))
        browser = stack.enter_context(contextmanager(kit.browsers)(scratch))
        version = browser.version
        figures = measure(gateway, browser, asked.minutes * 60, asked.pages)
    for figure in figures:
        print(figure)
    asked.output.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = [vars(figure) for figure in figures]
    rows.append({"name": "browser", "text": f"Chromium {version}, {asked.pages} windows on the same machine"})
    asked.output.write_text(json.dumps(rows, indent=1))
    return 0 if all(figure.holds for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
