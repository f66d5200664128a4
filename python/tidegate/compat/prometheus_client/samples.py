# SPDX-License-Identifier: Apache-2.0
"""The samples that a collector gives, with their timestamps and exemplars."""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence, Union


class Timestamp:
    """A time with nanoseconds, which a float would lose."""

    def __init__(self, sec: float, nsec: float) -> None:
        if not 0 <= nsec < 1e9:
            raise ValueError(f"Invalid value for nanoseconds in Timestamp: {nsec}")
        self.sec: int = int(sec)
        self.nsec: int = int(-nsec if sec < 0 else nsec)

    def __str__(self) -> str:
        return f"{self.sec}.{self.nsec:09d}"

    def __repr__(self) -> str:
        return f"Timestamp({self.sec}, {self.nsec})"

    def __float__(self) -> float:
        return self.sec + self.nsec / 1e9

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __lt__(self, other: Timestamp) -> bool:
        return self._key() < other._key()

    def __gt__(self, other: Timestamp) -> bool:
        return self._key() > other._key()

    def _key(self) -> tuple[int, int]:
        return (self.sec, self.nsec)


class BucketSpan(NamedTuple):
    """A run of buckets of a native histogram."""

    offset: int
    length: int


class Exemplar(NamedTuple):
    """An observation that stands for those around it; `timestamp` in seconds since the epoch."""

    labels: dict[str, str]
    value: float
    timestamp: Optional[Union[float, Timestamp]] = None


class NativeHistogram(NamedTuple):
    """A histogram with exponential buckets, as OpenMetrics 2.0 writes it."""

    count_value: float
    sum_value: float
    schema: int
    zero_threshold: float
    zero_count: float
    pos_spans: Optional[Sequence[BucketSpan]] = None
    neg_spans: Optional[Sequence[BucketSpan]] = None
    pos_deltas: Optional[Sequence[int]] = None
    neg_deltas: Optional[Sequence[int]] = None
    nh_exemplars: Optional[Sequence[Exemplar]] = None


class Sample(NamedTuple):
    """One line of an exposition."""

    name: str
    labels: dict[str, str]
    value: float
    timestamp: Optional[Union[float, Timestamp]] = None
    exemplar: Optional[Exemplar] = None
    native_histogram: Optional[NativeHistogram] = None
