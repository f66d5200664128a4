# SPDX-License-Identifier: Apache-2.0
"""The recipe of docs/python.md for servers that fork, through the real gateway: totals are exact however it is set up.

Each worker of gunicorn makes its own registry, which pushes OTLP. The gateway shows what they counted four times: by
instance, added up, with the instance removed by a processor, and both.
"""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterator

import pytest
from kit import free_port

SERVED = """
import os
import tidegate
from tidegate import Counter, Histogram, MetricSet

class Service(MetricSet, prefix="web"):
    requests = Counter("Requests processed")
    latency = Histogram("Time of a request", unit="s")

service = Service(tidegate.registry("otlp://" + os.environ["GATEWAY"]))

def app(environ, start_response):
    service.requests.inc()
    service.latency.observe(0.2)
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""

CONFIG = """
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: "127.0.0.1:{otlp}"}}}}}}
processors:
  aggregate: {{rules: [{{match: {{name: "*"}}, without: [service.instance.id]}}]}}
  resource: {{attributes: [{{key: service.instance.id, action: delete}}]}}
exporters:
  prometheus/plain: {{endpoint: "127.0.0.1:{plain}"}}
  prometheus/added: {{endpoint: "127.0.0.1:{added}"}}
  prometheus/removed: {{endpoint: "127.0.0.1:{removed}"}}
  prometheus/both: {{endpoint: "127.0.0.1:{both}"}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    metrics/plain: {{receivers: [otlp], exporters: [prometheus/plain]}}
    metrics/added: {{receivers: [otlp], processors: [aggregate], exporters: [prometheus/added]}}
    metrics/removed: {{receivers: [otlp], processors: [resource], exporters: [prometheus/removed]}}
    metrics/both: {{receivers: [otlp], processors: [resource, aggregate], exporters: [prometheus/both]}}
"""

SETUPS = ["plain", "added", "removed", "both"]


def get(port: int, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def totals(port: int) -> tuple[float, float]:
    """Requests, and observations of the latency, over all series of the page."""
    page = get(port, "/metrics")
    of = lambda name: sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)", page, re.MULTILINE))
    return of("web_requests_total"), of("web_latency_seconds_count")


def wait_until(what: str, holds: object) -> None:
    assert callable(holds)
    until = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.02)


@pytest.fixture
def ports(tmp_path: Path) -> Iterator[dict[str, int]]:
    ports = {name: free_port() for name in ["otlp", *SETUPS]}
    (tmp_path / "gateway.yaml").write_text(CONFIG.format(**ports))
    binary = os.environ["TIDEGATE_BINARY"]
    gateway = subprocess.Popen([binary, "run", "--config", "gateway.yaml"], cwd=tmp_path)

    def answers() -> bool:
        try:
            return all(totals(ports[name]) == (0, 0) for name in SETUPS)
        except OSError:
            return False

    try:
        wait_until("the gateway answers", answers)
        yield ports
    finally:
        gateway.terminate()
        gateway.wait()


def test_workers_of_a_server_that_forks_add_up(ports: dict[str, int], tmp_path: Path) -> None:
    (tmp_path / "served.py").write_text(SERVED)
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "--workers", "4", "--bind", f"127.0.0.1:{port}", "served:app"]
    environment = {
        **os.environ,
        "GATEWAY": f"127.0.0.1:{ports['otlp']}",
        "OTEL_METRIC_EXPORT_INTERVAL": "50",
        "OTEL_SERVICE_NAME": "web",
    }
    server = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    answered = 0

    def ask(requests: int) -> None:
        nonlocal answered
        wanted = answered + requests
        until = time.monotonic() + 120
        while answered < wanted and time.monotonic() < until:
            try:
                assert get(port, "/") == "ok"
                answered += 1
            except (ConnectionError, http.client.HTTPException):
                time.sleep(0.02)
        assert answered == wanted

    def shown() -> dict[str, tuple[float, float]]:
        return {name: totals(ports[name]) for name in SETUPS}

    def exact() -> dict[str, tuple[float, float]]:
        return {name: (float(answered), float(answered)) for name in SETUPS}

    try:
        # Each worker is heard more than once while the others live.
        for _ in range(10):
            ask(20)
            time.sleep(0.1)
        wait_until("totals are exact while the workers live", lambda: shown() == exact())
        ask(7)
        wait_until("they follow", lambda: shown() == exact())
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
    # The last words of the workers add nothing.
    time.sleep(0.5)
    assert shown() == exact()
