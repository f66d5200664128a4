# SPDX-License-Identifier: Apache-2.0
"""A serving engine's use of prometheus_client, under servers with several processes: only the import is another one.

An API server of several workers and an engine process of its own record; workers are killed and replaced; the scrape is
answered by any worker. Uvicorn starts workers by spawning, gunicorn by forking.
"""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterator

import pytest
from kit import environment_part, free_port

from tidegate.compat.prometheus_client.parser import text_string_to_metric_families

#: As serving engines do it: old metrics of the engine are taken out of the registry, labels are chosen once, the page comes
#: from a registry of its own.
ENGINE = '''
import atexit, os, time
import prometheus_client
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, Info, make_asgi_app, multiprocess

prometheus_client.disable_created_metrics()
for collector in list(REGISTRY._collector_to_names):
    if hasattr(collector, "_name") and "serve" in collector._name:
        REGISTRY.unregister(collector)

LABELS = ["model_name", "engine"]
running = Gauge("serve:num_requests_running", "In execution", LABELS, multiprocess_mode="mostrecent").labels("m", "0")
waiting = Gauge("serve:num_requests_waiting", "Waiting", LABELS, multiprocess_mode="livesum").labels("m", "0")
usage = Gauge("serve:cache_usage_perc", "Used", LABELS, multiprocess_mode="livemax").labels("m", "0")
config = Gauge("serve:cache_config_info", "Settings", ["block_size"], multiprocess_mode="mostrecent")
config.labels("16").set(1)
tokens = Counter("serve:generation_tokens", "Generated", LABELS).labels("m", "0")
finished = Counter("serve:request_success", "Finished", LABELS + ["finished_reason"])
reasons = {reason: finished.labels("m", "0", reason) for reason in ("stop", "length")}
ttft = Histogram("serve:time_to_first_token_seconds", "Delay", LABELS, buckets=[0.01, 0.1, 1]).labels("m", "0")

def serve():
    waiting.set(1)
    tokens.inc(7)
    reasons["stop"].inc()
    ttft.observe(0.05)
    running.set(3)
    usage.set(0.5)

def page():
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)
    return prometheus_client.generate_latest(registry)
'''

ASGI = '''
import tidegate.compat
tidegate.compat.install()
import json, os
import engine
from prometheus_client import CollectorRegistry, make_asgi_app, multiprocess

registry = CollectorRegistry()
multiprocess.MultiProcessCollector(registry)
metrics = make_asgi_app(registry)

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    if scope["path"] == "/metrics":
        return await metrics(scope, receive, send)
    engine.serve()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
    await send({"type": "http.response.body", "body": str(os.getpid()).encode()})
'''

WSGI = '''
import tidegate.compat
tidegate.compat.install()
import os
import engine

def app(environ, start_response):
    metrics = environ["PATH_INFO"] == "/metrics"
    if not metrics:
        engine.serve()
    body = engine.page() if metrics else str(os.getpid()).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
'''

HOOKS = '''
import tidegate.compat
tidegate.compat.install()
from prometheus_client import multiprocess

def child_exit(server, worker):
    multiprocess.mark_process_dead(worker.pid)
'''


class Server:
    """A server whose workers are asked one request a connection."""

    def __init__(self, kind: str, place: Path) -> None:
        (place / "engine.py").write_text(ENGINE)
        (place / "asgi.py").write_text(ASGI)
        (place / "wsgi.py").write_text(WSGI)
        (place / "hooks.py").write_text(HOOKS)
        self.port = free_port()
        commands = {
            "uvicorn": ["uvicorn", "asgi:app", "--workers", "3", "--port", str(self.port), "--log-level", "error"],
            "gunicorn": ["gunicorn", "wsgi:app", "--workers", "3", "--bind", f"127.0.0.1:{self.port}", "--config", "hooks.py"],
        }
        commands["gunicorn --preload"] = [*commands["gunicorn"], "--preload"]
        self.cells = place / "cells"
        self.cells.mkdir()
        path = [str(place), *filter(None, sys.path), str(environment_part("python-servers"))]
        environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(self.cells), "PYTHONPATH": os.pathsep.join(path)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", *commands[kind]], cwd=place, env=environment, stderr=subprocess.DEVNULL
        )

    def get(self, path: str) -> str:
        """An answer, asked for until there is one. Requests that were counted without an answer are unknown."""
        until = time.monotonic() + 120
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            try:
                connection.request("GET", path)
                return connection.getresponse().read().decode()
            except (OSError, http.client.HTTPException):
                assert time.monotonic() < until and self._process.poll() is None
                time.sleep(0.02)
            finally:
                connection.close()

    def metrics(self) -> dict[tuple[str, str], float]:
        """The scraped values by name and by what tells series apart here."""
        families = text_string_to_metric_families(self.get("/metrics"))
        tells = ("le", "finished_reason", "block_size")
        return {
            (sample.name, next((sample.labels[name] for name in tells if name in sample.labels), "")): sample.value
            for family in families
            for sample in family.samples
        }

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


@pytest.fixture(params=["uvicorn", "gunicorn", "gunicorn --preload"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    server = Server(request.param, tmp_path)
    yield server
    server.close()


def test_a_serving_engine(server: Server) -> None:
    # The server listens before all of its workers do.
    workers: set[int] = set()
    served = 0
    until = time.monotonic() + 60
    while len(workers) < 2 and time.monotonic() < until:
        workers.add(int(server.get("/")))
        served += 1
    killed: list[int] = []
    for number in range(150):
        pid = int(server.get("/"))
        served += 1
        workers.add(pid)
        if number % 50 == 25 and pid not in killed:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
    assert len(killed) == 3 and len(workers) >= 3
    found = server.metrics()
    # A worker that is killed has nothing on its hands: each request was answered before the next one.
    assert found[("serve:request_success_total", "stop")] == served
    assert found[("serve:request_success_total", "length")] == 0
    assert found[("serve:generation_tokens_total", "")] == 7 * served
    assert found[("serve:time_to_first_token_seconds_count", "")] == served
    assert found[("serve:time_to_first_token_seconds_bucket", "0.01")] == 0
    assert found[("serve:time_to_first_token_seconds_bucket", "0.1")] == served
    assert found[("serve:num_requests_running", "")] == 3
    assert found[("serve:cache_usage_perc", "")] == 0.5
    assert found[("serve:cache_config_info", "16")] == 1
    # Live gauges are of those that live: three workers, all of which may have served.
    assert 1 <= found[("serve:num_requests_waiting", "")] <= 3
    assert not any(name.endswith("_created") for name, _ in found)
