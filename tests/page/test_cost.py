# SPDX-License-Identifier: Apache-2.0

"""The cost of open pages for the gateway, without a browser. `cargo xtask page --open` measures real pages."""

import json
import re
import threading
import time
import urllib.parse
from typing import Any

import kit

PAGES = 20
SECONDS = 3
# Of a core, for the debug build: 0.07 was measured. `cargo xtask page --open` holds the release to its budget.
MOST = 0.2

ASSETS = kit.ROOT / "src/extensions/admin/page/assets"
GRAPH = "status/graph"


def topics_of_views() -> list[list[str]]:
    """The topics that each view reads, from its file."""
    files = [file.read_text() for file in sorted(ASSETS.glob("view-*.js"))]
    found = [re.search(r"^export const topics = (\[.*\]);$", text, re.MULTILINE) for text in files]
    return [sorted({GRAPH, *json.loads(one[1])}) for one in found if one]


class Reader(threading.Thread):
    """Reads the stream of a page, and counts the events of each topic."""

    def __init__(self, gateway: kit.Gateway, topics: list[str], ended: threading.Event) -> None:
        super().__init__(daemon=True)
        query = urllib.parse.urlencode([("topic", topic) for topic in topics])
        self.topics = topics
        self.stream: Any = gateway.get(f"/api/v1/status/stream?{query}")
        self.ended = ended
        self.events = dict.fromkeys(topics, 0)

    def run(self) -> None:
        for line in self.stream:
            if self.ended.is_set():
                break
            if line.startswith(b"event: "):
                self.events[line.removeprefix(b"event: ").strip().decode()] += 1
        self.stream.close()


def cost(gateway: kit.Gateway) -> float:
    before = gateway.seconds_of_cpu()
    time.sleep(SECONDS)
    return (gateway.seconds_of_cpu() - before) / SECONDS


def test_the_topics_of_twenty_open_pages_cost_little(gateway: kit.Gateway) -> None:
    views, ended = topics_of_views(), threading.Event()
    assert len(views) > 10, views
    alone = cost(gateway)
    readers = [Reader(gateway, views[index % len(views)], ended) for index in range(PAGES)]
    for reader in readers:
        reader.start()
    kit.wait_for("a page of each topic", lambda: all(all(reader.events.values()) for reader in readers))
    before = [reader.events[GRAPH] for reader in readers]
    # Other work on the machine makes all work dearer, so the least of some measurements counts.
    watched = min(cost(gateway) for _ in range(4))
    # The graph changes each second, because the gateway is loaded.
    assert all(reader.events[GRAPH] > seen for reader, seen in zip(readers, before))
    ended.set()
    for reader in readers:
        reader.join(timeout=20)
    assert watched - alone < MOST, f"{alone:.3f} of a core alone, {watched:.3f} with {PAGES} pages"
