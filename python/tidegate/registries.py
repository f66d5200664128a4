# SPDX-License-Identifier: Apache-2.0
"""Registries of the SDK: who reads what is recorded. The same component code runs against each of them."""

from __future__ import annotations

import atexit
import os
from contextlib import contextmanager, nullcontext
from typing import Any, Iterator, Mapping, Optional, Sequence, TypeVar, Union

from tidegate import _tidegate as native, trace
from tidegate._report import LOGGER
from tidegate.composites import Composite
from tidegate.instruments import Instrument

__all__ = ["Fanout", "Foreign", "Null", "Otel", "Prometheus", "QueryAnswer", "Registry", "Shm"]

_I = TypeVar("_I", bound=Instrument)

#: The result of `Registry.query`: a number, a text, a vector or a range.
QueryAnswer = Union[
    float,
    str,
    list[tuple[dict[str, str], float]],
    list[tuple[dict[str, str], list[tuple[float, float]]]],
]

#: Servers run until they are closed, also where the program keeps no reference.
_SERVING: list[native.Server] = []


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
        across: Optional[str] = None,
        across_quantile: Optional[float] = None,
    ) -> Composite:
        """A statistic of instruments over a window of seconds, by groups of labels.

        `function`: `min`, `avg`, `max`, `sum`, `count`, `rate`, `last`; without, the mean, and of counters the rate.
        `across`: how the series of a group become one value: `sum`, `avg`, `min`, `max`, `count`, `quantile` (of the rank
        `across_quantile`); or `pool`: the function sees the values of all series, which is the default and not for gauges.
        """
        instruments = (of,) if isinstance(of, Instrument) else tuple(of)

        def build(is_absent: bool) -> native.Composite:
            sources = native.Sources(name, window, list(by), function, list(quantiles), across, across_quantile)
            for instrument in instruments:
                instrument._add_to(sources)  # type: ignore[attr-defined]
            return sources.build(is_absent)

        return Composite(build)

    def record(self, every: float = 0.5, keep: float = 300.0) -> None:
        """Begins to keep samples for `query`: one in `every` seconds, for `keep` seconds. The first query does, too."""
        self._native.record(every, keep)

    def query(self, query: str) -> QueryAnswer:
        """The value of a PromQL query now, by the names of the page; `ValueError` for a query that has none.

        A number, a text, a list of `(labels, value)`, or for a range a list of `(labels, [(seconds, value), ...])`.
        """
        return self._native.query(query)

    def flush(self, within: float = 5.0) -> None:
        """Gets out what was recorded until now; seconds."""
        self._native.flush(within)

    def shutdown(self, within: float = 5.0) -> None:
        """Gets out what was recorded until now, and stops; `OSError` if it did not get out. Seconds."""
        self._native.shutdown(within)

    @contextmanager
    def span(self, name: str, parent: Optional[native.TraceContext] = None, **attributes: object) -> Iterator[native.Span]:
        """Makes a span of a block: it ends with the block, and is the current span (`tidegate.trace.current`) within.

        Its parent is the current span unless given. An exception that leaves the block makes it a failed one. Spans go
        where the values go: of registries that do not push OTLP they go nowhere.
        """
        span = self._native._span(name, parent or trace.current())
        for key, value in attributes.items():
            span.set(key, value)
        context = span.context
        try:
            with trace.within(context) if context else nullcontext():
                yield span
        except BaseException as error:
            span.fail(f"{type(error).__name__}: {error}")
            raise
        finally:
            span._end()

    def serve(self, port: int, addr: str = "127.0.0.1") -> native.Server:
        """Serves `/metrics`, `/health` and `/live` on a thread of its own; `OSError` if the address is taken.

        Port 0 takes any free one: `server.address` has it. `/health` answers 200 while `server.health` is ready, else
        503; any other path is 404. It serves until `server.close()` or the end of the program.
        """
        server = self._native._serve(addr, port)
        _SERVING.append(server)
        return server

    def __repr__(self) -> str:
        return f"<tidegate.{type(self).__name__}>"


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


class Otel(Registry):
    """Values in memory, pushed to an OpenTelemetry collector: every so often, when asked to, and at the end.

    What is not said here is as the environment variables of OpenTelemetry say (`OTEL_EXPORTER_OTLP_ENDPOINT` and so on),
    else gRPC to 127.0.0.1:4317 once a minute. `protocol`: `grpc` or `http/protobuf`; `temporality`: `cumulative` or
    `delta`; seconds. It pushes until `shutdown` or the end of the program, from the process that made it: a child of
    `fork` makes its own.
    """

    def __init__(
        self,
        endpoint: Optional[str] = None,
        *,
        protocol: Optional[str] = None,
        temporality: Optional[str] = None,
        interval: Optional[float] = None,
        timeout: Optional[float] = None,
        headers: Optional[Mapping[str, str]] = None,
        resource: Optional[Mapping[str, str]] = None,
    ) -> None:
        options = {
            "endpoint": endpoint,
            "protocol": protocol,
            "temporality": temporality,
            "interval": interval,
            "timeout": timeout,
            "headers": list((headers or {}).items()),
            "resource": list((resource or {}).items()),
        }
        super().__init__(native.Registry._otel(options))
        self._process = os.getpid()
        atexit.register(self._end)

    @property
    def failed_pushes(self) -> int:
        """Pushes that failed. The next one that does not carries what they should have."""
        return self._native.push_failures()[0]

    @property
    def rejected_points(self) -> int:
        """Points that the collector took notice of and refused."""
        return self._native.push_failures()[1]

    def shutdown(self, within: float = 5.0) -> None:
        """Gets out what was recorded until now, and stops; `OSError` if it did not get out. Seconds."""
        atexit.unregister(self._end)
        super().shutdown(within)

    def _end(self) -> None:
        if self._process != os.getpid():
            return
        try:
            super().shutdown()
        except OSError as error:
            LOGGER.warning("the last recorded values were not exported: %s", error)


class Foreign(Registry):
    """Values in memory, and passed on to code in another language: a capsule named `tidegate.ForeignVtable`.

    It points to the table of functions that docs/sdk.md describes, which another extension hands over. `ValueError` if it
    is another capsule.
    """

    def __init__(self, capsule: object) -> None:
        super().__init__(native.Registry._foreign(capsule))


class Null(Registry):
    """Keeps nothing, for the price of nothing."""

    def __init__(self) -> None:
        super().__init__(native.Registry._null())


class Fanout(Registry):
    """Passes everything on to several; reading shows the first that keeps values."""

    def __init__(self, registries: Sequence[Registry]) -> None:
        super().__init__(native.Registry._fanout([registry._native for registry in registries]))
