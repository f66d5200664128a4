# SPDX-License-Identifier: Apache-2.0

"""The stream of the page, without a browser. `cargo xtask page --open` measures what open pages cost."""

import json
from typing import Any, Iterator

import kit

READERS = 20
PAGES = 3


def times(stream: Any) -> Iterator[float]:
    """The times at which the gateway computed the pages of the graph that a stream has."""
    topic = b""
    for line in stream:
        if line.startswith(b"event: "):
            topic = line.removeprefix(b"event: ").strip()
        elif line.startswith(b"data: ") and topic == b"status/graph":
            yield json.loads(line.removeprefix(b"data: "))["data"]["time"]


def test_readers_share_the_pages_that_the_gateway_computes(gateway: kit.Gateway) -> None:
    streams = [gateway.get("/api/v1/status/stream?topic=status/graph&topic=targets") for _ in range(READERS)]
    graphs = [times(stream) for stream in streams]
    # All of them are open when each has its first page.
    for graph in graphs:
        next(graph)
    seen = [[next(graph) for _ in range(PAGES)] for graph in graphs]
    for stream in streams:
        stream.close()
    assert all(pages == sorted(set(pages)) for pages in seen), seen
    # If the gateway computed a page for each reader, there would be one time for each page of each reader.
    computed = {time for pages in seen for time in pages}
    assert PAGES <= len(computed) < READERS, computed
