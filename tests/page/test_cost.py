# SPDX-License-Identifier: Apache-2.0

"""The cost of open pages for the gateway."""

import time
from pathlib import Path
from typing import Any

import kit

PAGES = 20
SECONDS = 3
# Of a core, for the debug build.
MOST = 0.05


def cost(gateway: kit.Gateway) -> float:
    before = gateway.seconds_of_cpu()
    time.sleep(SECONDS)
    return (gateway.seconds_of_cpu() - before) / SECONDS


def test_twenty_open_pages_cost_little(tmp_path: Path) -> None:
    with kit.Gateway(tmp_path, is_loaded=False) as gateway:
        alone = cost(gateway)
        streams: list[Any] = [gateway.get("/api/v1/status/stream?topic=status/graph&topic=targets") for _ in range(PAGES)]
        assert all(b"event: " in stream.readline() for stream in streams)
        watched = cost(gateway)
        for stream in streams:
            stream.close()
    assert watched - alone < MOST, f"{alone:.3f} of a core alone, {watched:.3f} with {PAGES} pages"
