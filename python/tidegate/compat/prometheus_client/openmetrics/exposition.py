# SPDX-License-Identifier: Apache-2.0
"""Metrics as OpenMetrics text, version 1.0 or 2.0 (which adds native histograms)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Optional

from ..metrics_core import Metric
from ..registry import Collector
from ..samples import Exemplar, NativeHistogram, Sample
from ..utils import floatToGoString, parse_version
from ..validation import _is_valid_legacy_metric_name
from .escaping import (
    ALLOWUTF8,
    DOTS,
    UNDERSCORES,
    VALUES,
    escape_label_name,
    escape_metric_name,
    escape_text,
)

__all__ = (
    "ALLOWUTF8",
    "CONTENT_TYPE_LATEST",
    "CONTENT_TYPE_LATEST_2_0",
    "DOTS",
    "ESCAPING_HEADER_TAG",
    "UNDERSCORES",
    "VALUES",
    "escape_label_name",
    "escape_metric_name",
    "generate_latest",
)

CONTENT_TYPE_LATEST = "application/openmetrics-text; version=1.0.0; charset=utf-8"
CONTENT_TYPE_LATEST_2_0 = "application/openmetrics-text; version=2.0.0; charset=utf-8"
ESCAPING_HEADER_TAG = "escaping"

#: The series of a type that may carry exemplars: suffixes of the name.
_EXEMPLAR_SUFFIXES = {"counter": ("_total",), "gaugehistogram": ("_bucket",), "histogram": ("_bucket",)}


def generate_latest(registry: Collector, escaping: str = UNDERSCORES, version: str = "1.0.0") -> bytes:
    """The registry's metrics as OpenMetrics text.

    An error names the metric it came from as the last of its arguments.
    """
    with_native = parse_version(version) >= (2, 0, 0)
    output: list[str] = []
    for metric in registry.collect():
        try:
            _write_metric(output, metric, escaping, with_native)
        except Exception as error:
            error.args = (error.args or ("",)) + (metric,)
            raise
    output.append("# EOF\n")
    return "".join(output).encode("utf-8")


def _write_metric(output: list[str], metric: Metric, escaping: str, with_native: bool) -> None:
    name = escape_metric_name(metric.name, escaping)
    output.append(f"# HELP {name} {escape_text(metric.documentation)}\n")
    output.append(f"# TYPE {name} {metric.type}\n")
    if metric.unit:
        output.append(f"# UNIT {name} {metric.unit}\n")
    for sample in metric.samples:
        if sample.native_histogram and not with_native:
            continue
        value, exemplars = _value(metric, sample)
        time = "" if sample.timestamp is None else f" {sample.timestamp}"
        output.append(f"{series(sample, escaping)} {value}{time}{exemplars}\n")


def series(sample: Sample, escaping: str) -> str:
    """The name and labels of a sample; a name that must be quoted moves into the braces."""
    items = sorted((sample.labels or {}).items())
    labels = ",".join([f'{_label_name(name, escaping)}="{escape_text(value)}"' for name, value in items])
    name, is_quoted = _metric_name(sample.name, escaping)
    if is_quoted:
        return f"{{{name},{labels}}}" if labels else f"{{{name}}}"
    return f"{name}{{{labels}}}" if labels else name


# The same few names come again and again.
_label_name = lru_cache(4096)(escape_label_name)


@lru_cache(4096)
def _metric_name(name: str, escaping: str) -> tuple[str, bool]:
    """The name as it is written, and whether that is within the braces."""
    is_quoted = escaping == ALLOWUTF8 and not _is_valid_legacy_metric_name(name)
    return escape_metric_name(name, escaping), is_quoted


def _value(metric: Metric, sample: Sample) -> tuple[str, str]:
    exemplars = _exemplar(metric, sample, sample.exemplar)
    native = sample.native_histogram
    if native:
        for exemplar in native.nh_exemplars or ():
            exemplars += _exemplar(metric, sample, exemplar)
        return _native_histogram(native), exemplars
    return ("" if sample.value is None else floatToGoString(sample.value)), exemplars


def _exemplar(metric: Metric, sample: Sample, exemplar: Optional[Exemplar]) -> str:
    if not exemplar:
        return ""
    is_native = metric.type == "histogram" and sample.name == metric.name
    if not is_native and not sample.name.endswith(_EXEMPLAR_SUFFIXES.get(metric.type, ("\0",))):
        raise ValueError(f"Metric {metric.name} has exemplars, but is not a histogram bucket or counter")
    labels = ",".join(f'{name}="{escape_text(value)}"' for name, value in sorted(exemplar.labels.items()))
    time = "" if exemplar.timestamp is None else f" {exemplar.timestamp}"
    return f" # {{{labels}}} {floatToGoString(exemplar.value)}{time}"


def _native_histogram(native: NativeHistogram) -> str:
    fields = [
        f"count:{native.count_value}",
        f"sum:{native.sum_value}",
        f"schema:{native.schema}",
        f"zero_threshold:{native.zero_threshold}",
        f"zero_count:{native.zero_count}",
        *_side("negative", native.neg_spans, native.neg_deltas),
        *_side("positive", native.pos_spans, native.pos_deltas),
    ]
    return "{" + ",".join(fields) + "}"


def _side(name: str, spans: Any, deltas: Any) -> list[str]:
    if not spans:
        return []
    runs = ",".join(f"{offset}:{length}" for offset, length in spans)
    return [f"{name}_spans:[{runs}]", f"{name}_deltas:[{','.join(map(str, deltas))}]"]
