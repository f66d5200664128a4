# SPDX-License-Identifier: Apache-2.0
"""Registries: which collectors are asked, and that no name is made twice."""

from __future__ import annotations

from threading import Lock
from typing import Any, Iterable, Optional, Protocol

from .metrics_core import Metric

#: The series beside the family's own name that a collector of a type makes.
_SUFFIXES = {
    "counter": ("_total", "_created"),
    "summary": ("_sum", "_count", "_created"),
    "histogram": ("_bucket", "_sum", "_count", "_created"),
    "gaugehistogram": ("_bucket", "_gsum", "_gcount"),
    "info": ("_info",),
}


class Collector(Protocol):
    """A source of metrics for a registry. It makes them at each call."""

    def collect(self) -> Iterable[Metric]:
        """The metric families as they are now."""


class _EmptyCollector:
    """Holds a name."""

    def collect(self) -> Iterable[Metric]:
        return []


class DuplicateTimeseries(ValueError):
    """A collector makes series that another one makes already: `duplicates`."""

    def __init__(self, duplicates: set[str]) -> None:
        super().__init__(f"Duplicated timeseries in CollectorRegistry: {duplicates}")
        self.duplicates = duplicates


class CollectorRegistry:
    """The collectors of one exposition.

    `auto_describe` asks collectors without `describe` for their metrics to learn their names;
    `target_info` are labels of the whole target; `support_collectors_without_names` keeps nameless
    collectors in restricted registries.
    """

    def __init__(
        self,
        auto_describe: bool = False,
        target_info: Optional[dict[str, str]] = None,
        support_collectors_without_names: bool = False,
    ) -> None:
        self._collector_to_names: dict[Collector, list[str]] = {}
        self._names_to_collectors: dict[str, Collector] = {}
        self._collectors_without_names: list[Collector] = []
        self._auto_describe = auto_describe
        self._support_collectors_without_names = support_collectors_without_names
        self._target_info: Optional[dict[str, str]] = {}
        self._lock = Lock()
        self.set_target_info(target_info)

    def register(self, collector: Collector) -> None:
        """Adds a collector; `DuplicateTimeseries` if one of its names is taken."""
        with self._lock:
            names = self._get_names(collector)
            duplicates = set(names).intersection(self._names_to_collectors)
            if duplicates:
                raise DuplicateTimeseries(duplicates)
            self._names_to_collectors.update(dict.fromkeys(names, collector))
            self._collector_to_names[collector] = names
            if self._support_collectors_without_names and not names:
                self._collectors_without_names.append(collector)

    def unregister(self, collector: Collector) -> None:
        """Takes a collector out; its names are free again."""
        with self._lock:
            for name in self._collector_to_names.pop(collector):
                self._names_to_collectors.pop(name, None)
            if collector in self._collectors_without_names:
                self._collectors_without_names.remove(collector)

    def _get_names(self, collector: Any) -> list[str]:
        describe = getattr(collector, "describe", None)
        if not describe and self._auto_describe:
            describe = collector.collect
        metrics = describe() if describe else ()
        return [metric.name + suffix for metric in metrics for suffix in ("", *_SUFFIXES.get(metric.type, ()))]

    def collect(self) -> Iterable[Metric]:
        """The metrics of all collectors."""
        with self._lock:
            collectors = list(self._collector_to_names)
            target = self._target_info_metric() if self._target_info else None
        if target:
            yield target
        for collector in collectors:
            yield from collector.collect()

    def restricted_registry(self, names: Iterable[str]) -> RestrictedRegistry:
        """The part of this registry that has these series names; only their collectors are called."""
        return RestrictedRegistry(names, self)

    def set_target_info(self, labels: Optional[dict[str, str]]) -> None:
        """Sets or, with nothing in it, drops the labels of `target_info`."""
        with self._lock:
            if labels:
                if not self._target_info and "target_info" in self._names_to_collectors:
                    raise ValueError("CollectorRegistry already contains a target_info metric")
                self._names_to_collectors["target_info"] = _EmptyCollector()
            elif self._target_info:
                self._names_to_collectors.pop("target_info", None)
            self._target_info = labels

    def get_target_info(self) -> Optional[dict[str, str]]:
        """The labels of `target_info`."""
        with self._lock:
            return self._target_info

    def _target_info_metric(self) -> Metric:
        metric = Metric("target", "Target metadata", "info")
        metric.add_sample("target_info", self._target_info or {}, 1)
        return metric

    def get_sample_value(self, name: str, labels: Optional[dict[str, str]] = None) -> Optional[float]:
        """The value of one series, or None. It asks every collector: meant for tests."""
        for metric in self.collect():
            for sample in metric.samples:
                if sample.name == name and sample.labels == (labels or {}):
                    return sample.value
        return None


class RestrictedRegistry:
    """The part of a registry whose series have one of `names`."""

    def __init__(self, names: Iterable[str], registry: CollectorRegistry) -> None:
        self._name_set = set(names)
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        """The metrics that are left; those without a sample are not."""
        registry = self._registry
        with registry._lock:
            named = (registry._names_to_collectors.get(name) for name in self._name_set)
            found = (collector for collector in named if collector is not None)
            # A dict, for its order.
            collectors = dict.fromkeys([*registry._collectors_without_names, *found])
            wants_target = "target_info" in self._name_set and registry._target_info
            target = registry._target_info_metric() if wants_target else None
        if target:
            yield target
        for collector in collectors:
            for metric in collector.collect():
                restricted = metric._restricted_metric(self._name_set)
                if restricted:
                    yield restricted


#: The registry of metrics by default.
REGISTRY = CollectorRegistry(auto_describe=True)
