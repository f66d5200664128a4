# SPDX-License-Identifier: Apache-2.0
"""A component, and what it counts: it knows nothing of registries."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate import Counter, FloatCounter, Gauge, Histogram, MetricSet, Registry, UpDownCounter


class Service(MetricSet, prefix="service", labels=("model",)):
    """The metrics of a component."""

    requests = Counter("Requests processed", labels=("status",))
    busy = FloatCounter("Time at work", unit="s")
    connections = UpDownCounter("Open connections")
    inflight = Gauge("Requests in flight")
    latency = Histogram("Time to the first token", unit="s", buckets="latency")
    sizes = Histogram("Sizes", unit="By", buckets=[10, 100])
    fine = Histogram("Any size", buckets="exponential")


def component(registry: Registry) -> Service:
    """The work of the component."""
    service = Service(registry, model="llama")
    for at in range(10):
        service.requests.labels("ok").inc()
        service.requests.labels(status="failed").inc(at)
        service.latency.observe(at / 100)
        service.sizes.observe(at * 20)
        service.fine.observe(2.0**at)
    service.busy.inc(0.25)
    service.connections.inc(5)
    service.connections.dec()
    with service.inflight.track():
        service.inflight.inc(2)
    return service


VALUES = {
    ("service_requests", "ok"): 10,
    ("service_requests", "failed"): 45,
    ("service_busy", ""): 0.25,
    ("service_connections", ""): 4,
    ("service_inflight", ""): 2,
    ("service_latency", ""): (10, pytest.approx(0.45)),
    ("service_sizes", ""): (10, 900),
    ("service_fine", ""): (10, 1023),
}

#: How many sizes each bucket has: up to 10, up to 100, beyond.
SIZES = [1, 5, 4]


def values(registry: Registry) -> dict[tuple[str, str], Any]:
    """The values that a registry has of it."""
    found = {}
    for family in registry.gather():
        for labels, value in family.series:
            assert labels["model"] == "llama"
            found[(family.name, labels.get("status", ""))] = value
    return found
