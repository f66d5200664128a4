# SPDX-License-Identifier: Apache-2.0
"""The bridge into a real Dynamo worker: no GPU, no etcd, no NATS."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from tidegate import Counter, Prometheus
from tidegate.dynamo import bridge, page

#: Serves an endpoint, shows three registries on its system port, scrapes itself and prints the page.
WORKER = """
    import asyncio, logging, sys, urllib.request
    import prometheus_client as real
    from dynamo._core import DistributedRuntime
    from tidegate import Counter, Histogram, Prometheus
    from tidegate.compat import prometheus_client as ours
    from tidegate.dynamo import bridge

    async def generate(request, context=None):
        yield request

    async def main():
        runtime = DistributedRuntime(asyncio.get_running_loop(), "mem", "tcp", event_plane="zmq")
        endpoint = runtime.endpoint("demo.worker.generate")
        registry = Prometheus()
        counter = registry.register(Counter("Requests", name="sdk_requests"), model="m")
        counter.inc(7)
        registries = [client.CollectorRegistry() for client in (ours, real)]
        ours.Counter("ours", "Of the drop-in", registry=registries[0]).inc(3)
        real.Counter("theirs", "Of the original", registry=registries[1]).inc(4)
        bridge(endpoint, registry, *registries, lambda: 1 / 0)
        served = asyncio.ensure_future(endpoint.serve_endpoint(generate, graceful_shutdown=False))
        url = runtime.system_status_server_url()
        address = url() if callable(url) else url
        for _ in range(600):
            await asyncio.sleep(0.1)
            get = lambda: urllib.request.urlopen(f"{address}/metrics", timeout=60).read().decode()
            text = await asyncio.to_thread(get)
            if "sdk_requests_total" in text:
                break
        print(text)
        served.cancel()
        runtime.shutdown()

    asyncio.run(main())
"""


def test_a_worker_shows_what_registries_hold() -> None:
    testenv = os.environ.get("TIDEGATE_TESTENV")
    assert testenv, "run by `cargo xtask test`, or set TIDEGATE_TESTENV"
    path = os.pathsep.join([f"{testenv}/dynamo", *sys.path[1:]])
    environment = {**os.environ, "PYTHONPATH": path, "DYN_SYSTEM_PORT": "0", "DYN_SYSTEM_HOST": "127.0.0.1"}
    command = [sys.executable, "-c", textwrap.dedent(WORKER)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for line in ('sdk_requests_total{model="m"} 7', "ours_total 3.0", "theirs_total 4.0"):
        assert line in lines
    assert any(line.startswith("dynamo_component_") for line in lines)
    assert done.stderr.count("a source of Dynamo's page failed") == 1


class Endpoint:
    """Keeps the callback."""

    def __init__(self) -> None:
        self.metrics = self

    def register_prometheus_expfmt_callback(self, callback: object) -> None:
        self.callback = callback


def test_a_source_that_fails_is_omitted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    registry = Prometheus()
    registry.register(Counter("help", name="c")).inc()
    endpoint = Endpoint()
    callback = bridge(endpoint, registry, lambda: 1 / 0, lambda: b"text 1\n")
    assert endpoint.callback is callback
    for _ in range(3):
        assert callback().endswith("c_total 1\ntext 1\n")
    assert len(caplog.records) == 1
    assert page(registry) == registry.expose()
