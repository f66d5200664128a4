#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pushes known metrics, spans or log records with the OpenTelemetry SDK and prints what they were.

    otel_push.py --protocol grpc --endpoint 127.0.0.1:4317
    otel_push.py --protocol http --endpoint http://127.0.0.1:4318 --signal traces

Standard output is one line of JSON. For metrics, with cumulative or delta values as pushed last:

    {"signal": "metrics", "requests": 1, "resource": {..}, "scope": "otel_push", "metrics": [
        {"name", "unit", "kind": "counter" | "up_down_counter" | "gauge" | "histogram",
         "points": [{"attributes": {..}, "value": 1}
                    or {"attributes", "count", "sum", "min", "max", "bounds", "bucket_counts"}]}]}

For traces a list "spans", for logs a list "records". "requests" counts export calls. Exit status 1
if the endpoint didn't accept one.
"""

import argparse
import importlib
import json
import math
import sys

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk import metrics as sdk
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Status, StatusCode

SCOPE = "otel_push"
BOUNDS = [1.0, 10.0, 100.0]
CHAT, EMBED = {"model": "llama", "route": "/v1/chat"}, {"model": "bert", "route": "/v1/embed"}
TIMEOUT_S = 10

# The measurements that each flush adds to counters and histograms, and that it sets gauges to.
COUNTS = [(CHAT, 3), (EMBED, 4), (CHAT, 5)]
BYTES = [(CHAT, 1024.5), (EMBED, 0.25)]
QUEUE = [(CHAT, 7), (EMBED, 2), (CHAT, -4)]
TEMPERATURE = [({"gpu": "0"}, 61.5), ({"gpu": "1"}, -3.0), ({"gpu": "0"}, 62.25)]
LATENCY = [(CHAT, 0.5), (CHAT, 10.0), (CHAT, 99.0), (CHAT, 1000.0), (EMBED, 5.0)]


def exporter_class(protocol, signal):
    module, name = {
        "metrics": ("metric_exporter", "OTLPMetricExporter"),
        "traces": ("trace_exporter", "OTLPSpanExporter"),
        "logs": ("_log_exporter", "OTLPLogExporter"),
    }[signal]
    package = f"opentelemetry.exporter.otlp.proto.{protocol}"
    return getattr(importlib.import_module(f"{package}.{module}"), name)


def temporality(name):
    """The preference of the OTLP exporter's specification; up-down counters stay cumulative."""
    chosen = AggregationTemporality[name.upper()]
    monotonic = (sdk.Counter, sdk.Histogram, sdk.ObservableCounter)
    return {instrument: chosen for instrument in monotonic}


def compression(options):
    if options.protocol == "grpc":
        from grpc import Compression

        return {"none": Compression.NoCompression, "gzip": Compression.Gzip}[options.compression]
    from opentelemetry.exporter.otlp.proto.http import Compression

    return {"none": Compression.NoCompression, "gzip": Compression.Gzip}[options.compression]


class Push:
    """An exporter that counts its calls and the refusals, which the SDK only logs."""

    def __init__(self, options):
        endpoint = {"endpoint": options.endpoint, "insecure": True}
        if options.protocol == "http":
            endpoint = {"endpoint": f"{options.endpoint}/v1/{options.signal}"}
        if options.signal == "metrics":
            endpoint["preferred_temporality"] = temporality(options.temporality)
        self.exporter = exporter_class(options.protocol, options.signal)(
            **endpoint,
            compression=compression(options),
            headers=dict(header.split("=", 1) for header in options.header),
            timeout=TIMEOUT_S,
        )
        self.requests, self.refused = 0, 0
        self.send, self.exporter.export = self.exporter.export, self.export

    def export(self, *args, **kwargs):
        result = self.send(*args, **kwargs)
        self.requests += 1
        self.refused += result.name != "SUCCESS"
        return result


def sums(measurements, times):
    totals = {}
    for attributes, value in measurements * times:
        key = tuple(attributes.items())
        totals[key] = totals.get(key, 0) + value
    return [{"attributes": dict(key), "value": value} for key, value in totals.items()]


def lasts(measurements):
    values = {tuple(attributes.items()): value for attributes, value in measurements}
    return [{"attributes": dict(key), "value": value} for key, value in values.items()]


def histograms(measurements, times):
    values = {}
    for attributes, value in measurements * times:
        values.setdefault(tuple(attributes.items()), []).append(value)
    return [{"attributes": dict(key), **histogram(seen)} for key, seen in values.items()]


def histogram(values):
    edges = [-math.inf, *BOUNDS, math.inf]
    counts = [sum(low < value <= high for value in values) for low, high in zip(edges, edges[1:])]
    return {
        "count": len(values),
        "sum": sum(values),
        "min": min(values),
        "max": max(values),
        "bounds": BOUNDS,
        "bucket_counts": counts,
    }


def push_metrics(push, resource, options):
    reader = PeriodicExportingMetricReader(push.exporter, export_interval_millis=math.inf)
    provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    meter = provider.get_meter(SCOPE, "1.2.3")
    counter = meter.create_counter("push.requests", "1", "Requests that were answered")
    volume = meter.create_counter("push.volume", "By", "Bytes that were moved")
    queue = meter.create_up_down_counter("push.queue", "{item}", "Requests that wait")
    temperature = meter.create_gauge("push.temperature", "Cel", "Warmth of a device")
    latency = meter.create_histogram(
        "push.latency", "ms", "Time to answer", explicit_bucket_boundaries_advisory=BOUNDS
    )
    plan = [
        (counter.add, COUNTS),
        (volume.add, BYTES),
        (queue.add, QUEUE),
        (temperature.set, TEMPERATURE),
        (latency.record, LATENCY),
    ]
    for _ in range(options.flushes):
        for act, measurements in plan:
            for attributes, value in measurements:
                act(value, attributes)
        provider.force_flush()
    times = options.flushes if options.temporality == "cumulative" else 1
    rows = [
        ("push.requests", "1", "counter", sums(COUNTS, times)),
        ("push.volume", "By", "counter", sums(BYTES, times)),
        ("push.queue", "{item}", "up_down_counter", sums(QUEUE, options.flushes)),
        ("push.temperature", "Cel", "gauge", lasts(TEMPERATURE)),
        ("push.latency", "ms", "histogram", histograms(LATENCY, times)),
    ]
    return {"metrics": [dict(zip(("name", "unit", "kind", "points"), row)) for row in rows]}


def push_traces(push, resource, options):
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(push.exporter))
    tracer = provider.get_tracer(SCOPE, "1.2.3")
    spans = []
    for index in range(options.flushes):
        attributes = {"index": index, "model": "llama"}
        with tracer.start_as_current_span(f"answer {index}", attributes=attributes) as span:
            span.add_event("first token", {"index": index})
            span.set_status(Status(StatusCode.ERROR, "too slow"))
        context = span.get_span_context()
        spans.append(
            {
                "name": f"answer {index}",
                "trace_id": f"{context.trace_id:032x}",
                "span_id": f"{context.span_id:016x}",
                "attributes": attributes,
                "events": ["first token"],
                "status": "too slow",
            }
        )
    return {"spans": spans}


def push_logs(push, resource, options):
    provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(push.exporter))
    logger = provider.get_logger(SCOPE, "1.2.3")
    records = []
    for index in range(options.flushes):
        body, attributes = f"line {index}", {"index": index}
        record = LogRecord(
            timestamp=1_700_000_000_000_000_000 + index,
            severity_number=SeverityNumber.WARN,
            severity_text="WARN",
            body=body,
            attributes=attributes,
        )
        logger.emit(record)
        records.append({"body": body, "severity": "WARN", "attributes": attributes})
    return {"records": records}


PUSHES = {"metrics": push_metrics, "traces": push_traces, "logs": push_logs}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--protocol", choices=["grpc", "http"], required=True)
    parser.add_argument("--endpoint", required=True, help="HOST:PORT, or http://HOST:PORT for http")
    parser.add_argument("--signal", choices=PUSHES, default="metrics")
    parser.add_argument("--service", default="pusher", help="the resource's service.name")
    parser.add_argument("--flushes", type=int, default=1, help="rounds, a request (or more) each")
    parser.add_argument("--temporality", choices=["cumulative", "delta"], default="cumulative")
    parser.add_argument("--compression", choices=["none", "gzip"], default="none")
    parser.add_argument("--header", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()

    attributes = {"service.name": options.service, "service.instance.id": "pusher-1", "rank": 7}
    push = Push(options)
    pushed = PUSHES[options.signal](push, Resource(attributes), options)
    if push.refused or not push.requests:
        sys.exit(f"{push.refused} of {push.requests} requests were not accepted")
    report = {"signal": options.signal, "requests": push.requests, "resource": attributes}
    print(json.dumps({**report, "scope": SCOPE, **pushed}))


if __name__ == "__main__":
    main()
