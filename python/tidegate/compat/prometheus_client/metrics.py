# SPDX-License-Identifier: Apache-2.0
"""Instruments: constructors, names and samples on top of native recording."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from typing import Callable, Iterable, Literal, Optional, Sequence, Union

from tidegate import _tidegate as native

from . import values
from ._wrapper import Celled, MetricWrapperBase, View, _build_full_name as _build_full_name
from .context_managers import ExceptionCounter, InprogressTracker
from .registry import REGISTRY, CollectorRegistry
from .samples import Exemplar, Sample
from .utils import INF, floatToGoString
from .validation import (
    _validate_exemplar,
    _validate_labelname as _validate_labelname,
    _validate_labelnames as _validate_labelnames,
    _validate_metric_name as _validate_metric_name,
)


def _get_use_created() -> bool:
    return os.environ.get("PROMETHEUS_DISABLE_CREATED_SERIES", "").lower() not in ("true", "1", "t")


_use_created = _get_use_created()


def disable_created_metrics() -> None:
    """Omits the `_created` series from now on."""
    global _use_created
    _use_created = False


def enable_created_metrics() -> None:
    """Shows the `_created` series of counters, histograms and summaries again."""
    global _use_created
    _use_created = True


def _created_sample(metric: Celled) -> tuple[Sample, ...]:
    return (Sample("_created", {}, metric._created),) if _use_created else ()


class Counter(native.Counter, Celled):
    """A number that grows: requests served, bytes sent.

        c = Counter("requests_total", "Requests served", ["method"])
        c.labels("get").inc()
    """

    _type = "counter"
    _exemplar: Optional[Exemplar] = None

    def _make_family(self) -> native.Family:
        return values.family(self._name, self._documentation, self._unit, "counter", self._labelnames)

    @property
    def _value(self) -> View:
        return View(self._get)

    def _set_exemplar(self, labels: dict[str, str], amount: float) -> None:
        _validate_exemplar(labels)
        self._exemplar = Exemplar(labels, amount, time.time())

    def reset(self) -> None:
        """Sets it to zero: for a logical process that starts again within this one."""
        self._raise_if_not_observable()
        self._reset()
        self._created = time.time()

    def count_exceptions(
        self, exception: Union[type[BaseException], tuple[type[BaseException], ...]] = Exception
    ) -> ExceptionCounter:
        """Counts exceptions of that type that leave a block or a function (sync or async)."""
        self._raise_if_not_observable()
        return ExceptionCounter(self, exception)

    def _child_samples(self) -> Iterable[Sample]:
        return (Sample("_total", {}, self._get(), None, self._exemplar), *_created_sample(self))


_Mode = Literal[
    "all", "liveall", "min", "livemin", "max", "livemax", "sum", "livesum", "mostrecent", "livemostrecent"
]


class Gauge(native.Gauge, Celled):
    """A number that goes up and down: requests in flight, memory in use.

    `multiprocess_mode` says how the gauges of several processes become one.

        g = Gauge("requests_in_flight", "Requests being served", multiprocess_mode="livesum")
        with g.track_inprogress(): ...
    """

    _type = "gauge"
    _MULTIPROC_MODES = frozenset(_Mode.__args__)  # type: ignore[attr-defined]
    _MOST_RECENT_MODES = frozenset(("mostrecent", "livemostrecent"))

    def __init__(
        self,
        name: str,
        documentation: str,
        labelnames: Iterable[str] = (),
        namespace: str = "",
        subsystem: str = "",
        unit: str = "",
        registry: Optional[CollectorRegistry] = REGISTRY,
        _labelvalues: Optional[Sequence[str]] = None,
        multiprocess_mode: _Mode = "all",
    ) -> None:
        if multiprocess_mode not in self._MULTIPROC_MODES:
            raise ValueError("Invalid multiprocess mode: " + multiprocess_mode)
        self._multiprocess_mode = multiprocess_mode
        super().__init__(name, documentation, labelnames, namespace, subsystem, unit, registry, _labelvalues)
        self._kwargs["multiprocess_mode"] = multiprocess_mode

    def _make_family(self) -> native.Family:
        mode = self._multiprocess_mode
        return values.family(self._name, self._documentation, self._unit, "gauge", self._labelnames, mode=mode)

    @property
    def _value(self) -> View:
        return View(self._get)

    def set_to_current_time(self) -> None:
        """Sets it to the seconds since the epoch."""
        self.set(time.time())

    def track_inprogress(self) -> InprogressTracker:
        """Counts a block or a function (sync or async) while it runs."""
        self._raise_if_not_observable()
        return InprogressTracker(self)

    def set_function(self, f: Callable[[], float]) -> None:
        """Has every collection ask `f` for the value, from any thread; other processes do not see it."""
        self._raise_if_not_observable()
        self._child_samples = lambda: (Sample("", {}, float(f())),)  # type: ignore[method-assign]

    def _child_samples(self) -> Iterable[Sample]:
        return (Sample("", {}, self._get()),)


class Summary(native.Summary, Celled):
    """How many, and their sum: response times, sizes.

        s = Summary("response_latency_seconds", "Time to answer")
        with s.time(): ...
    """

    _type = "summary"
    _reserved_labelnames = ("quantile",)

    def _make_family(self) -> native.Family:
        return values.family(self._name, self._documentation, self._unit, "summary", self._labelnames)

    @property
    def _count(self) -> View:
        return View(lambda: float(self._get()[0]))

    @property
    def _sum(self) -> View:
        return View(lambda: self._get()[1])

    def _child_samples(self) -> Iterable[Sample]:
        count, total = self._get()
        return (Sample("_count", {}, float(count)), Sample("_sum", {}, total), *_created_sample(self))


class Histogram(native.Histogram, Celled):
    """How many, by size: quantiles can be had of them, over any number of processes.

        h = Histogram("request_latency_seconds", "Time to serve", buckets=(0.1, 1, 10))
        h.observe(4.7)
    """

    _type = "histogram"
    _reserved_labelnames = ("le",)
    DEFAULT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, INF)

    def __init__(
        self,
        name: str,
        documentation: str,
        labelnames: Iterable[str] = (),
        namespace: str = "",
        subsystem: str = "",
        unit: str = "",
        registry: Optional[CollectorRegistry] = REGISTRY,
        _labelvalues: Optional[Sequence[str]] = None,
        buckets: Sequence[Union[float, str]] = DEFAULT_BUCKETS,
    ) -> None:
        self._prepare_buckets(buckets)
        self._exemplars: dict[int, Exemplar] = {}
        super().__init__(name, documentation, labelnames, namespace, subsystem, unit, registry, _labelvalues)
        self._kwargs["buckets"] = buckets

    def _prepare_buckets(self, source_buckets: Sequence[Union[float, str]]) -> None:
        bounds = [float(bound) for bound in source_buckets]
        if bounds != sorted(bounds):
            raise ValueError("Buckets not in sorted order")
        if bounds and bounds[-1] != INF:
            bounds.append(INF)
        if len(bounds) < 2:
            raise ValueError("Must have at least two buckets")
        # A bound that is there twice is one bucket.
        self._upper_bounds = list(dict.fromkeys(bounds))

    def _make_family(self) -> native.Family:
        bounds = self._upper_bounds[:-1]
        return values.family(
            self._name, self._documentation, self._unit, "histogram", self._labelnames, bounds=bounds
        )

    @property
    def _sum(self) -> View:
        return View(lambda: self._get()[1])

    @property
    def _buckets(self) -> list[View]:
        """The counts by bucket, not cumulative."""
        return [View(lambda at=at: float(self._get()[0][at])) for at in range(len(self._upper_bounds))]  # type: ignore[misc]

    def _set_exemplar(self, labels: dict[str, str], amount: float) -> None:
        _validate_exemplar(labels)
        self._exemplars[bisect_left(self._upper_bounds, amount)] = Exemplar(labels, amount, time.time())

    def _child_samples(self) -> Iterable[Sample]:
        counts, total = self._get()
        samples: list[Sample] = []
        below = 0.0
        for at, (bound, count) in enumerate(zip(self._upper_bounds, counts)):
            below += count
            exemplar = self._exemplars.get(at)
            samples.append(Sample("_bucket", {"le": floatToGoString(bound)}, below, None, exemplar))
        samples.append(Sample("_count", {}, below))
        # With negative observations the sum is not a counter.
        if self._upper_bounds[0] >= 0:
            samples.append(Sample("_sum", {}, total))
        return (*samples, *_created_sample(self))


class Info(MetricWrapperBase):
    """Texts about the process: version, build. Of one process only.

        Info("build", "What runs").info({"version": "1.2.3"})
    """

    _type = "info"

    def _has_cells(self) -> bool:
        return False

    def _metric_init(self) -> None:
        self._value: dict[str, str] = {}

    def info(self, val: dict[str, str]) -> None:
        """Sets the texts."""
        if set(self._labelnames).intersection(val):
            raise ValueError(f"Overlapping labels for Info metric, metric: {self._labelnames} child: {val}")
        if any(value is None for value in val.values()):
            raise ValueError("Label value cannot be None")
        self._value = dict(val)

    def _child_samples(self) -> Iterable[Sample]:
        return (Sample("_info", self._value, 1.0),)


class Enum(MetricWrapperBase):
    """Which of some states holds. Of one process only.

        Enum("task_state", "What it does", states=["starting", "running"]).state("running")
    """

    _type = "stateset"

    def __init__(
        self,
        name: str,
        documentation: str,
        labelnames: Sequence[str] = (),
        namespace: str = "",
        subsystem: str = "",
        unit: str = "",
        registry: Optional[CollectorRegistry] = REGISTRY,
        _labelvalues: Optional[Sequence[str]] = None,
        states: Optional[Sequence[str]] = None,
    ) -> None:
        if name in labelnames:
            raise ValueError(f"Overlapping labels for Enum metric: {name}")
        if not states:
            raise ValueError(f"No states provided for Enum metric: {name}")
        self._states = states
        super().__init__(name, documentation, labelnames, namespace, subsystem, unit, registry, _labelvalues)
        self._kwargs["states"] = states

    def _has_cells(self) -> bool:
        return False

    def _metric_init(self) -> None:
        self._value = 0

    def state(self, state: str) -> None:
        """Sets the state; `ValueError` if it is not declared."""
        self._raise_if_not_observable()
        self._value = list(self._states).index(state)

    def _child_samples(self) -> Iterable[Sample]:
        now = self._value
        return [Sample("", {self._name: state}, 1 if at == now else 0) for at, state in enumerate(self._states)]
