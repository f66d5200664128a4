# SPDX-License-Identifier: Apache-2.0
"""Metric families: what collectors make, by hand or from instruments."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Optional, Sequence, Union

from .samples import Exemplar, NativeHistogram, Sample, Timestamp
from .validation import _validate_metric_name

METRIC_TYPES = ("counter", "gauge", "summary", "histogram", "gaugehistogram", "unknown", "info", "stateset")

_Time = Optional[Union[Timestamp, float]]


class Metric:
    """A family with its samples."""

    def __init__(self, name: str, documentation: str, typ: str, unit: str = "") -> None:
        if unit and not name.endswith("_" + unit):
            name += "_" + unit
        _validate_metric_name(name)
        if typ == "untyped":
            typ = "unknown"
        if typ not in METRIC_TYPES:
            raise ValueError("Invalid metric type: " + typ)
        self.name = name
        self.documentation = documentation
        self.unit = unit
        self.type = typ
        self.samples: list[Sample] = []

    def add_sample(
        self,
        name: str,
        labels: dict[str, str],
        value: float,
        timestamp: _Time = None,
        exemplar: Optional[Exemplar] = None,
        native_histogram: Optional[NativeHistogram] = None,
    ) -> None:
        """Adds a sample as it is: `name` is the whole name of the series."""
        self.samples.append(Sample(name, labels, value, timestamp, exemplar, native_histogram))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Metric) and self._key() == other._key()

    # Equality by content, and the content changes.
    __hash__ = None  # type: ignore[assignment]

    def _key(self) -> tuple[Any, ...]:
        return (self.name, self.documentation, self.type, self.unit, self.samples)

    def __repr__(self) -> str:
        return f"Metric({self.name}, {self.documentation}, {self.type}, {self.unit}, {self.samples})"

    def _restricted_metric(self, names: Iterable[str]) -> Optional[Metric]:
        samples = [sample for sample in self.samples if sample.name in names]
        if not samples:
            return None
        metric = Metric(self.name, self.documentation, self.type)
        metric.samples = samples
        return metric


class _Family(Metric):
    """A family with label names, filled by `add_metric`."""

    _labelnames: tuple[str, ...]

    def _prepare(self, labels: Optional[Sequence[str]], has_value: bool, what: str = "value") -> None:
        if labels is not None and has_value:
            raise ValueError(f"Can only specify at most one of {what} and labels.")
        self._labelnames = tuple(labels or ())

    def _labels(self, values: Iterable[str]) -> dict[str, str]:
        return dict(zip(self._labelnames, values))

    def _add(self, suffix: str, labels: dict[str, str], value: float, timestamp: _Time, exemplar: Any = None) -> None:
        self.add_sample(self.name + suffix, labels, value, timestamp, exemplar)


class _ValueFamily(_Family):
    """A family whose series are one number each."""

    _type: str

    def __init__(
        self,
        name: str,
        documentation: str,
        value: Optional[float] = None,
        labels: Optional[Sequence[str]] = None,
        unit: str = "",
    ) -> None:
        super().__init__(name, documentation, self._type, unit)
        self._prepare(labels, value is not None)
        if value is not None:
            self.add_metric([], value)

    def add_metric(self, labels: Sequence[str], value: float, timestamp: _Time = None) -> None:
        """Adds the series with these label values."""
        self._add("", self._labels(labels), value, timestamp)


class UnknownMetricFamily(_ValueFamily):
    """Series of an unknown type."""

    _type = "unknown"


#: Its name before OpenMetrics.
UntypedMetricFamily = UnknownMetricFamily


class CounterMetricFamily(_Family):
    """Counters; a name that ends in `_total` loses it, the samples get it back."""

    def __init__(
        self,
        name: str,
        documentation: str,
        value: Optional[float] = None,
        labels: Optional[Sequence[str]] = None,
        created: Optional[float] = None,
        unit: str = "",
        exemplar: Optional[Exemplar] = None,
    ) -> None:
        super().__init__(name.removesuffix("_total"), documentation, "counter", unit)
        self._prepare(labels, value is not None)
        if value is not None:
            self.add_metric([], value, created, exemplar=exemplar)

    def add_metric(
        self,
        labels: Sequence[str],
        value: float,
        created: Optional[float] = None,
        timestamp: _Time = None,
        exemplar: Optional[Exemplar] = None,
    ) -> None:
        """Adds the series with these label values; `created` in seconds since the epoch."""
        self._add("_total", self._labels(labels), value, timestamp, exemplar)
        if created is not None:
            self._add("_created", self._labels(labels), created, timestamp)


class GaugeMetricFamily(_ValueFamily):
    """Gauges."""

    _type = "gauge"


class SummaryMetricFamily(_Family):
    """Summaries: a count and a sum."""

    def __init__(
        self,
        name: str,
        documentation: str,
        count_value: Optional[int] = None,
        sum_value: Optional[float] = None,
        labels: Optional[Sequence[str]] = None,
        unit: str = "",
    ) -> None:
        super().__init__(name, documentation, "summary", unit)
        if (sum_value is None) != (count_value is None):
            raise ValueError("count_value and sum_value must be provided together.")
        self._prepare(labels, count_value is not None)
        if count_value is not None and sum_value is not None:
            self.add_metric([], count_value, sum_value)

    def add_metric(self, labels: Sequence[str], count_value: int, sum_value: float, timestamp: _Time = None) -> None:
        """Adds the series with these label values."""
        self._add("_count", self._labels(labels), count_value, timestamp)
        self._add("_sum", self._labels(labels), sum_value, timestamp)


_Bucket = Union["tuple[str, float]", "tuple[str, float, Exemplar]"]


class HistogramMetricFamily(_Family):
    """Histograms: cumulative buckets `(le, count[, exemplar])` in order, the last of them +Inf."""

    def __init__(
        self,
        name: str,
        documentation: str,
        buckets: Optional[Sequence[_Bucket]] = None,
        sum_value: Optional[float] = None,
        labels: Optional[Sequence[str]] = None,
        unit: str = "",
    ) -> None:
        super().__init__(name, documentation, "histogram", unit)
        if sum_value is not None and buckets is None:
            raise ValueError("sum value cannot be provided without buckets.")
        self._prepare(labels, buckets is not None, "buckets")
        if buckets is not None:
            self.add_metric([], buckets, sum_value)

    def add_metric(
        self,
        labels: Sequence[str],
        buckets: Sequence[_Bucket],
        sum_value: Optional[float],
        timestamp: _Time = None,
    ) -> None:
        """Adds the series with these label values."""
        for le, count, *exemplar in buckets:
            self._add("_bucket", {**self._labels(labels), "le": le}, count, timestamp, *exemplar)
        # Negative observations make the sum no counter: it is omitted then, and the count with it.
        if float(buckets[0][0]) >= 0 and sum_value is not None:
            self._add("_count", self._labels(labels), buckets[-1][1], timestamp)
            self._add("_sum", self._labels(labels), sum_value, timestamp)


class GaugeHistogramMetricFamily(_Family):
    """Histograms of what is now: they may shrink."""

    def __init__(
        self,
        name: str,
        documentation: str,
        buckets: Optional[Sequence[tuple[str, float]]] = None,
        gsum_value: Optional[float] = None,
        labels: Optional[Sequence[str]] = None,
        unit: str = "",
    ) -> None:
        super().__init__(name, documentation, "gaugehistogram", unit)
        self._prepare(labels, buckets is not None, "buckets")
        if buckets is not None:
            self.add_metric([], buckets, gsum_value)

    def add_metric(
        self,
        labels: Sequence[str],
        buckets: Sequence[tuple[str, float]],
        gsum_value: Optional[float],
        timestamp: _Time = None,
    ) -> None:
        """Adds the series with these label values."""
        for le, count in buckets:
            self._add("_bucket", {**self._labels(labels), "le": le}, count, timestamp)
        self._add("_gcount", self._labels(labels), buckets[-1][1], timestamp)
        # None is taken here and fails when it is written, as in prometheus_client.
        self._add("_gsum", self._labels(labels), gsum_value, timestamp)  # type: ignore[arg-type]


class InfoMetricFamily(_Family):
    """Texts as labels of a series that is always 1."""

    def __init__(
        self,
        name: str,
        documentation: str,
        value: Optional[Mapping[str, str]] = None,
        labels: Optional[Sequence[str]] = None,
    ) -> None:
        super().__init__(name, documentation, "info")
        self._prepare(labels, value is not None)
        if value is not None:
            self.add_metric([], value)

    def add_metric(self, labels: Sequence[str], value: Mapping[str, str], timestamp: _Time = None) -> None:
        """Adds the series with these label values."""
        self._add("_info", {**self._labels(labels), **value}, 1, timestamp)


class StateSetMetricFamily(_Family):
    """States, each true or false."""

    def __init__(
        self,
        name: str,
        documentation: str,
        value: Optional[Mapping[str, bool]] = None,
        labels: Optional[Sequence[str]] = None,
    ) -> None:
        super().__init__(name, documentation, "stateset")
        self._prepare(labels, value is not None)
        if value is not None:
            self.add_metric([], value)

    def add_metric(self, labels: Sequence[str], value: Mapping[str, bool], timestamp: _Time = None) -> None:
        """Adds a series for each state, in the order of their names."""
        for state, enabled in sorted(value.items()):
            self._add("", {**self._labels(labels), self.name: state}, 1 if enabled else 0, timestamp)
