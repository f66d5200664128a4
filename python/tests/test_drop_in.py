# SPDX-License-Identifier: Apache-2.0
"""The features of the drop-in beyond prometheus_client."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
from kit import DROP_IN, Fleet

from tidegate.compat import prometheus_client as client


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_coroutines_are_measured_while_they_run() -> None:
    registry = client.CollectorRegistry()
    histogram = client.Histogram("h_seconds", "help", registry=registry)
    gauge = client.Gauge("g", "help", registry=registry)
    failures = client.Counter("f", "help", registry=registry)

    @histogram.time()
    @gauge.track_inprogress()
    @failures.count_exceptions(KeyError)
    async def answer(fails: bool) -> float:
        await asyncio.sleep(0.02)
        if fails:
            raise KeyError
        return gauge._value.get()

    assert asyncio.iscoroutinefunction(answer)

    async def both() -> list[object]:
        return await asyncio.gather(answer(False), answer(True), return_exceptions=True)

    first, second = asyncio.run(both())
    assert first == 2.0 and isinstance(second, KeyError)
    assert registry.get_sample_value("h_seconds_count") == 2
    assert registry.get_sample_value("h_seconds_sum") >= 0.04  # type: ignore[operator]
    assert registry.get_sample_value("g") == 0
    assert registry.get_sample_value("f_total") == 1


def test_installed_it_is_what_programs_import() -> None:
    program = """
import tidegate.compat
tidegate.compat.install()
tidegate.compat.install()
import prometheus_client
from prometheus_client import Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.openmetrics.exposition import generate_latest
import prometheus_client.registry
print(prometheus_client.__name__, Counter.__module__, prometheus_client.registry.REGISTRY is prometheus_client.REGISTRY)
"""
    name = "tidegate.compat.prometheus_client"
    assert run(program).split() == [name, f"{name}.metrics", "True"]


def test_it_is_not_installed_over_the_real_one() -> None:
    program = """
import prometheus_client, tidegate.compat
try:
    tidegate.compat.install()
except RuntimeError as error:
    print(error)
"""
    assert "was imported before" in run(program)


def test_the_drop_in_does_not_import_the_real_one() -> None:
    program = """
import sys, tidegate.compat.prometheus_client.multiprocess
print("prometheus_client" in sys.modules)
"""
    assert run(program).strip() == "False"


def test_reset_needs_labels() -> None:
    with pytest.raises(ValueError, match="counter metric is missing label values"):
        client.Counter("c", "help", ["l"], registry=None).reset()


@pytest.mark.parametrize("value", [float("nan")])
def test_what_is_no_number_is_not_observed(value: float) -> None:
    histogram = client.Histogram("h", "help", registry=None)
    histogram.observe(value)
    histogram.observe(1)
    assert histogram._sum.get() == 1


def test_a_bound_that_is_there_twice_is_one_bucket() -> None:
    histogram = client.Histogram("h", "help", registry=None, buckets=[1, 1, 2])
    histogram.observe(1)
    assert [bucket.get() for bucket in histogram._buckets] == [1, 0, 0]


def test_metrics_in_a_cycle_are_collected() -> None:
    class Mine(client.Counter):
        """A class that can be recognised."""

    counter = Mine("c", "help", ["l"], registry=None)
    counter.labels("x").parent = counter  # type: ignore[attr-defined]
    gone = weakref.ref(counter)
    del counter
    gc.collect()
    assert gone() is None


def test_bounds_are_written_the_same_in_one_process_and_in_several(tmp_path: Path) -> None:
    bounds = [-1e7, -0.5, 1e-9, 5e-5, 0.1, 1, 999999, 1e6, 1234567.5, 781591389664063.25, 1e16, 1.5e22]
    registry = client.CollectorRegistry()
    client.Histogram("h", "help", registry=registry, buckets=bounds)
    fleet = Fleet(DROP_IN, tmp_path)
    fleet.worker(f'Histogram("h", "help", buckets={bounds})')

    def les(registry: client.CollectorRegistry) -> list[str]:
        (metric,) = registry.collect()
        return [sample.labels["le"] for sample in metric.samples if "le" in sample.labels]

    assert les(fleet.registry()) == les(registry)
    assert len(les(registry)) == len(bounds) + 1
    fleet.close()
