# SPDX-License-Identifier: Apache-2.0
"""Metrics on shared memory: recorded for the price of an atomic addition, shown by any registry, read at any instant.

    import tidegate
    from tidegate import Counter, Histogram, MetricSet

    class Service(MetricSet, prefix="service", labels=("model",)):
        requests = Counter("Requests processed")
        latency = Histogram("Time to the first token", unit="s", buckets="latency")

    registry = tidegate.registry("prometheus")      # or "otlp://collector:4317", "shm:/dev/shm/metrics", ...
    service = Service(registry, model="llama")
    service.requests.inc()
    with service.latency.time():
        ...

`tidegate.compat.prometheus_client` is a drop-in for prometheus_client, `tidegate.ring` reads NIXL's rings,
`tidegate.dynamo` hands metrics to Dynamo.
"""

from tidegate._tidegate import Health, Server, Snapshot, Span, Subscription, __version__, callback_failures
from tidegate.composites import Composite, Watch
from tidegate.instruments import Counter, FloatCounter, Gauge, Histogram, UpDownCounter
from tidegate.places import registry
from tidegate.registries import Fanout, Foreign, Null, Otel, Prometheus, QueryAnswer, Registry, Shm
from tidegate.sets import MetricSet
from tidegate.trace import TraceContext

__all__ = [
    "Composite",
    "Counter",
    "Fanout",
    "FloatCounter",
    "Foreign",
    "Gauge",
    "Health",
    "Histogram",
    "MetricSet",
    "Null",
    "Otel",
    "Prometheus",
    "QueryAnswer",
    "Registry",
    "Server",
    "Shm",
    "Snapshot",
    "Span",
    "Subscription",
    "TraceContext",
    "UpDownCounter",
    "Watch",
    "__version__",
    "callback_failures",
    "registry",
]
