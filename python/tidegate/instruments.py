# SPDX-License-Identifier: Apache-2.0
"""Instruments of the SDK, and how they are declared.

An instrument is declared with what it means and recorded with once it is registered: by a `MetricSet`, or by hand
with ``registry.register(Counter("Requests served", name="requests"))``.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping, Optional, Sequence, TypeVar, Union

from tidegate import _tidegate as native
from tidegate._around import ExceptionCounter, InprogressTracker

__all__ = ["Counter", "FloatCounter", "Gauge", "Histogram", "Instrument", "UpDownCounter"]

_Self = TypeVar("_Self", bound="Instrument")

#: Children without a series of their own that are kept, so that nothing grows with label values beyond the bound.
_KEPT = 2000

#: Called with what is known now, the value, and whether the threshold is crossed.
Callback = Callable[[native.Snapshot, float, bool], object]


class Instrument(native.Metric):
    """The common part of all instruments: the declaration, labels, and registration."""

    #: The native part, which mypy does not find in a mixin.
    _join: Any
    _end: Any
    _register: Any

    def __init__(
        self, help: str, *, name: str = "", unit: str = "", labels: Sequence[str] = (), **options: Any
    ) -> None:
        self.help = help
        self.name = name
        self.unit = unit
        self.label_names = tuple(labels)
        self._options = options

    def _registered(
        self: _Self, registry: native.Registry, name: str, constant: Mapping[str, str]
    ) -> _Self:
        """A live instrument of this declaration."""
        live = self.__class__(
            self.help, name=self.name or name, unit=self.unit, labels=self.label_names, **self._options
        )
        declared = native.Declared(live.name, live.help, live.unit, **self._options)
        live._set_labels(self.label_names, ())
        pairs = [(key, str(value)) for key, value in constant.items()]
        live._register(registry, declared, pairs, list(self.label_names))
        return live

    def _child(self: _Self, labelvalues: tuple[object, ...], labelkwargs: Optional[Mapping[str, object]]) -> _Self:
        by_name = labelkwargs or {}
        if labelvalues and by_name:
            raise ValueError("labels by order or by name, not both")
        if by_name:
            if sorted(by_name) != sorted(self.label_names):
                raise ValueError(f"the labels of {self.name} are {self.label_names}")
            labelvalues = tuple(by_name[name] for name in self.label_names)
        if not self._is_parent() or len(labelvalues) != len(self.label_names):
            raise ValueError(f"the labels of {self.name} are {self.label_names}")
        key = tuple(str(value) for value in labelvalues)
        child = self.__class__(self.help, name=self.name, unit=self.unit, **self._options)
        is_own = child._join(self, list(key))
        if not is_own and len(self._metrics) >= _KEPT:
            return child
        kept: _Self = self._metrics.setdefault(key, child)
        return kept

    def remove(self, *labelvalues: object) -> None:
        """Ends the series with these label values: it is shown no more."""
        key = tuple(str(value) for value in labelvalues)
        self._metrics.pop(key, None)
        self._end(list(key))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class _Watched(Instrument):
    """Instruments with one value, which can be watched."""

    _on_change: Any

    def on_change(
        self,
        callback: Callback,
        *,
        above: Optional[float] = None,
        below: Optional[float] = None,
        moved: Optional[float] = None,
        hysteresis: float = 0.0,
        min_interval: float = 0.0,
    ) -> native.Subscription:
        """Calls back within milliseconds when the value crosses a threshold, moves so far or, without either, changes.

        On a thread of its own; what the callback raises is logged once and counted. Until the subscription is
        closed or collected. Seconds.
        """
        trigger = native.Trigger(
            above=above, below=below, moved=moved, hysteresis=hysteresis, min_interval=min_interval
        )
        subscription: native.Subscription = self._on_change(callback, trigger)
        return subscription


class Counter(native.CounterInstrument, _Watched):
    """Whole numbers that only grow: requests, tokens.

    With `exemplars` it remembers the newest span that counted (`tidegate.trace`).
    """

    def __init__(
        self,
        help: str,
        *,
        name: str = "",
        unit: str = "",
        labels: Sequence[str] = (),
        exemplars: bool = False,
    ) -> None:
        super().__init__(help, name=name, unit=unit, labels=labels, exemplars=exemplars)

    def count_exceptions(
        self, exception: Union[type[BaseException], tuple[type[BaseException], ...]] = Exception
    ) -> ExceptionCounter:
        """Counts exceptions that leave a block or a function (sync or async)."""
        return ExceptionCounter(self, exception)


class FloatCounter(native.FloatCounterInstrument, _Watched):
    """Numbers that only grow: seconds spent."""


class UpDownCounter(native.UpDownCounterInstrument, _Watched):
    """A whole number that grows and falls by what is added: open connections."""

    def track(self) -> InprogressTracker:
        """Counts a block or a function (sync or async) while it runs."""
        return InprogressTracker(self)


class Gauge(native.GaugeInstrument, _Watched):
    """A number that is set; `mode` says how the values of several processes become one (`livesum`)."""

    def __init__(
        self, help: str, *, name: str = "", unit: str = "", labels: Sequence[str] = (), mode: str = "livesum"
    ) -> None:
        super().__init__(help, name=name, unit=unit, labels=labels, mode=mode)

    def track(self) -> InprogressTracker:
        """Counts a block or a function (sync or async) while it runs."""
        return InprogressTracker(self)


class Histogram(native.HistogramInstrument, Instrument):
    """Counts values by buckets.

    `buckets`: upper bounds, or the name of some: `latency`, `fast`, `bytes`, `tokens`, `ratio`; or `exponential`, which
    fit themselves to the values. With `exemplars` each bucket remembers the newest span that was observed
    (`tidegate.trace`).
    """

    def __init__(
        self,
        help: str,
        *,
        name: str = "",
        unit: str = "",
        labels: Sequence[str] = (),
        buckets: Union[str, Iterable[float], None] = None,
        exemplars: bool = False,
    ) -> None:
        if buckets is not None and not isinstance(buckets, str):
            buckets = list(buckets)
        super().__init__(help, name=name, unit=unit, labels=labels, buckets=buckets, exemplars=exemplars)
