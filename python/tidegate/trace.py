# SPDX-License-Identifier: Apache-2.0
"""Spans: W3C trace context in and out of requests, and observations that remember the span that they were made in.

    with trace.within(trace.extract(request.headers)):      # in
        latency.observe(0.2)                                # declared with `exemplars=True` it remembers the span
        call(elsewhere, headers=trace.inject({}))           # out

Spans themselves are OpenTelemetry's: where its API is in use, its current span is the current one here, and `within`
makes its spans part of the trace.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, ContextManager, Iterator, Mapping, MutableMapping, Optional, TypeVar, cast

from tidegate._tidegate import TraceContext, set_span_source

__all__ = ["TraceContext", "current", "extract", "inject", "within"]

_Headers = TypeVar("_Headers", bound=MutableMapping[str, str])

_current: ContextVar[Optional[TraceContext]] = ContextVar("tidegate_trace", default=None)


def extract(headers: Mapping[str, str]) -> Optional[TraceContext]:
    """The span that a request comes from, by its headers; None if they name none.

    Names are looked for as they are written in the specification, and then in any case.
    """
    parent, state = headers.get("traceparent"), headers.get("tracestate")
    if parent is None:
        lower = {name.lower(): value for name, value in headers.items()}
        parent, state = lower.get("traceparent"), lower.get("tracestate")
    return TraceContext._extract(parent, state)


def inject(headers: _Headers, context: Optional[TraceContext] = None) -> _Headers:
    """Adds what names the span (the current one, unless given) to the headers of a request, and gives them back."""
    context = context or current()
    if context is not None:
        headers.update(context.headers())
    return headers


@contextmanager
def within(context: Optional[TraceContext]) -> Iterator[None]:
    """Has a block belong to a span of elsewhere; with None, to none. Tasks that are begun in it are part of it."""
    token = _current.set(context)
    try:
        with _within_otel(context):
            yield
    finally:
        _current.reset(token)


def current() -> Optional[TraceContext]:
    """The span that this thread or task is in: OpenTelemetry's, else that of `within`."""
    return _of_otel() or _current.get()


def _otel() -> Any:
    """OpenTelemetry's API, if the program has imported it: other programs have no spans."""
    return sys.modules.get("opentelemetry.trace")


def _of_otel() -> Optional[TraceContext]:
    api = _otel()
    span = api.get_current_span().get_span_context() if api else None
    if span is None or not span.is_valid:
        return None
    return TraceContext(
        f"{span.trace_id:032x}",
        f"{span.span_id:016x}",
        is_sampled=span.trace_flags.sampled,
        state=span.trace_state.to_header(),
    )


def _within_otel(context: Optional[TraceContext]) -> ContextManager[Any]:
    api = _otel()
    if api is None:
        return nullcontext()
    if context is None:
        return cast(ContextManager[Any], api.use_span(api.INVALID_SPAN))
    span = api.SpanContext(
        int(context.trace_id, 16),
        int(context.span_id, 16),
        is_remote=True,
        trace_flags=api.TraceFlags(api.TraceFlags.SAMPLED if context.is_sampled else api.TraceFlags.DEFAULT),
        trace_state=api.TraceState.from_header([context.state]),
    )
    return cast(ContextManager[Any], api.use_span(api.NonRecordingSpan(span)))


set_span_source(current)
