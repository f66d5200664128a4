# SPDX-License-Identifier: Apache-2.0
"""NIXL's telemetry in shared memory: rings of events of every version, and stores of totals.

    with Reader("/run/nixl/agent") as reader:
        for event in reader.drain():
            print(event.name, event.value, event.unit)

A read copies events out; `commit` hands their slots back to the producer. Until then they stay in the
ring, so a program that dies between the two loses nothing. With ``consume=False`` nothing is handed
back: any number of readers may look at a ring that way.

Multi-process stores (`nixl.*.mmap`) hold totals instead, for any number of readers:

    for store in stores("/run/nixl"):
        print(store.identity.agent_name, store.totals()["agent_tx_bytes"].total)
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from types import TracebackType
from typing import Iterator, NamedTuple, Optional, Union

from tidegate._tidegate import NixlStore, NixlTotal, RingReader, inspect_ring

__all__ = [
    "Batch",
    "Event",
    "Inspection",
    "Kind",
    "NixlTotal",
    "Reader",
    "Stats",
    "Store",
    "StoreIdentity",
    "inspect",
    "stores",
]

#: Default of the most events that one read takes.
MAX_EVENTS = 65_536


class Kind(NamedTuple):
    """The description of a kind of events: `unit` in UCUM (`By`, `us`, `1`), `status` for errors only."""

    name: str
    unit: str
    category: str
    status: Optional[str]


class Event(NamedTuple):
    """One event; `timestamp_us` (since the epoch) only in rings of version 1."""

    name: str
    value: int
    unit: str
    category: str
    status: Optional[str]
    timestamp_us: Optional[int]


class Stats(NamedTuple):
    """Totals since the reader was opened.

    `suspected_loss` counts reads that found the ring full: NIXL counts no event that it dropped then.
    """

    events: int
    suspected_loss: int
    resets: int
    lost: int
    unknown: int
    overflow: int


@dataclass(frozen=True)
class Inspection:
    """The description of a file; `reject` says why it is not a ring."""

    version: Optional[str]
    capacity: int
    readable: int
    read_pos: int
    write_pos: int
    owner_uid: int
    reject: Optional[str]


class Batch:
    """The result of one read.

    `status`: `events`, `idle`, `settling` (the ring is just being made), `reset` (it is not what it was:
    `reason`, and how many events were `lost`), `unreadable` or `gone` (drop the reader). Columns are
    views that `numpy.asarray` takes without a copy.
    """

    __slots__ = ("status", "reason", "readable", "lost", "full", "kinds", "values", "timestamps_us", "_reader")

    def __init__(self, reader: Reader) -> None:
        poll = reader._native.read()
        self.status: str = poll.status
        self.reason: Optional[str] = poll.reason
        self.readable: int = poll.readable
        self.lost: int = poll.lost
        self.full: bool = poll.full
        #: Numbers of kinds: see `Reader.kind`.
        self.kinds: memoryview[int] = memoryview(poll.kinds).cast("H")
        self.values: memoryview[int] = memoryview(poll.values).cast("Q")
        #: Empty but for version 1.
        self.timestamps_us: memoryview[int] = memoryview(poll.timestamps_us).cast("Q")
        self._reader = reader

    def __len__(self) -> int:
        return len(self.kinds)

    def __iter__(self) -> Iterator[Event]:
        times: Iterator[Optional[int]] = iter(self.timestamps_us)
        for number, value in zip(self.kinds, self.values):
            kind = self._reader.kind(number)
            yield Event(kind.name, value, kind.unit, kind.category, kind.status, next(times, None))


class Reader:
    """A ring that is open for reading.

    With ``consume`` it takes NIXL's place for a consumer (one a ring, by an advisory lock; while another
    holds it, `mode` is `peek_locked` and nothing is handed back). Raises `PermissionError` with the uid that would
    do, `ValueError` if the file is not a ring, `OSError` otherwise.
    """

    def __init__(
        self, path: Union[str, os.PathLike[str]], *, consume: bool = True, max_events: int = MAX_EVENTS
    ) -> None:
        self.path = os.fspath(path)
        self._native: RingReader = RingReader(self.path, consume, max_events)
        self._kinds: list[Kind] = []

    def read(self) -> Batch:
        """Copies out what waits. Without `commit` the next read begins with the same events."""
        return Batch(self)

    def commit(self) -> bool:
        """Moves past the events of the last read; false if the ring was restarted meanwhile."""
        return self._native.commit()

    def drain(self) -> Iterator[Event]:
        """The events that wait; each batch is committed when its last event has been taken."""
        while batch := self.read():
            yield from batch
            self.commit()

    def try_consume(self) -> bool:
        """Tries again to become the consumer; true if it is now."""
        return self._native.try_consume()

    def kind(self, number: int) -> Kind:
        """The meaning of the kinds in a batch's `kinds`. Numbers keep their meaning as long as the reader lives."""
        if number >= len(self._kinds):
            self._kinds = [Kind(*row) for row in self._native.names()]
        return self._kinds[number]

    @property
    def stats(self) -> Stats:
        """Totals since it was opened."""
        return Stats(*self._native.stats())

    @property
    def version(self) -> str:
        """The layout: `1`, `2a`, `2b`, `3`, `4` or `5`."""
        return self._native.geometry()[0]

    @property
    def capacity(self) -> int:
        """Slots; one less fit."""
        return self._native.geometry()[1]

    @property
    def mode(self) -> str:
        """`consume`, `peek` or `peek_locked`."""
        return self._native.geometry()[2]

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def close(self) -> None:
        """Gives the ring up, and the lock with it. The reader is of no use after."""
        del self._native


def inspect(path: Union[str, os.PathLike[str]]) -> Inspection:
    """Looks at a file without opening it as a ring: nothing is locked or moved."""
    found = inspect_ring(os.fspath(path))
    fields = Inspection.__dataclass_fields__
    return Inspection(**{name: getattr(found, name) for name in fields})


class StoreIdentity(NamedTuple):
    """Whose store it is: `pid` in the agent's own namespace, `instance` which agent of the process."""

    pid: int
    instance: int
    agent_name: str
    hostname: str
    local_rank: Optional[str]
    owner_uid: int


class Store:
    """The totals of an agent (`NIXL_TELEMETRY_EXPORTER=prometheus_mp`), read without its lock.

    Raises `PermissionError` if it is another user's, `ValueError` if the file is not a store, `OSError` otherwise.
    """

    def __init__(self, path: Union[str, os.PathLike[str]]) -> None:
        self.path = os.fspath(path)
        self._native = NixlStore(self.path)
        self.identity = StoreIdentity(*self._native.identity())

    def totals(self) -> dict[str, NixlTotal]:
        """The totals until now, by the event's name; `ValueError` if it is not a store any more."""
        return {total.name: total for total in self._native.totals()[1]}

    @property
    def last_update_ns(self) -> int:
        """When it was last updated: `CLOCK_MONOTONIC` of the agent's host. A store that moves is alive."""
        return self._native.totals()[0]

    def alive(self) -> bool:
        """Whether the agent lives; looked up by its lock."""
        return self._native.alive()


def stores(directory: Union[str, os.PathLike[str]]) -> list[Store]:
    """The stores of a directory; files that are none, or are just being made, are skipped."""
    found = []
    for name in sorted(os.listdir(directory)):
        if NixlStore.is_name(name):
            try:
                found.append(Store(os.path.join(directory, name)))
            except (OSError, ValueError):
                continue
    return found
