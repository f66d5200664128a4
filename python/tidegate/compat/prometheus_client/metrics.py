"""Instruments: constructors, names and samples on top of native recording."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from typing import Any, Callable, Iterable, Iterator, Literal, Mapping, Optional, Sequence, TypeVar, Union

from tidegate import _tidegate as native

from . import values
from .context_managers import ExceptionCounter, InprogressTracker
from .metrics_core import Metric
from .registry import REGISTRY, CollectorRegistry
from .samples import Exemplar, Sample
from .utils import INF, floatToGoString
from .validation import _validate_exemplar, _validate_labelnames, _validate_metric_name

_Self = TypeVar("_Self", bound="MetricWrapperBase")


def _get_use_created() -> bool:
    return os.environ.get("PROMETHEUS_DISABLE_CREATED_SERIES", "").lower() not in ("true", "1", "t")


_use_created = _get_use_created()


def disable_created_metrics() -> None:
    """Leaves out the `_created` series from now on."""
    global _use_created
    _use_created = False


def enable_created_metrics() -> None:
    """Shows the `_created` series of counters, histograms and summaries again."""
    global _use_created
    _use_created = True


def _build_full_name(metric_type: Optional[str], name: str, namespace: str, subsystem: str, unit: str) -> str:
    if not name:
        raise ValueError("Metric name should not be empty")
    full_name = "_".join(part for part in (namespace, subsystem, name) if part)
    if metric_type == "counter":
        full_name = full_name.removesuffix("_total")
    if unit and not full_name.endswith("_" + unit):
        full_name += "_" + unit
    if unit and metric_type in ("info", "stateset"):
        raise ValueError("Metric name is of a type that cannot have a unit: " + full_name)
    return full_name


class _View:
    """One number of an instrument, as programs and tests look at it."""

    def __init__(self, get: Callable[[], float]) -> None:
        self.get = get


class MetricWrapperBase(native.Metric):
    """What all instruments share; `labels` and what records is native."""

    _type: Optional[str] = None
    _reserved_labelnames: Sequence[str] = ()

    #: The native series of this family; a child has its parent's.
    _family: Optional[native.Family] = None

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
    ) -> None:
        self._original_name = name
        self._namespace = namespace
        self._subsystem = subsystem
        self._name = _build_full_name(self._type, name, namespace, subsystem, unit)
        self._set_labels(_validate_labelnames(self, labelnames), tuple(_labelvalues or ()))
        self._kwargs: dict[str, Any] = {}
        self._documentation = documentation
        self._unit = unit
        _validate_metric_name(self._name)
        if self._is_observable():
            self._metric_init()
        if not self._labelvalues and registry:
            registry.register(self)

    def _metric_init(self) -> None:
        """Prepares what is observed: a child, or a metric without labels."""
        raise NotImplementedError(f"_metric_init() must be implemented by {self!r}")

    def _child_samples(self) -> Iterable[Sample]:
        raise NotImplementedError(f"_child_samples() must be implemented by {self!r}")

    def _make_family(self) -> native.Family:
        raise NotImplementedError(f"_make_family() must be implemented by {self!r}")

    def _cells(self) -> native.Family:
        if self._family is None:
            self._family = self._make_family()
        return self._family

    def _raise_if_not_observable(self) -> None:
        if not self._is_observable():
            raise ValueError(f"{self._type} metric is missing label values")

    def _child(self: _Self, labelvalues: tuple[object, ...], labelkwargs: Optional[Mapping[str, object]]) -> _Self:
        """The child of label values that `labels` has not found: usually a new one."""
        key = self._label_key(labelvalues, labelkwargs or {})
        found: Optional[_Self] = self._metrics.get(key)
        if found is not None:
            return found
        child = self.__class__.__new__(self.__class__)
        child._family = self._cells() if self._has_cells() else None
        child.__init__(  # type: ignore[misc]
            self._original_name,
            documentation=self._documentation,
            labelnames=self._labelnames,
            namespace=self._namespace,
            subsystem=self._subsystem,
            unit=self._unit,
            _labelvalues=key,
            **self._kwargs,
        )
        # Two threads may get here at once: both children would be of the same series, and one of them stays.
        kept: _Self = self._metrics.setdefault(key, child)
        return kept

    def _has_cells(self) -> bool:
        return True

    def _label_key(self, labelvalues: tuple[object, ...], labelkwargs: Mapping[str, object]) -> tuple[str, ...]:
        if not self._labelnames:
            raise ValueError(f"No label names were set when constructing {self}")
        if self._labelvalues:
            labels = dict(zip(self._labelnames, self._labelvalues))
            raise ValueError(f"{self} already has labels set ({labels}); can not chain calls to .labels()")
        if labelvalues and labelkwargs:
            raise ValueError("Can't pass both *args and **kwargs")
        if labelkwargs:
            if sorted(labelkwargs) != sorted(self._labelnames):
                raise ValueError("Incorrect label names")
            return tuple(str(labelkwargs[name]) for name in self._labelnames)
        if len(labelvalues) != len(self._labelnames):
            raise ValueError("Incorrect label count")
        return tuple(str(value) for value in labelvalues)

    def remove(self, *labelvalues: Any) -> None:
        """Removes the child with these label values; nothing happens if there is none."""
        self._require_labelnames()
        if len(labelvalues) != len(self._labelnames):
            raise ValueError(f"Incorrect label count (expected {len(self._labelnames)}, got {labelvalues})")
        self._drop([tuple(str(value) for value in labelvalues)])

    def remove_by_labels(self, labels: dict[str, str]) -> None:
        """Removes every child that has these labels, whatever its others are."""
        self._require_labelnames()
        if not isinstance(labels, dict):
            raise TypeError("labels must be a dict of {label_name: label_value}")
        unknown = [name for name in labels if name not in self._labelnames]
        if unknown:
            raise ValueError(f"Unknown label names: {unknown}; expected {self._labelnames}")
        wanted = {self._labelnames.index(name): str(value) for name, value in labels.items()}
        matches = [key for key in list(self._metrics) if all(key[at] == value for at, value in wanted.items())]
        self._drop(matches if labels else [])

    def clear(self) -> None:
        """Removes all children."""
        self._drop(list(self._metrics))

    def _require_labelnames(self) -> None:
        if not self._labelnames:
            raise ValueError(f"No label names were set when constructing {self}")

    def _drop(self, keys: Iterable[tuple[str, ...]]) -> None:
        for key in keys:
            if self._metrics.pop(key, None) is not None and self._family is not None:
                self._family.remove(list(key))

    def _get_metric(self) -> Metric:
        return Metric(self._name, self._documentation, self._type or "untyped", self._unit)

    def describe(self) -> Iterable[Metric]:
        """The family without its samples."""
        return [self._get_metric()]

    def collect(self) -> Iterable[Metric]:
        """The family with its samples."""
        metric = self._get_metric()
        name = self._name
        metric.samples = [Sample(name + sample[0], *sample[1:]) for sample in self._samples()]
        return [metric]

    def _samples(self) -> Iterable[Sample]:
        return self._multi_samples() if self._is_parent() else self._child_samples()

    def _multi_samples(self) -> Iterator[Sample]:
        for values_, child in list(self._metrics.items()):
            labels = dict(zip(self._labelnames, values_))
            for suffix, own, *rest in child._samples():
                yield Sample(suffix, {**labels, **own}, *rest)

    def _created_sample(self) -> tuple[Sample, ...]:
        return (Sample("_created", {}, self._created),) if _use_created else ()

    _created: float = 0.0

    def __str__(self) -> str:
        return f"{self._type}:{self._name}"

    def __repr__(self) -> str:
        return f"{type(self).__module__}.{type(self).__name__}({self._name})"


class Counter(native.Counter, MetricWrapperBase):
    """A number that grows: requests served, bytes sent.

        c = Counter("requests_total", "Requests served", ["method"])
        c.labels("get").inc()
    """

    _type = "counter"
    _exemplar: Optional[Exemplar] = None

    def _make_family(self) -> native.Family:
        return values.family(self._name, self._documentation, self._unit, "counter", self._labelnames)

    def _metric_init(self) -> None:
        self._bind(self._cells(), list(self._labelvalues))
        self._created = time.time()

    @property
    def _value(self) -> _View:
        return _View(self._get)

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
        return (Sample("_total", {}, self._get(), None, self._exemplar), *self._created_sample())


_Mode = Literal[
    "all", "liveall", "min", "livemin", "max", "livemax", "sum", "livesum", "mostrecent", "livemostrecent"
]


class Gauge(native.Gauge, MetricWrapperBase):
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

    def _metric_init(self) -> None:
        self._bind(self._cells(), list(self._labelvalues))

    @property
    def _value(self) -> _View:
        return _View(self._get)

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


class Summary(native.Summary, MetricWrapperBase):
    """How many, and their sum: response times, sizes.

        s = Summary("response_latency_seconds", "Time to answer")
        with s.time(): ...
    """

    _type = "summary"
    _reserved_labelnames = ("quantile",)

    def _make_family(self) -> native.Family:
        return values.family(self._name, self._documentation, self._unit, "summary", self._labelnames)

    def _metric_init(self) -> None:
        self._bind(self._cells(), list(self._labelvalues))
        self._created = time.time()

    @property
    def _count(self) -> _View:
        return _View(lambda: float(self._get()[0]))

    @property
    def _sum(self) -> _View:
        return _View(lambda: self._get()[1])

    def _child_samples(self) -> Iterable[Sample]:
        count, total = self._get()
        return (Sample("_count", {}, float(count)), Sample("_sum", {}, total), *self._created_sample())


class Histogram(native.Histogram, MetricWrapperBase):
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

    def _metric_init(self) -> None:
        self._bind(self._cells(), list(self._labelvalues))
        self._created = time.time()

    @property
    def _sum(self) -> _View:
        return _View(lambda: self._get()[1])

    @property
    def _buckets(self) -> list[_View]:
        """The counts by bucket, not cumulative."""
        return [_View(lambda at=at: float(self._get()[0][at])) for at in range(len(self._upper_bounds))]  # type: ignore[misc]

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
        # With negative observations the sum is no counter.
        if self._upper_bounds[0] >= 0:
            samples.append(Sample("_sum", {}, total))
        return (*samples, *self._created_sample())


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
        """Sets the state; `ValueError` if there is no such."""
        self._raise_if_not_observable()
        self._value = list(self._states).index(state)

    def _child_samples(self) -> Iterable[Sample]:
        now = self._value
        return [Sample("", {self._name: state}, 1 if at == now else 0) for at, state in enumerate(self._states)]
