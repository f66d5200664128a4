# SPDX-License-Identifier: Apache-2.0
"""W3C trace context in and out, and the exemplars that link metrics with spans."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from opentelemetry import trace as api
from opentelemetry.propagate import extract, inject
from opentelemetry.sdk.trace import TracerProvider, sampling
from otlp import Grpc, Http

from tidegate import Counter, Histogram, Otel, Prometheus, trace
from tidegate.trace import TraceContext

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
TRACER = TracerProvider().get_tracer("tests")


def test_headers_in_and_out() -> None:
    context = trace.extract({"traceparent": PARENT, "tracestate": "a=1,b=2"})
    assert context is not None
    assert (context.trace_id, context.span_id, context.is_sampled, context.state) == (TRACE, SPAN, True, "a=1,b=2")
    assert str(context) == PARENT and context == TraceContext(TRACE, SPAN, state="a=1,b=2")
    assert context != TraceContext(TRACE, SPAN) and len({context, TraceContext(TRACE, SPAN)}) == 2
    headers = {"Host": "h"}
    assert trace.inject(headers) is headers and headers == {"Host": "h"}
    with trace.within(context):
        assert trace.inject({}) == {"traceparent": PARENT, "tracestate": "a=1,b=2"}
        with trace.within(None):
            assert trace.current() is None
        assert trace.current() == context
    assert trace.current() is None
    assert trace.extract({"Traceparent": PARENT}) == TraceContext(TRACE, SPAN)


@pytest.mark.parametrize("parent", ["", "00", PARENT.upper(), PARENT + "-x", f"00-{'0' * 32}-{SPAN}-01"])
def test_what_is_no_context(parent: str) -> None:
    assert trace.extract({"traceparent": parent}) is None


def test_identifiers_are_checked() -> None:
    for identifiers in (("x", SPAN), (TRACE, "0" * 16), (TRACE, SPAN + "-01-x")):
        with pytest.raises(ValueError):
            TraceContext(*identifiers)
    assert str(TraceContext(TRACE, SPAN, is_sampled=False)).endswith("-00")


def test_tasks_have_contexts_of_their_own() -> None:
    async def task(number: int) -> str:
        with trace.within(TraceContext(TRACE, f"{number:016x}")):
            await asyncio.sleep(0.01)
            current = trace.current()
            assert current is not None
            return current.span_id

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*map(task, range(1, 9)))

    assert asyncio.run(all_of_them()) == [f"{number:016x}" for number in range(1, 9)]


def exemplars(page: str) -> list[tuple[str, str]]:
    found = []
    for line in page.splitlines():
        series, mark, exemplar = line.partition(" # ")
        if mark:
            found.append((series, exemplar.rpartition(" ")[0]))
    return found


def test_observations_remember_their_span() -> None:
    registry = Prometheus()
    latency = registry.register(Histogram("help", name="latency", buckets=[1, 2], exemplars=True))
    plain = registry.register(Histogram("help", name="plain", buckets=[1, 2]))
    counter = registry.register(Counter("help", name="c", labels=["l"], exemplars=True))
    latency.observe(0.25)
    with trace.within(TraceContext(TRACE, SPAN)):
        latency.observe(1.5)
        plain.observe(1.5)
        counter.labels("x").inc(2)
    with trace.within(TraceContext(TRACE, SPAN, is_sampled=False)):
        latency.observe(5)
    ids = f'{{span_id="{SPAN}",trace_id="{TRACE}"}}'
    assert exemplars(registry.expose(openmetrics=True)) == [
        ('c_total{l="x"} 2', f"{ids} 2"),
        ('latency_bucket{le="2.0"} 2', f"{ids} 1.5"),
    ]
    assert exemplars(registry.expose()) == []


def test_opentelemetrys_spans_count() -> None:
    registry = Prometheus()
    counter = registry.register(Counter("help", name="c", exemplars=True))
    with TRACER.start_as_current_span("work") as span:
        counter.inc()
        ids = span.get_span_context()
        current = trace.current()
        headers: dict[str, str] = {}
        inject(headers)
        assert trace.extract(headers) == current
        assert trace.extract(trace.inject({})) == current
    assert current is not None and current.span_id == f"{ids.span_id:016x}"
    ((_, exemplar),) = exemplars(registry.expose(openmetrics=True))
    assert exemplar == f'{{span_id="{ids.span_id:016x}",trace_id="{ids.trace_id:032x}"}} 1'


def test_opentelemetrys_spans_are_part_of_the_trace() -> None:
    context = TraceContext(TRACE, SPAN, state="a=1")
    with trace.within(context):
        assert trace.current() == context
        with TRACER.start_as_current_span("inner") as span:
            assert span.get_span_context().trace_id == int(TRACE, 16)
            assert span.parent.span_id == int(SPAN, 16)  # type: ignore[attr-defined]
            inner = trace.current()
            assert inner is not None and (inner.trace_id, inner.state) == (TRACE, "a=1") and inner != context
            with trace.within(None):
                assert trace.current() is None
    assert trace.current() is None
    remote = api.get_current_span(extract({"traceparent": PARENT})).get_span_context()
    with api.use_span(api.NonRecordingSpan(remote)):
        assert trace.current() == TraceContext(TRACE, SPAN)


def test_what_is_not_sampled_is_not_remembered() -> None:
    registry = Prometheus()
    counter = registry.register(Counter("help", name="c", exemplars=True))
    tracer = TracerProvider(sampler=sampling.ALWAYS_OFF).get_tracer("tests")
    with tracer.start_as_current_span("work"):
        counter.inc()
    assert exemplars(registry.expose(openmetrics=True)) == []


def test_exemplars_reach_a_collector() -> None:
    collector = Grpc()
    registry = Otel(f"http://{collector.address}", interval=3600)
    latency = registry.register(Histogram("help", name="latency", exemplars=True))
    with trace.within(TraceContext(TRACE, SPAN)):
        latency.observe(0.5)
    registry.shutdown()
    (point,) = collector.metrics()["latency"].histogram.data_points
    (exemplar,) = point.exemplars
    assert (exemplar.trace_id.hex(), exemplar.span_id.hex(), exemplar.as_double) == (TRACE, SPAN, 0.5)
    collector.close()


def test_threads_count_in_their_own_spans() -> None:
    registry = Prometheus()
    counter = registry.register(Counter("help", name="c", labels=["thread"], exemplars=True))

    def work(number: int) -> None:
        with trace.within(TraceContext(TRACE, f"{number:016x}")):
            for _ in range(200):
                counter.labels(number).inc()

    threads: list[Any] = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = exemplars(registry.expose(openmetrics=True))
    assert len(told) == 4
    for series, exemplar in told:
        number = int(series.split('"')[1])
        assert f'span_id="{number:016x}"' in exemplar


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_spans_of_a_registry_reach_its_collector(protocol: str) -> None:
    collector = Grpc() if protocol == "grpc" else Http()
    registry = Otel(
        f"http://{collector.address}",
        protocol="grpc" if protocol == "grpc" else "http/protobuf",
        interval=3600,
        resource={"service.name": "spanned"},
    )
    latency = registry.register(Histogram("help", name="latency", exemplars=True))
    remote = TraceContext(TRACE, SPAN)
    with registry.span("request", remote, model="llama") as request:
        assert trace.current() == request.context and request.context is not None
        latency.observe(0.5)
        with pytest.raises(KeyError), registry.span("lookup") as lookup:
            lookup.set("tokens", 12)
            raise KeyError("missing")
        headers = trace.inject({})
    assert trace.current() is None
    registry.shutdown()
    spans = collector.spans()
    assert sorted(spans) == ["lookup", "request"]
    outer, inner = spans["request"], spans["lookup"]
    assert (outer.trace_id.hex(), outer.parent_span_id.hex()) == (TRACE, SPAN)
    assert inner.parent_span_id == outer.span_id and outer.span_id.hex() in headers["traceparent"]
    assert [(pair.key, pair.value.string_value) for pair in outer.attributes] == [("model", "llama")]
    assert (inner.status.code, inner.status.message) == (2, "KeyError: 'missing'")
    ((span,), (metric,)) = (collector.traces[0].resource_spans, collector.requests[-1].resource_metrics)
    resources = [{pair.key: pair.value.string_value for pair in one.resource.attributes} for one in (span, metric)]
    assert resources[0] == resources[1] and resources[0]["service.name"] == "spanned", "values and spans are of one resource"
    (point,) = collector.metrics()["latency"].histogram.data_points
    assert point.exemplars[0].span_id == outer.span_id
    collector.close()


def test_spans_of_tasks_are_their_own() -> None:
    collector = Grpc()
    registry = Otel(f"http://{collector.address}", interval=3600)

    async def work(name: str) -> None:
        with registry.span(name):
            await asyncio.sleep(0.01)
            with registry.span(f"{name}.inner"):
                await asyncio.sleep(0.01)

    async def both() -> None:
        await asyncio.gather(work("a"), work("b"))

    asyncio.run(both())
    registry.shutdown()
    spans = collector.spans()
    for name in ("a", "b"):
        assert spans[f"{name}.inner"].parent_span_id == spans[name].span_id
    assert spans["a"].trace_id != spans["b"].trace_id
    collector.close()


def test_a_registry_without_a_way_for_spans_makes_none() -> None:
    registry = Prometheus()
    outside = TraceContext(TRACE, SPAN)
    with trace.within(outside), registry.span("request") as span:
        assert span.context is None and trace.current() == outside
        span.set("a", 1)
        span.fail("unknown")
