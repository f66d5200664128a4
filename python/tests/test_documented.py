# SPDX-License-Identifier: Apache-2.0
"""The examples of prometheus_client's documentation, on both clients."""

from __future__ import annotations

import time
import urllib.request
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def registry(client: ModuleType) -> Any:
    return client.CollectorRegistry()


def test_three_step_demo(client: ModuleType, registry: Any) -> None:
    request_time = client.Summary(
        "request_processing_seconds", "Time spent processing request", registry=registry
    )

    @request_time.time()
    def process_request(seconds: float) -> None:
        time.sleep(seconds)

    server, _ = client.start_http_server(0, registry=registry)
    for _ in range(3):
        process_request(0.003)
    page = urllib.request.urlopen(f"http://localhost:{server.server_port}", timeout=60).read().decode()
    server.shutdown()
    server.server_close()
    assert "request_processing_seconds_count 3.0\n" in page
    total = registry.get_sample_value("request_processing_seconds_sum")
    assert 0.009 <= total < 60


def test_counter_page(client: ModuleType, registry: Any) -> None:
    c = client.Counter("my_failures", "Description of counter", registry=registry)
    c.inc()
    c.inc(1.6)

    @c.count_exceptions()
    def f() -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        f()
    with c.count_exceptions():
        pass
    with pytest.raises(ValueError), c.count_exceptions(ValueError):
        raise ValueError
    assert registry.get_sample_value("my_failures_total") == pytest.approx(4.6)


def test_gauge_page(client: ModuleType, registry: Any) -> None:
    g = client.Gauge("my_inprogress_requests", "Description of gauge", registry=registry)
    g.inc()
    g.dec(10)
    g.set(4.2)
    g.set_to_current_time()

    @g.track_inprogress()
    def f() -> None:
        pass

    f()
    with g.track_inprogress():
        pass
    d = client.Gauge("data_objects", "Number of objects", registry=registry)
    my_dict = {1: 2}
    d.set_function(lambda: len(my_dict))
    assert registry.get_sample_value("data_objects") == 1


def test_summary_and_histogram_pages(client: ModuleType, registry: Any) -> None:
    s = client.Summary("request_latency_seconds", "Description of summary", registry=registry)
    s.observe(4.7)
    h = client.Histogram("request_duration_seconds", "Description of histogram", registry=registry)
    h.observe(4.7)
    for metric in (s, h):

        @metric.time()
        def f() -> None:
            pass

        f()
        with metric.time():
            pass
    assert registry.get_sample_value("request_latency_seconds_count") == 3
    assert registry.get_sample_value("request_duration_seconds_bucket", {"le": "5.0"}) == 3


def test_info_and_enum_pages(client: ModuleType, registry: Any) -> None:
    i = client.Info("my_build_version", "Description of info", registry=registry)
    i.info({"version": "1.2.3", "buildhost": "foo@bar"})
    e = client.Enum(
        "my_task_state", "Description of enum", states=["starting", "running", "stopped"], registry=registry
    )
    e.state("running")
    labels = {"version": "1.2.3", "buildhost": "foo@bar"}
    assert registry.get_sample_value("my_build_version_info", labels) == 1
    assert registry.get_sample_value("my_task_state", {"my_task_state": "running"}) == 1


def test_labels_page(client: ModuleType, registry: Any) -> None:
    c = client.Counter("my_requests_total", "HTTP Failures", ["method", "endpoint"], registry=registry)
    c.labels("get", "/").inc()
    c.labels("post", "/submit").inc()
    c.labels(method="get", endpoint="/").inc()
    c.labels(method="post", endpoint="/submit").inc()
    c.labels("get", "/initialised")
    value = lambda *labels: registry.get_sample_value("my_requests_total", dict(zip(("method", "endpoint"), labels)))  # noqa: E731
    assert (value("get", "/"), value("post", "/submit"), value("get", "/initialised")) == (2, 2, 0)


def test_exemplars_page(client: ModuleType, part: Any, registry: Any) -> None:
    c = client.Counter("my_requests_total", "HTTP Failures", ["method", "endpoint"], registry=registry)
    c.labels("get", "/").inc(exemplar={"trace_id": "abc123"})
    h = client.Histogram("request_latency_seconds", "Description of histogram", registry=registry)
    h.observe(4.7, {"trace_id": "abc123"})
    page = part("openmetrics.exposition").generate_latest(registry).decode()
    assert page.count('# {trace_id="abc123"} ') == 2


def test_custom_collector_page(client: ModuleType, part: Any, registry: Any) -> None:
    core = part("core")

    class CustomCollector:
        def collect(self) -> Any:
            yield core.GaugeMetricFamily("my_gauge", "Help text", value=7)
            c = core.CounterMetricFamily("my_counter_total", "Help text", labels=["foo"])
            c.add_metric(["bar"], 1.7)
            c.add_metric(["baz"], 3.8)
            yield c

    registry.register(CustomCollector())
    assert client.generate_latest(registry).decode().splitlines() == [
        "# HELP my_gauge Help text",
        "# TYPE my_gauge gauge",
        "my_gauge 7.0",
        "# HELP my_counter_total Help text",
        "# TYPE my_counter_total counter",
        'my_counter_total{foo="bar"} 1.7',
        'my_counter_total{foo="baz"} 3.8',
    ]


def test_pushgateway_page(client: ModuleType, registry: Any) -> None:
    g = client.Gauge("job_last_success_unixtime", "Last time a batch job successfully finished", registry=registry)
    g.set_to_current_time()
    sent = []

    def my_auth_handler(url: str, method: str, timeout: float, headers: Any, data: bytes) -> Any:
        return lambda: sent.append((url, method, timeout, dict(headers), data))

    client.push_to_gateway("localhost:9091", job="batchA", registry=registry, handler=my_auth_handler)
    url, method, timeout, headers, data = sent[0]
    assert (url, method, timeout) == ("http://localhost:9091/metrics/job/batchA", "PUT", 30)
    assert headers["Content-Type"].startswith("text/plain") and b"job_last_success_unixtime" in data
