# SPDX-License-Identifier: Apache-2.0
"""OpenTelemetry collectors to push to: gRPC or HTTP, made of OpenTelemetry's own Python packages."""

from __future__ import annotations

import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as service
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as stubs
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_service
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_stubs


class Collector:
    """The contents of all pushes."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.traces: list[Any] = []
        #: Points of each push to refuse.
        self.rejects = 0
        self.address = ""

    def took(self, request: Any, headers: dict[str, str]) -> Any:
        self.requests.append(request)
        self.headers.append(headers)
        answer = service.ExportMetricsServiceResponse()
        answer.partial_success.rejected_data_points = self.rejects
        return answer

    def spans(self) -> dict[str, Any]:
        """The spans of all pushes by name."""
        scopes = (scope for request in self.traces for resource in request.resource_spans for scope in resource.scope_spans)
        return {span.name: span for scope in scopes for span in scope.spans}

    def metrics(self) -> dict[str, Any]:
        """The metrics of the newest push by name."""
        (resource,) = self.requests[-1].resource_metrics
        return {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}

    def resource(self) -> dict[str, str]:
        """The attributes of the newest push's resource."""
        (resource,) = self.requests[-1].resource_metrics
        return _texts(resource.resource.attributes)

    def values(self) -> dict[tuple[str, str], Any]:
        """As `component.values` has them."""
        found = {}
        for name, metric in self.metrics().items():
            for point in getattr(metric, metric.WhichOneof("data")).data_points:
                labels = _texts(point.attributes)
                assert labels["model"] == "llama"
                found[(name, labels.get("status", ""))] = _value(point)
        return found

    def close(self) -> None:
        raise NotImplementedError


def _texts(attributes: Any) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in attributes}


def _value(point: Any) -> Any:
    if hasattr(point, "as_int"):
        return point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
    return point.count, point.sum


class Grpc(Collector):
    """Takes pushes over gRPC."""

    def __init__(self) -> None:
        super().__init__()
        outer = self

        class Service(stubs.MetricsServiceServicer):  # type: ignore[misc]
            def Export(self, request: Any, context: Any) -> Any:
                return outer.took(request, dict(context.invocation_metadata()))

        self._server = grpc.server(futures.ThreadPoolExecutor(2))
        stubs.add_MetricsServiceServicer_to_server(Service(), self._server)

        class Traces(trace_stubs.TraceServiceServicer):  # type: ignore[misc]
            def Export(self, request: Any, context: Any) -> Any:
                outer.traces.append(request)
                return trace_service.ExportTraceServiceResponse()

        trace_stubs.add_TraceServiceServicer_to_server(Traces(), self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def close(self) -> None:
        self._server.stop(0).wait()


class Http(Collector):
    """Takes pushes over HTTP."""

    def __init__(self) -> None:
        super().__init__()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.headers["content-type"] == "application/x-protobuf"
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.path == "/v1/traces":
                    outer.traces.append(trace_service.ExportTraceServiceRequest.FromString(body))
                    answer = trace_service.ExportTraceServiceResponse().SerializeToString()
                else:
                    assert self.path == "/v1/metrics"
                    request = service.ExportMetricsServiceRequest.FromString(body)
                    answer = outer.took(request, dict(self.headers)).SerializeToString()
                self.send_response(200)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                """Does not log pushes."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
