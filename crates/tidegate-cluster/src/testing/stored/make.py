#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the messages of version 1 of the format of a cluster. The encoder of OTLP is that of `opentelemetry-proto`.

Usage: make.py > version-1.txt. It needs the package `opentelemetry-proto` and the command `zstd`.
"""

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE as CUMULATIVE,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA as DELTA
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, ResourceMetrics, ScopeMetrics

NO_RECORDED_VALUE = 1
SCHEMA = "https://opentelemetry.io/schemas/1.38.0"


def value(what: Any) -> AnyValue:
    any_value = AnyValue()
    if isinstance(what, str):
        any_value.string_value = what
    elif isinstance(what, int):
        any_value.int_value = what
    else:
        any_value.array_value.values.extend(value(item) for item in what)
    return any_value


def attributes(pairs: dict[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=value(what)) for key, what in sorted(pairs.items())]


def scope_of(
    request: ExportMetricsServiceRequest, resource: dict[str, Any], schema: str, scope: dict[str, str] | None = None
) -> ScopeMetrics:
    """The only scope of a request."""
    resources: ResourceMetrics = request.resource_metrics.add(schema_url=schema)
    resources.resource.attributes.extend(attributes(resource | {"tidegate.producer": "node-1"}))
    scopes: ScopeMetrics = resources.scope_metrics.add()
    scopes.scope.SetInParent()
    if scope is not None:
        scopes.scope.name, scopes.scope.version = "vllm", "0.19"
        scopes.scope.attributes.extend(attributes(scope))
        scopes.schema_url = schema
    return scopes


def metric(scopes: ScopeMetrics, name: str, merge: str) -> Metric:
    metadata = attributes({"prometheus.type": "counter", "tidegate.merge": merge})
    one: Metric = scopes.metrics.add(name=name, description="d", unit="1", metadata=metadata)
    return one


def page() -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    scopes = scope_of(request, {"service.name": "s"}, "u")
    own = attributes({"k": "v"})
    counter = metric(scopes, "c", "add").sum
    counter.aggregation_temporality, counter.is_monotonic = CUMULATIVE, True
    counter.data_points.add(attributes=own, start_time_unix_nano=3, time_unix_nano=4, as_int=10)
    gauge = metric(scopes, "g", "max").gauge
    gauge.data_points.add(attributes=own, time_unix_nano=4, as_double=1.5)
    histogram = metric(scopes, "h", "add").histogram
    histogram.aggregation_temporality = CUMULATIVE
    histogram.data_points.add(
        attributes=own,
        start_time_unix_nano=3,
        time_unix_nano=4,
        count=3,
        sum=4.5,
        bucket_counts=[2, 1, 0],
        explicit_bounds=[1.0, 5.0],
        min=0.5,
        max=3.0,
    )
    ended = metric(scopes, "e", "last").gauge
    ended.data_points.add(attributes=own, time_unix_nano=4, flags=NO_RECORDED_VALUE)
    return request


def stream() -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    resource = {"service.name": "engine", "service.instance.id": "gpu-7"}
    scopes = scope_of(request, resource, SCHEMA, {"short_name": "v"})
    metadata = attributes({"tidegate.merge": "stream"})
    counter = scopes.metrics.add(name="requests", unit="{request}", metadata=metadata).sum
    counter.aggregation_temporality, counter.is_monotonic = CUMULATIVE, True
    own = attributes({"model": "llama", "rank": 3})
    counter.data_points.add(attributes=own, start_time_unix_nano=3, time_unix_nano=4, as_int=10)
    return request


def window() -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    metadata = attributes({"tidegate.merge": "window"})
    windows = scope_of(request, {}, "").metrics.add(name="p99", metadata=metadata).exponential_histogram
    windows.aggregation_temporality = DELTA
    for start, counts in [(10, [2]), (20, [])]:
        point = windows.data_points.add(
            attributes=attributes({"model": "m"}),
            start_time_unix_nano=start,
            time_unix_nano=start + 10,
            count=2,
            sum=2.5,
            min=1.0,
            max=1.5,
        )
        point.positive.SetInParent()
        point.negative.SetInParent()
        point.positive.bucket_counts.extend(counts)
    return request


def record() -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    total = metric(scope_of(request, {"service.name": "s"}, "u"), "c", "add").sum
    total.aggregation_temporality, total.is_monotonic = CUMULATIVE, True
    compacted = {"part": 0, "start": 1, "starts": [1, 2, -1], "runs": 9}
    first = {"k": "v"} | {f"tidegate.compacted.{key}": what for key, what in compacted.items()}
    total.data_points.add(attributes=attributes(first), start_time_unix_nano=1, time_unix_nano=2, as_int=4)
    second = attributes({"k": "v", "tidegate.compacted.part": 1})
    total.data_points.add(attributes=second, start_time_unix_nano=2, time_unix_nano=3, as_double=0.5)
    run = attributes({"k": "v", "tidegate.run.epoch": 5, "tidegate.run.sequence": 7})
    for start, count in [(7, 1), (8, 2)]:
        total.data_points.add(attributes=run, start_time_unix_nano=start, time_unix_nano=start + 1, as_int=count)
    return request


def headers(kind: str, sequence: int, epoch: int, rules: int) -> list[str]:
    return ["tg-v 1", f"tg-seq {sequence}", f"tg-epoch {epoch}", f"tg-kind {kind}", f"tg-rules {rules:016x}"]


def compressed(body: bytes) -> bytes:
    """The body as NATS carries it."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "body"
        path.write_bytes(body)
        return subprocess.run(["zstd", "-1", "--stdout", path], check=True, capture_output=True).stdout


def main() -> None:
    own = headers("page", 7, 5, 0xAB)
    messages = [
        ("page", "tg.c.p.00.node-1.5.1", [*own, "tg-interval 200"], page()),
        ("stream", "tg.c.p.00.node-1.5.2", own, stream()),
        ("window", "tg.c.p.00.node-1.5.3", own, window()),
        ("record", "tg.c.r.00.node-1", headers("retained", 0, 0, 0), record()),
    ]
    print("# Messages of version 1 of the format, by `make.py`. Stores of clusters have such ones: never change them.")
    for name, subject, lines, request in messages:
        body = request.SerializeToString(deterministic=True)
        print(f"message {name}", f"subject {subject}", *(f"header {line}" for line in lines), sep="\n")
        print(f"body {body.hex()}", f"zstd {compressed(body).hex()}", sep="\n")


if __name__ == "__main__":
    main()
