# SPDX-License-Identifier: Apache-2.0
"""Many label sets: what lies beyond the bound ends in one series, and no count is lost or counted twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tidegate
from tidegate import Null, Otel, Prometheus, Registry, Shm
from tidegate.compat import prometheus_client as client
from tidegate.compat.prometheus_client import multiprocess, values

OVERFLOW = {"otel_metric_overflow": "true"}
LABEL_SETS = 10_000


@pytest.mark.parametrize("name", ["prometheus", "shm", "otel"])
def test_the_sdk(name: str, tmp_path: Path) -> None:
    made = {"prometheus": Prometheus, "shm": lambda: Shm(tmp_path), "otel": lambda: Otel("http://127.0.0.1:9")}
    registry: Registry = made[name]()
    counter = registry.register(tidegate.Counter("help", name="c", labels=["l"]))
    sizes = registry.register(tidegate.Histogram("help", name="h", labels=["l"]))
    for at in range(LABEL_SETS):
        counter.labels(at).inc()
        sizes.labels(at).observe(2)
    for family in registry.gather():
        assert len(family.series) == 2001
    assert registry.value("c", **OVERFLOW) == registry.value("h", **OVERFLOW)[0] == LABEL_SETS - 2000
    assert registry.value("c", l="1999") == 1 and registry.value("c", l="2000") is None
    # And nothing is kept in Python either.
    assert len(counter._metrics) == len(sizes._metrics) == 2000
    counter.labels("2000").inc(5)
    assert registry.value("c", **OVERFLOW) == LABEL_SETS - 1995


def test_a_smaller_bound() -> None:
    registry = Prometheus(max_series=3)
    counter = registry.register(tidegate.Counter("help", name="c", labels=["l"]))
    for at in range(10):
        counter.labels(at).inc()
    assert len(registry.gather()[0].series) == 4 and registry.value("c", **OVERFLOW) == 7
    counter.remove("0")
    counter.labels("new").inc()
    assert registry.value("c", l="new") == 1


def test_null_does_not_grow() -> None:
    counter = Null().register(tidegate.Counter("help", name="c", labels=["l"]))
    for at in range(LABEL_SETS):
        counter.labels(at).inc()
    assert len(counter._metrics) <= 2000


def samples(collected: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for metric in collected:
        for sample in metric.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


def test_the_drop_in_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "_MAX_SERIES", 100)
    registry = client.CollectorRegistry()
    counter = client.Counter("c", "help", ["l"], registry=registry)
    gauge = client.Gauge("g", "help", ["l"], registry=registry)
    histogram = client.Histogram("h", "help", ["l"], registry=registry, buckets=[1, 2])
    for at in range(LABEL_SETS):
        counter.labels(at).inc()
        gauge.labels(at).inc()
        histogram.labels(l=at).observe(1.5)
    found = samples(registry.collect())
    for name in ("c_total", "g", "h_count"):
        assert len(found[name]) == 101
        assert sum(sample.value for sample in found[name]) == LABEL_SETS
        assert found[name][-1].labels == OVERFLOW and found[name][-1].value == LABEL_SETS - 100
    assert len(counter._metrics) == 100
    assert client.generate_latest(registry).count(b"otel_metric_overflow") == 9


def test_the_drop_in_in_several_processes(tmp_path: Path) -> None:
    program = f"""
from tidegate.compat.prometheus_client import Counter, values
values._MAX_SERIES = 100
c = Counter("c", "help", ["l"])
for at in range({LABEL_SETS}):
    c.labels(at).inc()
c.labels("x" * 5000).inc()
"""
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    for _ in range(2):
        subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=300)
    registry = client.CollectorRegistry()
    multiprocess.MultiProcessCollector(registry, tmp_path)
    found = samples(registry.collect())["c_total"]
    assert len(found) == 101 and sum(sample.value for sample in found) == 2 * LABEL_SETS + 2
    assert registry.get_sample_value("c_total", OVERFLOW) == 2 * (LABEL_SETS - 100) + 2
