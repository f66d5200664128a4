# SPDX-License-Identifier: Apache-2.0
"""Sets of metrics: declared once as a class, registered in one line.

    class Service(MetricSet, prefix="service", labels=("model",)):
        requests = Counter("Requests processed")
        latency = Histogram("Time to the first token", unit="s", buckets="latency")

    service = Service(registry, model="llama")
    service.requests.inc()
"""

from __future__ import annotations

from typing import Any, ClassVar, Sequence

from tidegate.instruments import Instrument
from tidegate.registries import Registry

__all__ = ["MetricSet"]


class MetricSet:
    """The base of declared sets. Each instance has live instruments under the names of the declared ones."""

    #: The instruments that the class and its bases declare.
    _declared: ClassVar[dict[str, Instrument]] = {}
    _prefix: ClassVar[str] = ""
    _labels: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, *, prefix: str = "", labels: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Instrument)}
        cls._declared = {**cls._declared, **own}
        cls._prefix = prefix or cls._prefix
        cls._labels = tuple(labels) or cls._labels

    def __init__(self, registry: Registry, **labels: str) -> None:
        if sorted(labels) != sorted(self._labels):
            raise ValueError(f"the set declares the labels {self._labels}, but got {tuple(labels)}")
        scoped = registry._native._scope(self._prefix, [], None, None, None)
        for name, declared in self._declared.items():
            setattr(self, name, declared._registered(scoped, name, labels))
        self._own_labels = labels

    def __repr__(self) -> str:
        labels = "".join(f", {name}={value!r}" for name, value in self._own_labels.items())
        return f"<{type(self).__name__}: {', '.join(self._declared)}{labels}>"
