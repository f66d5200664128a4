# SPDX-License-Identifier: Apache-2.0
"""Metrics of Python's garbage collector."""

from __future__ import annotations

import gc
import platform
from typing import Any, Iterable

from .metrics_core import CounterMetricFamily, Metric
from .registry import REGISTRY

_FAMILIES = {
    "collected": ("python_gc_objects_collected", "Objects collected during gc"),
    "uncollectable": ("python_gc_objects_uncollectable", "Uncollectable objects found during GC"),
    "collections": ("python_gc_collections", "Number of times this generation was collected"),
}


class GCCollector:
    """Collections and objects by generation."""

    def __init__(self, registry: Any = REGISTRY) -> None:
        if platform.python_implementation() == "CPython":
            registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Three counters."""
        stats = gc.get_stats()
        for key, (name, documentation) in _FAMILIES.items():
            family = CounterMetricFamily(name, documentation, labels=["generation"])
            for generation, stat in enumerate(stats):
                family.add_metric([str(generation)], value=stat[key])
            yield family


#: The one of the default registry.
GC_COLLECTOR = GCCollector()
