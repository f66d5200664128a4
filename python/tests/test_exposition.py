# SPDX-License-Identifier: Apache-2.0
"""The output of the process: the same bytes from prometheus_client and from the drop-in."""

from __future__ import annotations

import asyncio
import gzip
import http.server
import importlib
import re
import threading
import urllib.request
from pathlib import Path
from types import ModuleType
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest
from kit import CLIENTS, DROP_IN, REAL


def fill(client: ModuleType) -> Any:
    """A registry with one of everything, and text that needs escaping."""
    core = importlib.import_module(client.__name__ + ".core")
    registry = client.CollectorRegistry(target_info={"service": "x"})
    counter = client.Counter("c", "A\\co\nunt\"er", ["l"], registry=registry)
    counter.labels('v"a\\l\n').inc(3, {"trace_id": 'a"b\\c\n'})
    client.Gauge("g", "A gauge", unit="bytes", registry=registry).set(-1.5e9)
    client.Summary("s", "A summary", ["b", "a"], registry=registry).labels("2", "1").observe(1e7)
    histogram = client.Histogram("h", "A histogram", ["x"], registry=registry, buckets=(1e-5, 0.1, 1e6))
    for at in range(9):
        histogram.labels("y").observe(10.0 ** (at - 5), {"n": str(at)} if at % 4 == 0 else None)
    client.Info("i", "An info", registry=registry).info({"version": "1", "a": "b"})
    client.Enum("e", "An enum", states=["on", "off"], registry=registry).state("off")
    client.Counter("dotted.näme", "UTF-8", ["läbel", "a.b_c"], registry=registry).labels("x", "😀").inc()

    class Custom:
        def collect(self) -> Any:
            yield core.UnknownMetricFamily("u", "unknown", value=float("nan"))
            family = core.GaugeHistogramMetricFamily("gh", "gauge histogram", labels=["l"])
            family.add_metric(["x"], [("1.0", 4), ("+Inf", 5)], gsum_value=7, timestamp=core.Timestamp(12, 500))
            yield family
            yield core.HistogramMetricFamily("hf", "buckets", buckets=[("0", 1), ("+Inf", 3)], sum_value=2)
            yield core.HistogramMetricFamily("hn", "negative", buckets=[("-1", 1), ("+Inf", 3)], sum_value=2)
            yield core.SummaryMetricFamily("sf", "sums", count_value=1, sum_value=2)
            yield core.InfoMetricFamily("inf", "infos", value={"a": "b"})
            yield core.StateSetMetricFamily("st", "states", value={"b": True, "a": False})
            timed = core.CounterMetricFamily("cf", "timed", labels=["l"])
            exemplar = core.Exemplar({"e": "f"}, 0.5, 17.25)
            timed.add_metric(["x"], 1e-9, created=3, timestamp=5.25, exemplar=exemplar)
            yield timed
            native = core.Metric("nh", "native", "histogram")
            spans = [core.BucketSpan(0, 2), core.BucketSpan(3, 1)]
            value = core.NativeHistogram(9, 1.5, 3, 0.001, 2, spans, [core.BucketSpan(1, 1)], [1, 2, -1], [4], [exemplar])
            native.add_sample("nh", {"l": "x"}, 0, None, None, value)
            if self.with_native:
                yield native

        with_native = True

    custom = Custom()
    registry.register(custom)
    registry.custom = custom
    return registry


def steady(page: bytes) -> list[str]:
    """Lines, with the times of the moment taken out."""
    text = re.sub(r"1\.\d+e\+09|\b1[789]\d{8}(\.\d+)?\b", "NOW", page.decode())
    return text.splitlines()


ESCAPINGS = ["allow-utf-8", "underscores", "dots", "values"]


@pytest.mark.parametrize("escaping", ESCAPINGS)
def test_pages_are_the_same(escaping: str) -> None:
    pages = []
    for name in CLIENTS:
        client = importlib.import_module(name)
        registry = fill(client)
        registry.custom.with_native = False  # prometheus_client fails on them here
        pages.append(steady(client.generate_latest(registry, escaping)))
    assert pages[1] == pages[0]
    assert len(pages[0]) > 60


@pytest.mark.parametrize("version", ["1.0.0", "2.0.0"])
@pytest.mark.parametrize("escaping", ESCAPINGS[:3])
def test_openmetrics_pages_are_the_same(escaping: str, version: str) -> None:
    pages = []
    for name in CLIENTS:
        openmetrics = importlib.import_module(name + ".openmetrics.exposition")
        pages.append(steady(openmetrics.generate_latest(fill(importlib.import_module(name)), escaping, version)))
    assert pages[1] == pages[0]
    assert pages[0][-1] == "# EOF"


@pytest.mark.parametrize(
    "accept",
    [
        None,
        "",
        "text/plain",
        "*/*",
        "text/plain; version=0.0.4",
        "text/plain;version=1.0.0;escaping=allow-utf-8",
        "application/openmetrics-text",
        "application/openmetrics-text; version=0.0.1",
        "application/openmetrics-text; version=1.0.0; escaping=dots",
        "application/openmetrics-text; version=2.0.0; escaping=other",
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3",
        "application/vnd.google.protobuf, text/plain; version=1.0.0; escaping=values",
    ],
)
def test_the_same_encoder_is_chosen(accept: Any) -> None:
    chosen = []
    for name in CLIENTS:
        exposition = importlib.import_module(name + ".exposition")
        encoder, content_type = exposition.choose_encoder(accept)
        module = (encoder.func if hasattr(encoder, "func") else encoder).__module__
        chosen.append((module.removeprefix(name), getattr(encoder, "keywords", {}), content_type))
    assert chosen[1] == chosen[0]


def test_an_exemplar_out_of_place(client: ModuleType, part: Any) -> None:
    core, openmetrics = part("core"), part("openmetrics.exposition")
    registry = client.CollectorRegistry()
    metric = core.Metric("g", "help", "gauge")
    metric.add_sample("g", {}, 1, None, core.Exemplar({"a": "b"}, 1))
    registry.register(type("Custom", (), {"collect": lambda self: [metric]})())
    with pytest.raises(ValueError, match="Metric g has exemplars, but is not a histogram bucket or counter") as error:
        openmetrics.generate_latest(registry)
    assert error.value.args[-1] is metric


def get(url: str, **headers: str) -> Any:
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60)


def test_http_server(client: ModuleType, part: Any) -> None:
    registry = client.CollectorRegistry()
    client.Counter("c", "help", registry=registry).inc(3)
    client.Gauge("g", "help", registry=registry)
    server, thread = client.start_http_server(0, addr="127.0.0.1", registry=registry)
    try:
        url = f"http://127.0.0.1:{server.server_port}/"
        answer = get(url)
        assert b"c_total 3.0\n" in answer.read()
        assert answer.headers["Content-Type"] == client.CONTENT_TYPE_PLAIN_0_0_4
        assert get(url + "metrics?name[]=g").read() == b"# HELP g help\n# TYPE g gauge\ng 0.0\n"
        packed = get(url, **{"Accept-Encoding": "gzip"})
        assert packed.headers["Content-Encoding"] == "gzip"
        assert b"c_total" in gzip.decompress(packed.read())
        modern = get(url, Accept="application/openmetrics-text; version=1.0.0")
        assert modern.read().endswith(b"# EOF\n")
        with pytest.raises(urllib.error.HTTPError, match="405"):
            urllib.request.urlopen(urllib.request.Request(url, method="POST", data=b""), timeout=60)
        assert get(url + "favicon.ico").read() == b""
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_metrics_handler(client: ModuleType) -> None:
    registry = client.CollectorRegistry()
    client.Counter("c", "help", registry=registry).inc(2)
    handler = client.MetricsHandler.factory(registry)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert b"c_total 2.0\n" in get(f"http://127.0.0.1:{server.server_port}/metrics").read()
        server.shutdown()


def test_wsgi_app(client: ModuleType) -> None:
    registry = client.CollectorRegistry()
    client.Counter("c", "help", registry=registry)
    answers = {}
    for method in ("GET", "OPTIONS", "PUT"):
        environ: dict[str, Any] = {"REQUEST_METHOD": method, "PATH_INFO": "/x", "QUERY_STRING": ""}
        setup_testing_defaults(environ)
        got: list[Any] = []
        body = b"".join(client.make_wsgi_app(registry)(environ, lambda *answer: got.append(answer)))
        answers[method] = (*got[0], body)
    assert answers["GET"][0] == "200 OK" and b"c_total" in answers["GET"][2]
    assert answers["OPTIONS"] == ("200 OK", [("Allow", "OPTIONS,GET")], b"")
    assert answers["PUT"][2] == b"# HTTP 405 Method Not Allowed: PUT; use OPTIONS or GET\n"


def test_asgi_app(client: ModuleType) -> None:
    registry = client.CollectorRegistry()
    client.Counter("c", "help", registry=registry).inc()
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "query_string": b"", "headers": [(b"Accept-Encoding", b"br, gzip")]}
    asyncio.run(client.make_asgi_app(registry)(scope, receive, send))
    assert sent[0]["status"] == 200
    assert (b"Content-Encoding", b"gzip") in sent[0]["headers"]
    assert b"c_total 1.0\n" in gzip.decompress(sent[1]["body"])


class Gateway(http.server.BaseHTTPRequestHandler):
    """Keeps what is pushed."""

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name: self.headers.get(name) for name in ("Content-Type", "Content-Encoding", "Authorization")}
        self.server.pushed.append((self.command, self.path, headers, body))  # type: ignore[attr-defined]
        self.send_response(201)
        self.end_headers()

    do_POST = do_DELETE = do_PUT

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_what_is_pushed_is_the_same() -> None:
    pushed = []
    for name in CLIENTS:
        client = importlib.import_module(name)
        exposition = importlib.import_module(name + ".exposition")
        registry = client.CollectorRegistry()
        client.Gauge("g", "help", registry=registry).set(2)
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Gateway) as server:
            server.pushed = []  # type: ignore[attr-defined]
            threading.Thread(target=server.serve_forever, daemon=True).start()
            place = f"127.0.0.1:{server.server_port}"
            client.push_to_gateway(place, "my_job", registry)
            client.push_to_gateway(f"http://{place}/", "a/b", registry, {"b": "c d", "a": 9, "e": ""}, compression="gzip")
            client.pushadd_to_gateway(place, "j", registry, timeout=None)
            client.delete_from_gateway(place, "j", {"x": "ü&"})

            def signed(url: str, method: str, timeout: float, headers: Any, data: bytes) -> Any:
                return exposition.basic_auth_handler(url, method, timeout, headers, data, "user", "pass")

            client.push_to_gateway(place, "auth", registry, handler=signed)
            server.shutdown()
            pushed.append(server.pushed)  # type: ignore[attr-defined]
        with pytest.raises(ValueError, match="Unsupported compression type: lz4"):
            client.push_to_gateway(place, "j", registry, compression="lz4")
    for push in pushed:
        method, path, headers, body = push[1]
        push[1] = (method, path, headers, gzip.decompress(body))
    assert len(pushed[0]) == 5
    assert pushed[1] == pushed[0]


def test_instance_ip(client: ModuleType) -> None:
    assert client.instance_ip_grouping_key() == {"instance": "127.0.0.1"}


def test_textfile(client: ModuleType, tmp_path: Path) -> None:
    registry = client.CollectorRegistry()
    client.Gauge("g", "help", registry=registry).set(4)
    path = tmp_path / "metrics.prom"
    client.write_to_textfile(str(path), registry)
    assert path.read_bytes() == b"# HELP g help\n# TYPE g gauge\ng 4.0\n"
    broken = type("Broken", (), {"collect": lambda self: 1 / 0})()
    with pytest.raises(ZeroDivisionError):
        client.write_to_textfile(str(path), broken)
    assert [found.name for found in tmp_path.iterdir()] == ["metrics.prom"]


def test_the_same_names_are_there() -> None:
    real, ours = (importlib.import_module(name) for name in (REAL, DROP_IN))
    assert set(real.__all__) == set(ours.__all__)
    for module in ("core", "exposition"):
        real, ours = (importlib.import_module(f"{name}.{module}") for name in (REAL, DROP_IN))
        assert set(real.__all__) <= set(ours.__all__), module


@pytest.mark.parametrize("escaping", ["underscores", "values"])
def test_valid_names_stay_in_openmetrics(escaping: str) -> None:
    """prometheus_client writes `vllm:x_y` as `vllm_x_y` or `U__vllm_3a_x__y` here, below a `# TYPE` of `vllm:x_y`."""
    client = importlib.import_module(DROP_IN)
    openmetrics = importlib.import_module(DROP_IN + ".openmetrics.exposition")
    registry = client.CollectorRegistry()
    client.Gauge("vllm:x_y", "help", registry=registry).set(1)
    page = b"# HELP vllm:x_y help\n# TYPE vllm:x_y gauge\nvllm:x_y 1.0\n# EOF\n"
    assert openmetrics.generate_latest(registry, escaping) == page
