# SPDX-License-Identifier: Apache-2.0
"""OpenMetrics' rules for the samples of a family."""

from __future__ import annotations

from math import isnan
from typing import Any, Optional, Union

from ..metrics_core import Metric
from ..samples import Sample, Timestamp
from ..utils import INF, floatToGoString
from ..validation import _validate_metric_name

#: The series of a family by its type; of others it is the name itself.
_SUFFIXES = {
    "counter": ("_total", "_created"),
    "summary": ("", "_count", "_sum", "_created"),
    "histogram": ("_count", "_sum", "_bucket", "_created"),
    "gaugehistogram": ("_gcount", "_gsum", "_bucket"),
    "info": ("_info",),
}
_HISTOGRAMS = ("histogram", "gaugehistogram")

_Labels = tuple[tuple[str, str], ...]


def _demand(holds: bool, what: str, line: str) -> None:
    if not holds:
        raise ValueError(f"{what}: {line}")


class Family:
    """A family as its lines come in."""

    def __init__(self, name: str, typ: Optional[str] = None) -> None:
        self.name = name
        self.type = typ
        self._documentation: Optional[str] = None
        self._unit: Optional[str] = None
        self._series = {name}
        self._samples: list[Sample] = []
        #: Groups of samples: those of one set of labels follow one another.
        self._group: Optional[_Labels] = None
        self._groups: set[_Labels] = set()
        self._time: Union[Timestamp, float, None] = None
        self._in_time: set[tuple[str, _Labels]] = set()

    def describe(self, word: str, text: str, line: str) -> None:
        """A line of metadata."""
        _demand(not self._samples, "Received metadata after samples", line)
        if word == "HELP":
            _demand(self._documentation is None, "More than one HELP for metric", line)
            self._documentation = text
        elif word == "UNIT":
            _demand(self._unit is None, "More than one UNIT for metric", line)
            self._unit = text
        else:
            _demand(self.type is None, "More than one TYPE for metric", line)
            _demand(text != "untyped", "Invalid TYPE for metric", line)
            self.type = text
            self._series = {self.name + suffix for suffix in _SUFFIXES.get(text, ("",))}

    def takes(self, sample: Sample) -> bool:
        """Whether the sample is one of this family."""
        return sample.name in self._series or (sample.native_histogram is not None and sample.name == self.name)

    def add(self, sample: Sample, line: str) -> None:
        """A line with a sample."""
        if sample.native_histogram is not None:
            self._samples.append(sample)
            return
        self._check(sample, line)
        group = self._group_of(sample)
        if group == self._group:
            self._check_time(sample, line)
        else:
            _demand(group not in self._groups, "Invalid metric grouping", line)
            self._in_time = set()
        series = (sample.name, tuple(sorted(sample.labels.items())))
        # A time that was cut short may bring a sample twice.
        if sample.timestamp != self._time or series not in self._in_time:
            self._samples.append(sample)
        self._in_time.add(series)
        self._group, self._time = group, sample.timestamp
        self._groups.add(group)

    def _check(self, sample: Sample, line: str) -> None:
        suffix, value, labels = sample.name[len(self.name) :], sample.value, sample.labels
        if self.type == "stateset":
            _demand(self.name in labels, "Stateset missing label", line)
            _demand(value in (0, 1), "Stateset samples can only have values zero and one", line)
        if self.type == "info":
            _demand(value == 1, "Info samples can only have value one", line)
        if suffix == "_bucket":
            _demand(_is_bound(labels.get("le", "NaN")), "Invalid le label", line)
        if suffix in ("_bucket", "_count", "_gcount"):
            _demand(isnan(value) or value == value // 1, "Bucket and count values must be integers", line)
        if self.type == "summary" and suffix == "":
            _demand(0 <= float(labels.get("quantile", -1)) <= 1, "Invalid quantile label", line)
            _demand(not value < 0, "Quantile values cannot be negative", line)
        if suffix in ("_total", "_sum", "_count", "_bucket", "_gcount", "_gsum"):
            _demand(not isnan(value), "Counter-like samples cannot be NaN", line)
            _demand(value >= 0 or suffix == "_gsum", "Counter-like samples cannot be negative", line)
        may_have = (self.type in _HISTOGRAMS and suffix == "_bucket") or (self.type == "counter" and suffix == "_total")
        _demand(may_have or sample.exemplar is None, "Only buckets and counters can have exemplars", line)

    def _group_of(self, sample: Sample) -> _Labels:
        if self.type == "info":
            return ()
        own = {"summary": "quantile", "stateset": self.name}.get(self.type or "", "le")
        has_own = sample.name in (self.name, self.name + "_bucket") and self.type in ("summary", "stateset", *_HISTOGRAMS)
        return tuple(sorted(item for item in sample.labels.items() if not has_own or item[0] != own))

    def _check_time(self, sample: Sample, line: str) -> None:
        _demand((sample.timestamp is None) == (self._time is None), "Mix of timestamp presence within a group", line)
        if sample.timestamp is not None and self._time is not None and self.type != "info":
            _demand(_key(sample.timestamp) >= _key(self._time), "Timestamps went backwards within a group", line)

    def metric(self, seen: set[str]) -> Metric:
        """The family once it is whole; `seen` are the names of those before it."""
        typ, unit = self.type or "unknown", self._unit or ""
        for name in {self.name, *(self.name + suffix for suffix in _SUFFIXES.get(typ, ()))}:
            _demand(name not in seen, "Clashing name", name)
            seen.add(name)
        _demand(not unit or self.name.endswith("_" + unit), "Unit does not match metric name", self.name)
        _demand(not unit or typ not in ("info", "stateset"), "Units not allowed for this metric type", self.name)
        if typ in _HISTOGRAMS:
            self._check_histograms()
        _validate_metric_name(self.name)
        metric = Metric(self.name, self._documentation or "", typ, unit)
        metric.samples = self._samples
        return metric

    def _check_histograms(self) -> None:
        before: Any = None
        histogram: list[Sample] = []
        for sample in (sample for sample in self._samples if sample.native_histogram is None):
            now = (self._group_of(sample), sample.timestamp)
            if now != before:
                self._check_histogram(histogram)
                histogram = []
            before = now
            histogram.append(sample)
        self._check_histogram(histogram)

    def _check_histogram(self, samples: list[Sample]) -> None:
        if not samples:
            return
        parts = {sample.name[len(self.name) :]: sample.value for sample in samples}
        buckets = [sample for sample in samples if sample.name == self.name + "_bucket"]
        bounds = [float(sample.labels["le"]) for sample in buckets]
        counts = [sample.value for sample in buckets]
        _demand(bounds == sorted(set(bounds)), "Buckets out of order", self.name)
        _demand(counts == sorted(counts), "Bucket values out of order", self.name)
        _demand(bool(bounds) and bounds[-1] == INF, "+Inf bucket missing", self.name)
        count = parts.get("_count", parts.get("_gcount"))
        _demand(count is None or count == counts[-1], "Count does not match +Inf value", self.name)
        has_sum = "_sum" in parts or "_gsum" in parts
        _demand(has_sum == (count is not None), "_count and _sum must both be present", self.name)
        is_negative = bounds[0] < 0
        _demand(not (is_negative and "_sum" in parts), "Cannot have _sum with negative buckets", self.name)
        _demand(is_negative or parts.get("_gsum", 0) >= 0, "Cannot have negative _gsum with non-negative buckets", self.name)


def _is_bound(text: str) -> bool:
    """Whether it is a number that is written as such a number has to be."""
    bound = float(text)
    return not isnan(bound) and (bound != INF or text == floatToGoString(bound))


def _key(time: Union[Timestamp, float]) -> tuple[float, float]:
    return time._key() if isinstance(time, Timestamp) else (time // 1, time % 1 * 1e9)
