# SPDX-License-Identifier: Apache-2.0
"""A reader of OpenMetrics' text format, which checks what the format demands."""

from __future__ import annotations

import io
import math
import re
from typing import Iterable, Iterator, Optional, TextIO, Union

from .._lines import ABOUT, NAME, labels, number, one_name, unescape, unquote
from ..metrics_core import Metric
from ..samples import BucketSpan, Exemplar, NativeHistogram, Sample, Timestamp
from ..validation import EXEMPLAR_RUNES
from ._families import Family

__all__ = ("text_fd_to_metric_families", "text_string_to_metric_families")

_COMMENT = re.compile(r"# (HELP|TYPE|UNIT) (.*)$", re.DOTALL)
_VALUE = re.compile(r" ([^\s{]+)(?: ([^#\s]\S*))?")
_EXEMPLAR_VALUE = re.compile(r" (\S+)(?: (\S+))?$")
_NATIVE = re.compile(r" ?\{([^{}]*)\}")
_FIELD = re.compile(r"(\w+):\s*(\[[^\[\]]*\]|[^,\[\]]+)(?:,|$)")
_DECIMAL = re.compile(r"([+-]?\d+)(?:\.(\d*))?")


def text_string_to_metric_families(text: str) -> Iterable[Metric]:
    """The metrics of a page; `ValueError` if it is none."""
    return text_fd_to_metric_families(io.StringIO(text))


def text_fd_to_metric_families(fd: TextIO) -> Iterator[Metric]:
    """The metrics of a page that is read line by line; `ValueError` if it is none."""
    family: Optional[Family] = None
    seen: set[str] = set()
    is_over = False
    for line in fd:
        line = line.removesuffix("\n")
        if is_over or not line:
            raise ValueError(f"Received line after # EOF: {line}" if is_over else "Received blank line")
        if line == "# EOF":
            is_over = True
        elif line.startswith("#"):
            word, name, text = _comment(line)
            if family is None or family.name != name:
                if family:
                    yield family.metric(seen)
                family = Family(name)
            family.describe(word, text, line)
        else:
            sample = _sample(line, has_native=family is not None and family.type == "histogram")
            if family is None or not family.takes(sample):
                if family:
                    yield family.metric(seen)
                family = Family(sample.name, "unknown")
            family.add(sample, line)
    if family:
        yield family.metric(seen)
    if not is_over:
        raise ValueError("Missing # EOF at end")


def _comment(line: str) -> tuple[str, str, str]:
    comment = _COMMENT.match(line)
    about = comment and ABOUT.match(comment[2])
    # One space separates the name and the text.
    if not comment or not about or about[2] is None or not comment[2].startswith(about[1] + " "):
        raise ValueError(f"Invalid line: {line}")
    return comment[1], unquote(about[1]), unescape(about[2]) if comment[1] == "HELP" else about[2]


def _sample(line: str, has_native: bool) -> Sample:
    found = NAME.match(line)
    name = found[0] if found else ""
    at = len(name)
    own: dict[str, str] = {}
    # Without braces for labels: those of a quoted name are none.
    is_bare = not (name and line.startswith("{", at))
    if line.startswith("{", at):
        within, own, at = labels(line, at + 1, strict=True)
        name = one_name(line, name, within)
    elif not name:
        raise ValueError(f"invalid metric name: {line}")
    native = _NATIVE.match(line, at) if has_native else None
    if native:
        # prometheus_client gives None, not {}, here.
        given = None if is_bare and not own else own
        return Sample(name, given, None, None, None, _native(native[1], line))  # type: ignore[arg-type]
    value = _VALUE.match(line, at)
    if value is None:
        raise ValueError(f"Invalid line: {line}")
    exemplar = _exemplar(line, value.end())
    return Sample(name, own, number(value[1]), _timestamp(value[2]), exemplar)


def _exemplar(line: str, at: int) -> Optional[Exemplar]:
    if at == len(line):
        return None
    if not line.startswith(" # {", at):
        raise ValueError(f"Invalid line: {line}")
    _, own, at = labels(line, at + 4, strict=True)
    value = _EXEMPLAR_VALUE.match(line, at)
    if value is None:
        raise ValueError(f"Invalid line: {line}")
    if sum(len(name) + len(text) for name, text in own.items()) > EXEMPLAR_RUNES:
        raise ValueError(f"Exemplar labels are too long: {line}")
    return Exemplar(own, number(value[1]), _timestamp(value[2]))


def _timestamp(text: Optional[str]) -> Union[Timestamp, float, None]:
    """Seconds; with nanoseconds unless they are written with an exponent."""
    if text is None:
        return None
    decimal = _DECIMAL.fullmatch(text)
    if decimal:
        return Timestamp(int(decimal[1]), int((decimal[2] or "")[:9].ljust(9, "0")))
    time = float(number(text))
    if not math.isfinite(time):
        raise ValueError(f"Invalid timestamp: {text!r}")
    return time


def _native(text: str, line: str) -> NativeHistogram:
    fields: dict[str, str] = dict(_FIELD.findall(text))
    try:
        return NativeHistogram(
            int(fields["count"]),
            float(fields["sum"]),
            int(fields["schema"]),
            float(fields["zero_threshold"]),
            int(fields["zero_count"]),
            _spans(fields.get("positive_spans")),
            _spans(fields.get("negative_spans")),
            _whole(fields.get("positive_deltas")),
            _whole(fields.get("negative_deltas")),
        )
    except KeyError as error:
        raise ValueError(f"Invalid native histogram, {error} is missing: {line}") from error


def _spans(text: Optional[str]) -> Optional[tuple[BucketSpan, ...]]:
    pairs = (pair.partition(":") for pair in _items(text))
    return tuple(BucketSpan(int(offset), int(length)) for offset, _, length in pairs) or None


def _whole(text: Optional[str]) -> Optional[tuple[int, ...]]:
    return tuple(map(int, _items(text))) or None


def _items(text: Optional[str]) -> list[str]:
    within = (text or "").strip("[]")
    return within.split(",") if within else []
