"""Metrics on shared memory: recorded for the price of an atomic addition, shown by any registry, read at any instant.

    from tidegate import Counter, Histogram, MetricSet, Prometheus

    class Service(MetricSet, prefix="service", labels=("model",)):
        requests = Counter("Requests processed")
        latency = Histogram("Time to the first token", unit="s", buckets="latency")

    registry = Prometheus()
    service = Service(registry, model="llama")
    service.requests.inc()
    with service.latency.time():
        ...

`tidegate.compat.prometheus_client` is a drop-in for prometheus_client, `tidegate.ring` reads NIXL's rings,
`tidegate.dynamo` hands metrics to Dynamo.
"""

from tidegate._tidegate import Snapshot, Subscription, callback_failures
from tidegate.instruments import Counter, FloatCounter, Gauge, Histogram, UpDownCounter
from tidegate.registries import Composite, Fanout, Null, Prometheus, Registry, Shm, Watch
from tidegate.sets import MetricSet

__all__ = [
    "Composite",
    "Counter",
    "Fanout",
    "FloatCounter",
    "Gauge",
    "Histogram",
    "MetricSet",
    "Null",
    "Prometheus",
    "Registry",
    "Shm",
    "Snapshot",
    "Subscription",
    "UpDownCounter",
    "Watch",
    "callback_failures",
]
