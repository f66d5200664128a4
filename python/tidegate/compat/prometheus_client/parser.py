# SPDX-License-Identifier: Apache-2.0
"""A reader of Prometheus's text format. It forgives more than Prometheus does."""

from __future__ import annotations

import io
import re
from typing import Iterable, Iterator, Optional, TextIO

from ._lines import ABOUT, NAME, labels, number, one_name, unquote
from .metrics_core import Metric
from .samples import Sample

__all__ = ("text_fd_to_metric_families", "text_string_to_metric_families")

_COMMENT = re.compile(r"#\s+(HELP|TYPE)(?:\s+(.*))?$", re.DOTALL)
_HELP_ESCAPE = re.compile(r"\\([\\n])")

#: The series of a family by its type; of others it is the name itself.
_SUFFIXES = {"summary": ("", "_count", "_sum"), "histogram": ("_bucket", "_count", "_sum")}


def text_string_to_metric_families(text: str) -> Iterable[Metric]:
    """The metrics of a page; `ValueError` if it is none."""
    return text_fd_to_metric_families(io.StringIO(text))


def text_fd_to_metric_families(fd: TextIO) -> Iterator[Metric]:
    """The metrics of a page that is read line by line; `ValueError` if it is none."""
    family: Optional[_Family] = None
    for line in fd:
        line = line.strip()
        if not line:
            continue
        if line.startswith("#"):
            told = _comment(line)
            if told is None:
                continue
            word, name, text = told
            if family is None or family.name != name:
                if family:
                    yield family.metric()
                family = _Family(name)
            family.describe(word, text)
            continue
        sample = _sample(line)
        if family and sample.name in family.series:
            family.samples.append(sample)
            continue
        if family:
            yield family.metric()
            family = None
        alone = Metric(sample.name, "", "untyped")
        alone.samples = [sample]
        yield alone
    if family:
        yield family.metric()


class _Family:
    """The parts of a family that have been read so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.series = {name}
        self.samples: list[Sample] = []
        self._documentation = ""
        self._type = "untyped"

    def describe(self, word: str, text: str) -> None:
        if word == "HELP":
            self._documentation = _HELP_ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text)
        else:
            self._type = text
            self.series = {self.name + suffix for suffix in _SUFFIXES.get(text, ("",))}

    def metric(self) -> Metric:
        """As a collector would give it: OpenMetrics' names of counters."""
        name, samples = self.name, self.samples
        if self._type == "counter":
            if name.endswith("_total"):
                name = name.removesuffix("_total")
            else:
                samples = [sample._replace(name=sample.name + "_total") for sample in samples]
        metric = Metric(name, self._documentation, self._type)
        metric.samples = samples
        return metric


def _comment(line: str) -> Optional[tuple[str, str, str]]:
    """The word, the name and the text of a comment that has a meaning."""
    comment = _COMMENT.match(line)
    about = comment and ABOUT.match(comment[2] or "")
    if comment and comment[1] == "TYPE" and not (about and about[2]):
        raise ValueError(f"no type: {line}")
    return (comment[1], unquote(about[1]), about[2] or "") if comment and about else None


def _sample(line: str) -> Sample:
    found = NAME.match(line)
    name = found[0] if found else ""
    behind = line[len(name) :].lstrip()
    own: dict[str, str] = {}
    if behind.startswith("{"):
        within, own, at = labels(behind, 1, strict=False)
        name, behind = one_name(line, name, within), behind[at:]
    elif not name or not line[len(name) : len(name) + 1].isspace():
        raise ValueError(f"invalid metric name: {line}")
    numbers = behind.split()
    if not numbers:
        raise ValueError(f"no value: {line}")
    time = number(numbers[-1]) / 1000 if len(numbers) > 1 else None
    return Sample(name, own, number(numbers[0]), time)
