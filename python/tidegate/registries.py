"""Registries of the SDK: who reads what is recorded. The same component code runs against each of them."""

from __future__ import annotations

import os
import threading
from typing import Any, AsyncIterator, Iterator, Mapping, Optional, Sequence, TypeVar, Union

from tidegate import _tidegate as native
from tidegate.instruments import Callback, Instrument

__all__ = ["Composite", "Fanout", "Null", "Prometheus", "Registry", "Shm", "Watch"]

_I = TypeVar("_I", bound=Instrument)

#: Seconds that a wait sleeps at most in one piece, so that it can be given up.
_PATIENCE = 0.25


class Watch:
    """What a composite says, whenever it says something new: for a `for` or an `async for`.

    Each item holds all groups. What comes while nobody waits is not kept: the next item is the newest.
    """

    def __init__(self, watcher: native.Watcher) -> None:
        self._watcher = watcher

    def next(self, timeout: float) -> Optional[list[native.Snapshot]]:
        """The next item, or None after so many seconds without."""
        return self._watcher.wait(timeout)

    def __iter__(self) -> Iterator[list[native.Snapshot]]:
        while True:
            news = self._watcher.wait(_PATIENCE)
            if news is not None:
                yield news

    async def __aiter__(self) -> AsyncIterator[list[native.Snapshot]]:
        import asyncio

        while True:
            news = await asyncio.to_thread(self._watcher.wait, _PATIENCE)
            if news is not None:
                yield news


class Composite:
    """Min, mean, max, sum, rate and quantiles of instruments over a window, at any instant.

    It sees what is recorded from its making on.
    """

    def __init__(self, composite: native.Composite) -> None:
        self._native = composite

    @property
    def name(self) -> str:
        """Its name."""
        return self._native.name

    def get(self, **labels: str) -> native.Snapshot:
        """What it says now about the group with these labels (`KeyError` if there is none), or about the first."""
        snapshot = self._native.get(list(labels.items()) if labels else None)
        if snapshot is None:
            raise KeyError(labels)
        return snapshot

    def all(self) -> list[native.Snapshot]:
        """What it says now about every group."""
        return self._native.all()

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
        """Calls back when a group's value crosses a threshold, moves so far or, without either, changes.

        On a thread of its own; what the callback raises is logged once and counted. Until the subscription is
        closed or collected. Seconds.
        """
        trigger = native.Trigger(
            above=above, below=below, moved=moved, hysteresis=hysteresis, min_interval=min_interval
        )
        return self._native.on_change(callback, trigger)

    def watch(self) -> Watch:
        """Waits for what it says next."""
        return Watch(self._native.watch())


class Registry:
    """Where instruments are registered, and what becomes of what they record.

    To register the same again gives the same series; `ValueError` if the name is something else already.
    """

    def __init__(self, registry: native.Registry) -> None:
        self._native = registry

    def register(self, instrument: _I, **labels: str) -> _I:
        """A live instrument of a declaration that has a `name`, with constant labels."""
        return instrument._registered(self._native, instrument.name, labels)

    def scope(
        self,
        prefix: str = "",
        *,
        namespace: Optional[str] = None,
        component: Optional[str] = None,
        endpoint: Optional[str] = None,
        **labels: str,
    ) -> Registry:
        """The same registry, with a prefix before all names and labels on all series.

        `namespace`, `component`, `endpoint` are the levels of Dynamo's hierarchy, as `dynamo_namespace` and so on.
        """
        pairs = list(labels.items())
        return Registry(self._native._scope(prefix, pairs, namespace, component, endpoint))

    def expose(self, openmetrics: bool = False) -> str:
        """All values as a page for Prometheus."""
        return self._native.expose(openmetrics)

    def gather(self) -> list[native.FamilyValues]:
        """All values, as a reader of this registry sees them."""
        return self._native.gather()

    def value(self, name: str, **labels: str) -> Any:
        """The value of one series, by the declared name; of histograms `(count, sum)`; None if there is none."""
        for family in self.gather():
            for own, value in family.series:
                if family.name == name and own == labels:
                    return value
        return None

    def composite(
        self,
        name: str,
        *,
        of: Union[Instrument, Sequence[Instrument]],
        window: float = 10.0,
        by: Sequence[str] = (),
        function: Optional[str] = None,
        quantiles: Sequence[float] = (),
    ) -> Composite:
        """What instruments say over a window of seconds, by groups of labels.

        `function`: `min`, `avg`, `max`, `sum`, `count`, `rate`, `last`; without, the mean, and of counters the rate.
        """
        sources = native.Sources(name, window, list(by), function, list(quantiles))
        for instrument in (of,) if isinstance(of, Instrument) else of:
            instrument._add_to(sources)  # type: ignore[attr-defined]
        return Composite(sources.build())

    def record(self, every: float = 0.5, keep: float = 300.0) -> None:
        """Begins to keep samples for `query`: one in `every` seconds, for `keep` seconds. The first query does, too."""
        self._native.record(every, keep)

    def query(self, query: str) -> Any:
        """The value of a PromQL query now, by the names of the page.

        A number, a text, a list of `(labels, value)`, or for a range a list of `(labels, [(seconds, value), ...])`.
        """
        return self._native.query(query)

    def flush(self, within: float = 5.0) -> None:
        """Gets out what was recorded until now; seconds."""
        self._native.flush(within)

    def serve(self, port: int, addr: str = "127.0.0.1") -> tuple[Any, threading.Thread]:
        """Serves the page at any path from a daemon thread; gives the server and the thread."""
        from tidegate._page import serve

        return serve(self.expose, port, addr)


class Prometheus(Registry):
    """Values in memory, for Prometheus to scrape."""

    def __init__(self, max_series: int = 2000) -> None:
        super().__init__(native.Registry._prometheus(max_series))


class Shm(Registry):
    """Values in a file of a directory that processes share; reading shows what all of them recorded.

    The directory is that of `TIDEGATE_CELLS_DIR` unless given; `resource` says what the process is.
    """

    def __init__(
        self,
        directory: Union[str, os.PathLike[str], None] = None,
        resource: Optional[Mapping[str, str]] = None,
    ) -> None:
        place = os.fspath(directory) if directory is not None else os.environ.get("TIDEGATE_CELLS_DIR")
        if not place:
            raise ValueError("no directory, and TIDEGATE_CELLS_DIR is not set")
        super().__init__(native.Registry._shm(place, list((resource or {}).items())))

    def fold(self, grace: float = 60.0) -> None:
        """Takes over what dead processes recorded; their files go after `grace` seconds."""
        self._native.fold(grace)


class Null(Registry):
    """Keeps nothing, for the price of nothing."""

    def __init__(self) -> None:
        super().__init__(native.Registry._null())


class Fanout(Registry):
    """Passes everything on to several; reading shows the first that keeps values."""

    def __init__(self, registries: Sequence[Registry]) -> None:
        super().__init__(native.Registry._fanout([registry._native for registry in registries]))
