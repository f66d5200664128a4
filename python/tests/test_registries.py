# SPDX-License-Identifier: Apache-2.0
"""One component against every registry: equal numbers in each, and one line that chooses."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import textwrap
import urllib.request
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
from component import SIZES, VALUES, Service, component, values
from kit import free_port
from otlp import Collector, Grpc, Http

import tidegate
from tidegate import Counter, Fanout, Null, Otel, Prometheus, Registry, Shm


@pytest.fixture(params=[Grpc, Http])
def collector(request: pytest.FixtureRequest) -> Iterator[Collector]:
    collector = request.param()
    yield collector
    collector.close()


@pytest.fixture
def grpc() -> Iterator[Grpc]:
    collector = Grpc()
    yield collector
    collector.close()


def otel(collector: Collector, **options: Any) -> Otel:
    protocol = "grpc" if isinstance(collector, Grpc) else "http/protobuf"
    return Otel(f"http://{collector.address}", protocol=protocol, interval=3600, **options)


REGISTRIES: dict[str, Callable[[Path], Registry]] = {
    "prometheus": lambda path: Prometheus(),
    "shm": lambda path: Shm(path),
    "otel": lambda path: Otel("http://127.0.0.1:9", interval=3600),
    "scope": lambda path: Prometheus().scope(),
    "fanout": lambda path: Fanout([Null(), Prometheus(), Shm(path), Otel("http://127.0.0.1:9", interval=3600)]),
    "prometheus by name": lambda path: tidegate.registry("prometheus"),
    "shm by name": lambda path: tidegate.registry(f"shm:{path}"),
    "otlp by name": lambda path: tidegate.registry("otlp://127.0.0.1:9"),
    "all by name": lambda path: tidegate.registry(f"null,prometheus,shm://{path},otlp+http://127.0.0.1:9"),
}


@pytest.mark.parametrize("name", REGISTRIES)
def test_the_same_component_on_every_registry(name: str, tmp_path: Path) -> None:
    registry = REGISTRIES[name](tmp_path)
    component(registry)
    assert values(registry) == VALUES
    page = {sorted_labels(found) for found in registry.expose().splitlines()}
    for line in (
        'service_requests_total{model="llama",status="failed"} 45',
        'service_busy_seconds_total{model="llama"} 0.25',
        'service_latency_seconds_bucket{model="llama",le="0.05"} 6',
        'service_sizes_bytes_count{model="llama"} 10',
        f'service_sizes_bytes_bucket{{model="llama",le="10"}} {SIZES[0]}',
        f'service_sizes_bytes_bucket{{model="llama",le="100"}} {sum(SIZES[:2])}',
    ):
        assert sorted_labels(line) in page
    assert registry.expose(openmetrics=True).endswith("# EOF\n")
    with contextlib.suppress(OSError):
        registry.shutdown(0.5)  # No server listens on port 9.


def sorted_labels(line: str) -> str:
    name, brace, rest = line.partition("{")
    labels, _, value = rest.partition("} ")
    return f"{name}{brace}{','.join(sorted(labels.split(',')))} {value}"


def test_a_collector_gets_the_same_values(collector: Collector) -> None:
    registry = otel(collector, headers={"X-Key": "k"}, resource={"service.name": "tests"})
    component(registry)
    registry.flush(60)
    assert collector.values() == VALUES
    assert collector.resource()["service.name"] == "tests"
    assert {name.lower(): value for name, value in collector.headers[-1].items()}["x-key"] == "k"
    metrics = collector.metrics()
    (sizes,) = metrics["service_sizes"].histogram.data_points
    assert list(sizes.bucket_counts) == SIZES and list(sizes.explicit_bounds) == [10, 100]
    (fine,) = metrics["service_fine"].exponential_histogram.data_points
    assert fine.zero_count + sum(fine.positive.bucket_counts) == 10
    assert (metrics["service_latency"].unit, metrics["service_sizes"].unit) == ("s", "By")
    assert metrics["service_requests"].sum.is_monotonic and not metrics["service_connections"].sum.is_monotonic
    assert metrics["service_requests"].description == "Requests processed"
    registry.shutdown()
    registry.shutdown()


def test_every_registry_of_a_fanout_has_the_same(collector: Collector, tmp_path: Path) -> None:
    both = Prometheus(), Shm(tmp_path)
    fanout = Fanout([*both, otel(collector)])
    service = component(fanout)
    fanout.shutdown()
    assert [values(registry) for registry in both] == [VALUES, VALUES]
    assert collector.values() == VALUES
    assert service.inflight.get() == 2


def test_deltas(collector: Collector) -> None:
    registry = otel(collector, temporality="delta")
    counter = registry.register(Counter("help", name="c"), model="llama")
    for grown in (3, 4):
        counter.inc(grown)
        registry.flush(60)
        assert collector.values() == {("c", ""): grown}
    registry.shutdown()


def test_it_pushes_by_itself_and_at_the_end_of_the_program(grpc: Grpc) -> None:
    program = """
        import sys, time
        from component import component
        from tidegate import registry
        component(registry())
        sys.stdin.read()
    """

    def run(interval: int, told: bool) -> None:
        environment = {
            **os.environ,
            "TIDEGATE_REGISTRY": "otlp",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{grpc.address}",
            "OTEL_METRIC_EXPORT_INTERVAL": str(interval),
            "OTEL_SERVICE_NAME": "by the environment",
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
        }
        command = [sys.executable, "-c", textwrap.dedent(program)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
        if told:
            wait_for(lambda: len(grpc.requests) > 1 and grpc.values() == VALUES)
        process.communicate(timeout=180)
        assert process.returncode == 0
        assert grpc.values() == VALUES and grpc.resource()["service.name"] == "by the environment"

    run(10, told=True)
    grpc.requests.clear()
    run(3_600_000, told=False)
    assert len(grpc.requests) == 1


def wait_for(what: Callable[[], bool]) -> None:
    import time

    until = time.monotonic() + 120
    while not what():
        assert time.monotonic() < until
        time.sleep(0.002)


def test_failures_are_counted_and_lose_nothing(grpc: Grpc, caplog: pytest.LogCaptureFixture) -> None:
    registry = otel(grpc, timeout=5)
    component(registry)
    grpc.rejects = 2
    registry.flush(60)
    assert (registry.failed_pushes, registry.rejected_points) == (0, 2)
    grpc.close()
    with caplog.at_level(logging.WARNING, "tidegate"):
        for _ in range(2):
            with pytest.raises(OSError):
                registry.flush(5)
    # Said once, until a push succeeds.
    assert registry.failed_pushes == 2 and caplog.text.count("metrics were not pushed") == 1
    with caplog.at_level(logging.WARNING, "tidegate"):
        registry._end()
    assert "were not exported" in caplog.text
    with pytest.raises(OSError):
        registry.flush(0.5)


def test_a_fork_gets_a_warning_that_it_can_not_push() -> None:
    collector = Http()
    registry = otel(collector)
    component(registry)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        for act in (registry.flush, registry.shutdown):
            try:
                act()
            except OSError as error:
                os.write(write, str(error).encode() + b"\n")
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    assert os.read(read, 1000).count(b"make one after the fork") == 2
    registry.shutdown()
    assert collector.values() == VALUES
    collector.close()


def test_null_keeps_nothing() -> None:
    for null in (Null(), tidegate.registry("null")):
        service = component(null)
        assert values(null) == {}
        assert service.requests.labels("ok").get() == 0
        null.shutdown()


def test_a_place_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(tidegate.registry(), Prometheus)
    monkeypatch.setenv("TIDEGATE_REGISTRY", f"shm:{tmp_path}")
    service = component(tidegate.registry())
    assert values(Shm(tmp_path)) == VALUES
    monkeypatch.setenv("TIDEGATE_REGISTRY", "shm")
    monkeypatch.setenv("TIDEGATE_CELLS_DIR", str(tmp_path))
    assert values(tidegate.registry()) == VALUES
    assert service.inflight.get() == 2


def test_a_place_may_say_where_the_page_is_served() -> None:
    port = free_port()
    registry = tidegate.registry(f"prometheus://127.0.0.1:{port}")
    component(registry)
    page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60).read().decode()
    assert page == registry.expose()


@pytest.mark.parametrize(
    "place", ["nowhere", "prometheus:9", "prometheus://host", "null:x", "otlp:x", "otlp://", "shm,,null", "otlp+ftp://x"]
)
def test_what_is_no_place(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_CELLS_DIR", str(tmp_path))
    with pytest.raises(ValueError):
        tidegate.registry(place)


@pytest.mark.parametrize(
    "options",
    [{"protocol": "carrier pigeon"}, {"temporality": "later"}, {"interval": -1}, {"headers": {"no header": "x"}}, {"endpoint": "x"}],
)
def test_what_is_no_collector(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Otel(**options)


def test_the_set_is_declared_once() -> None:
    registries = Prometheus(), Prometheus()
    first, second = (Service(registry, model="llama") for registry in registries)
    first.busy.inc(1)
    second.busy.inc(2)
    assert [registry.value("service_busy", model="llama") for registry in registries] == [1, 2]
