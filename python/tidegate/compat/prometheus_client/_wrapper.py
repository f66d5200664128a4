# SPDX-License-Identifier: Apache-2.0
"""The common part of all instruments: names, labels, children, samples."""

from __future__ import annotations

import time
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, Sequence, TypeVar

from tidegate import _tidegate as native

from .metrics_core import Metric
from .registry import REGISTRY, CollectorRegistry
from .samples import Sample
from .validation import _validate_labelnames, _validate_metric_name

_Self = TypeVar("_Self", bound="MetricWrapperBase")


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


class View:
    """One number of an instrument, as programs and tests look at it."""

    def __init__(self, get: Callable[[], float]) -> None:
        self.get = get


class MetricWrapperBase(native.Metric):
    """The common part of all instruments; `labels` and the recording methods are native."""

    _type: Optional[str] = None
    _reserved_labelnames: Sequence[str] = ()

    #: The native series of this family; a child has its parent's.
    _family: Optional[native.Family] = None

    #: Whether it is what all label values beyond the bound share, and the one child of that kind.
    _is_overflow = False
    _overflow: Optional[MetricWrapperBase] = None

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
            # Of two threads that get here at once one has its way.
            self.__dict__.setdefault("_family", self._make_family())
        assert self._family is not None
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
        if child._is_overflow:
            self._overflow = child
            return child
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
        children = [(dict(zip(self._labelnames, values)), child) for values, child in list(self._metrics.items())]
        if self._overflow is not None:
            children.append(({"otel_metric_overflow": "true"}, self._overflow))
        for labels, child in children:
            for suffix, own, *rest in child._samples():
                yield Sample(suffix, {**labels, **own}, *rest)

    def __str__(self) -> str:
        return f"{self._type}:{self._name}"

    def __repr__(self) -> str:
        return f"{type(self).__module__}.{type(self).__name__}({self._name})"


class Celled(MetricWrapperBase):
    """The common part of instruments whose values are cells."""

    #: The native part, which mypy does not find in a mixin.
    _bind: Any
    _created = 0.0

    def _metric_init(self) -> None:
        self._is_overflow = not self._bind(self._cells(), list(self._labelvalues))
        self._created = time.time()
