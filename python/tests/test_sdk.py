# SPDX-License-Identifier: Apache-2.0
"""The SDK: sets, instruments, registries, composites, queries."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import textwrap
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, AsyncIterator, Callable, Iterator, Optional

import pytest

import tidegate
from component import Service, component
from tidegate import Counter, Gauge, Histogram, MetricSet, Prometheus, Shm


def test_registering_twice_gives_the_same_series() -> None:
    registry = Prometheus()
    first, second = Service(registry, model="llama"), Service(registry, model="llama")
    first.busy.inc()
    second.busy.inc()
    assert first.busy.get() == second.busy.get() == registry.value("service_busy", model="llama") == 2


def test_errors_come_at_registration() -> None:
    registry = Prometheus()
    registry.register(Counter("help", name="c"))
    with pytest.raises(ValueError, match="registered already"):
        registry.register(Gauge("help", name="c"))
    for wrong in (Counter("help", name="no name"), Counter("help", name="c2", labels=["0"]), Histogram("h", name="h", buckets=[2, 1])):
        with pytest.raises(ValueError):
            registry.register(wrong)
    with pytest.raises(ValueError, match="the set declares the labels"):
        Service(registry, other="x")
    with pytest.raises(ValueError, match="unknown buckets `none`"):
        registry.register(Histogram("help", name="h", buckets="none"))
    with pytest.raises(ValueError, match="mode: other; expected one of all, liveall, sum, .*, livemostrecent$"):
        registry.register(Gauge("help", name="g", mode="other"))


def test_wrong_use() -> None:
    counter = Prometheus().register(Counter("help", name="c", labels=["a", "b"]))
    for use in (
        lambda: counter.inc(),
        lambda: counter.labels("x"),
        lambda: counter.labels(a="x", c="y"),
        lambda: counter.labels("x", b="y"),
        lambda: counter.labels("x", "y").labels("x", "y"),
        lambda: counter.labels("x", "y").inc(-1),
        lambda: Counter("help", name="never registered").inc(),
    ):
        with pytest.raises(ValueError):
            use()
    assert counter.labels("x", 3) is counter.labels(b="3", a="x")


def test_a_removed_series_is_gone() -> None:
    registry = Prometheus()
    counter = registry.register(Counter("help", name="c", labels=["a"]))
    counter.labels("x").inc(3)
    counter.labels("y").inc()
    counter.remove("x")
    assert registry.value("c", a="x") is None and registry.value("c", a="y") == 1
    counter.labels("x").inc()
    assert registry.value("c", a="x") == 1


def test_scopes() -> None:
    registry = Prometheus()
    scope = registry.scope("dynamo", namespace="demo", component="worker", rank="3")
    scope.scope("inner", endpoint="generate").register(Counter("help", name="c"), model="m").inc()
    labels = {
        "dynamo_namespace": "demo",
        "dynamo_component": "worker",
        "dynamo_endpoint": "generate",
        "rank": "3",
        "model": "m",
    }
    assert registry.value("dynamo_inner_c", **labels) == 1


def test_sets_inherit() -> None:
    class Base(MetricSet, prefix="base"):
        first = Counter("help")

    class Derived(Base):
        second = Counter("help", name="other")

    registry = Prometheus()
    derived = Derived(registry)
    derived.first.inc()
    derived.second.inc(2)
    assert registry.value("base_first") == 1 and registry.value("base_other") == 2


def test_timers_and_decorators_of_both_kinds_of_function() -> None:
    registry = Prometheus()
    service = Service(registry, model="m")
    failures = registry.register(Counter("help", name="failures"))

    @service.latency.time()
    @failures.count_exceptions(KeyError)
    def sync(fails: bool) -> int:
        if fails:
            raise KeyError
        return 1

    @service.latency.time()
    @service.inflight.track()
    async def later() -> float:
        await asyncio.sleep(0.02)
        return service.inflight.get()

    assert sync(False) == 1
    with pytest.raises(KeyError):
        sync(True)
    assert asyncio.run(later()) == 1
    with service.latency.time() as timer:
        time.sleep(0.01)
    count, total = service.latency.get()
    assert count == 4 and total >= 0.03 and timer.duration and timer.duration >= 0.01
    assert failures.get() == 1 and service.inflight.get() == 0


def test_streams_are_measured_while_they_run() -> None:
    registry = Prometheus()
    latency = registry.register(Histogram("help", name="latency"))
    running = registry.register(Gauge("help", name="running"))
    failures = registry.register(Counter("help", name="failures"))

    @latency.time()
    @running.track()
    @failures.count_exceptions()
    async def stream(times: int) -> AsyncIterator[float]:
        for _ in range(times):
            await asyncio.sleep(0.005)
            yield running.get()
        if times == 3:
            raise KeyError

    @latency.time()
    @running.track()
    def generator() -> Iterator[float]:
        sent = yield running.get()
        yield sent
        return

    async def use() -> None:
        assert [value async for value in stream(2)] == [1, 1]
        with pytest.raises(KeyError):
            assert [value async for value in stream(3)]
        given_up = stream(10)
        assert await anext(given_up) == 1
        await given_up.aclose()  # type: ignore[attr-defined]

    asyncio.run(use())
    count, total = latency.get()
    assert count == 3 and total >= 0.03 and failures.get() == 1 and running.get() == 0
    made = generator()
    assert next(made) == 1 and made.send(7) == 7  # type: ignore[attr-defined]
    assert latency.get()[0] == 3 and list(made) == []
    assert latency.get()[0] == 4 and running.get() == 0


def test_composites() -> None:
    registry = Prometheus()
    latency = registry.register(Histogram("help", name="latency", labels=["model"]))
    ttft = registry.composite("ttft", of=latency, window=10.0, by=("model",), quantiles=[0.5])
    assert ttft.get().state == "absent" and ttft.get().value is None
    for value in (0.1, 0.2, 0.6):
        latency.labels("a").observe(value)
    latency.labels("b").observe(5)
    now = ttft.get(model="a")
    assert (now.count, now.min, now.max, now.state) == (3, 0.1, 0.6, "fresh")
    assert now.value == now.avg == pytest.approx(0.3) and now.age is not None and now.age < 5
    assert now.labels == {"model": "a"} and now.window == 10 and now.quantiles[0][0] == 0.5
    assert {snapshot.labels["model"] for snapshot in ttft.all()} == {"a", "b"}
    with pytest.raises(KeyError):
        ttft.get(model="c")
    counter = registry.register(Counter("help", name="c"))
    rate = registry.composite("rate", of=counter, window=10.0)
    counter.inc(50)
    # The window is cut into parts, of which the oldest is left in part.
    assert rate.get().sum == 50 and rate.get().value == pytest.approx(5, rel=0.05)
    with pytest.raises(ValueError):
        registry.composite("both", of=[latency, counter])
    with pytest.raises(ValueError, match="no such function"):
        registry.composite("f", of=latency, function="median")


def wait_for(what: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not what():
        assert time.monotonic() < until
        time.sleep(0.002)


def test_callbacks_run_on_a_thread_of_their_own() -> None:
    registry = Prometheus()
    gauge = registry.register(Gauge("help", name="depth"))
    calls: list[tuple[float, bool, int]] = []

    def note(snapshot: tidegate.Snapshot, value: float, is_crossed: bool) -> None:
        assert snapshot.last == value
        calls.append((value, is_crossed, threading.get_ident()))

    subscription = gauge.on_change(note, above=5, hysteresis=1)
    gauge.set(7)
    wait_for(lambda: len(calls) == 1)
    gauge.set(4.5)
    gauge.set(1)
    wait_for(lambda: len(calls) == 2)
    assert [call[:2] for call in calls] == [(7, True), (1, False)]
    assert calls[0][2] != threading.get_ident()
    subscription.close()
    gauge.set(9)
    time.sleep(0.05)
    assert len(calls) == 2
    with pytest.raises(ValueError):
        gauge.on_change(note, above=1, below=2)


def test_what_a_callback_raises_is_logged_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    registry = Prometheus()
    latency = registry.register(Histogram("help", name="latency"))
    composite = registry.composite("slow", of=latency, function="max")
    before = tidegate.callback_failures()

    def fail(*_: object) -> None:
        raise RuntimeError("by intention")

    with caplog.at_level(logging.ERROR, "tidegate"):
        kept = [composite.on_change(fail, above=1) for _ in range(3)]
        latency.observe(2)
        wait_for(lambda: tidegate.callback_failures() == before + 3)
    told = [record for record in caplog.records if record.name == "tidegate"]
    assert len(told) == 1 and "by intention" in caplog.text
    for subscription in kept:
        subscription.close()


def test_the_series_of_a_group_become_one_value() -> None:
    registry = Prometheus()
    queue = registry.register(Gauge("help", name="queue", labels=("pod",)))
    queue.labels(pod="a").set(100)
    queue.labels(pod="b").set(0)

    def depth(across: Optional[str], rank: Optional[float] = None) -> tidegate.Snapshot:
        composite = registry.composite(
            "depth", of=queue, function="last", across=across, across_quantile=rank
        )
        return composite.get()

    values = {"sum": 100, "avg": 50, "min": 0, "max": 100, "count": 2}
    assert {across: depth(across).value for across in values} == values
    assert depth("quantile", 0.75).value == 75
    mixed = depth(None)
    assert mixed.value is None and "set `across` to sum" in (mixed.error or "")
    for across, rank, why in [
        ("pool", None, "`across: pool` mixes the samples of the gauge `queue`"),
        ("median", None, "no such `across`: median"),
        ("quantile", None, "goes together with"),
        ("sum", 0.5, "goes together with"),
        ("quantile", 1.5, "between 0 and 1"),
    ]:
        with pytest.raises(ValueError, match=why):
            depth(across, rank)
    for function in ["sum", "count", "rate"]:
        with pytest.raises(ValueError, match=f"`function: {function}` adds up the samples"):
            registry.composite("depth", of=queue, function=function, across="sum")


def test_watching() -> None:
    registry = Prometheus()
    gauge = registry.register(Gauge("help", name="depth"))
    composite = registry.composite("depth", of=gauge, function="last", window=5)

    async def watch() -> list[float]:
        seen: list[float] = []
        async for groups in composite.watch():
            value = groups[0].value
            if value is not None and (not seen or value != seen[-1]):
                seen.append(value)
                gauge.set(value + 1)
            if len(seen) == 3:
                return seen
        return seen

    gauge.set(1)
    seen = asyncio.run(asyncio.wait_for(watch(), 120))
    assert seen == [1, 2, 3]
    for groups in composite.watch():
        assert groups[0].value is not None and groups[0].value >= 3
        break


def test_queries() -> None:
    registry = Prometheus()
    service = component(registry)
    assert registry.query("service_requests_total") == [
        ({"__name__": "service_requests_total", "model": "llama", "status": "failed"}, 45.0),
        ({"__name__": "service_requests_total", "model": "llama", "status": "ok"}, 10.0),
    ]
    assert registry.query("sum(service_requests_total)") == [({}, 55.0)]
    assert registry.query("histogram_quantile(1, service_sizes_bytes_bucket)")[0][1] == 100
    assert registry.query("1 + 1") == 2.0
    with pytest.raises(ValueError):
        registry.query("sum(")


def test_queries_over_the_recent_past() -> None:
    registry = Prometheus()
    gauge = registry.register(Gauge("help", name="depth"))
    counter = registry.register(Counter("help", name="work"))
    registry.record(every=0.01, keep=60)

    def recorded() -> float:
        try:
            found: Any = registry.query("count_over_time(depth[1m])")
        except ValueError:
            return 0
        return float(found[0][1]) if found else 0

    for value in range(10):
        gauge.set(value)
        counter.inc(3)
        # One of these is recorded after the change, also on a busy machine.
        before = recorded()
        wait_for(lambda: recorded() >= before + 2)
    ((_, low),) = registry.query("min_over_time(depth[1m])")
    ((_, high),) = registry.query("max_over_time(depth[1m])")
    # Both sides are of the same samples.
    ((_, difference),) = registry.query("avg_over_time(depth[1m]) - sum_over_time(depth[1m]) / count_over_time(depth[1m])")
    assert (low, high) == (0, 9) and abs(difference) < 1e-9
    ((_, count),) = registry.query("count_over_time(work_total[1m])")
    assert count > 10
    ((labels, samples),) = registry.query("depth[1m]")
    assert labels == {"__name__": "depth"} and abs(samples[-1][0] - time.time()) < 60


def test_a_shared_directory_over_forks(tmp_path: Path) -> None:
    program = """
        import os, sys
        from tidegate import Counter, Shm
        registry = Shm(sys.argv[1], {"service.name": "x"})
        counter = registry.register(Counter("help", name="c"))
        counter.inc(2)
        for number in range(3):
            pid = os.fork()
            if pid == 0:
                counter.inc(10)
                os._exit(0)
            os.waitpid(pid, 0)
        print(registry.value("c"), counter.get(), registry.query("c_total")[0][1])
        pid = os.fork()
        if pid == 0:
            assert registry.query("c_total")[0][1] == 32
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        registry.fold(0)
        print(registry.value("c"))
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["32", "2", "32.0", "32"]


def test_a_fork_while_another_thread_reads_the_directory(tmp_path: Path) -> None:
    program = """
        import os, sys, threading
        from tidegate import Counter, Shm
        registry = Shm(sys.argv[1])
        registry.register(Counter("help", name="c")).inc(2)
        stopping = threading.Event()
        def read():
            while not stopping.is_set():
                registry.value("c")
        reader = threading.Thread(target=read)
        reader.start()
        for _ in range(30):
            pid = os.fork()
            if pid == 0:
                os._exit(0 if registry.value("c") == 2 else 1)
            assert os.waitpid(pid, 0)[1] == 0
        stopping.set()
        reader.join()
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_a_directory_is_needed() -> None:
    with pytest.raises(ValueError, match="no directory"):
        Shm()


def test_the_drop_in_and_the_sdk_share_a_directory(tmp_path: Path) -> None:
    from tidegate.compat.prometheus_client import CollectorRegistry, generate_latest, multiprocess

    component(Shm(tmp_path))
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry, tmp_path)
    assert registry.get_sample_value("service_requests_total", {"model": "llama", "status": "failed"}) == 45
    assert b"service_sizes_count" in generate_latest(registry)


def test_serving() -> None:
    registry = Prometheus()
    component(registry)
    server = registry.serve(0)
    url = f"{server.url}/metrics"
    assert urllib.request.urlopen(url, timeout=60).read().decode() == registry.expose()
    request = urllib.request.Request(url, headers={"Accept": "application/openmetrics-text"})
    assert urllib.request.urlopen(request, timeout=60).read().endswith(b"# EOF\n")
    server.close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=60)


def _status(url: str) -> int:
    try:
        return int(urllib.request.urlopen(url, timeout=60).status)
    except urllib.error.HTTPError as error:
        return error.code


def test_health() -> None:
    server = Prometheus().serve(0)
    assert [_status(server.url + path) for path in ("/health", "/live", "/nope", "/")] == [200, 200, 404, 404]
    server.health.set_endpoint("generate", False)
    assert (_status(server.url + "/health"), _status(server.url + "/live")) == (503, 200)
    assert not server.health.is_ready
    server.health.set_endpoint("generate", True)
    assert _status(server.url + "/health") == 200
    server.health.set_ready(False)
    assert _status(server.url + "/health") == 503
    assert repr(server.health) == "<tidegate.Health not ready>"
    with pytest.raises(OSError, match=str(server.address[1])):
        Prometheus().serve(server.address[1])
    server.close()
    server.close()


def test_a_server_lives_without_a_reference() -> None:
    import gc

    url = Prometheus().serve(0).url
    gc.collect()
    assert _status(url + "/live") == 200


def test_what_is_printed_says_what_it_is() -> None:
    registry = Prometheus()
    service = component(registry)
    composite = registry.composite("sizes", of=registry.register(Histogram("Sizes", name="shown")))
    assert repr(registry) == "<tidegate.Prometheus>"
    assert repr(composite) == "<tidegate.Composite 'sizes'>"
    assert "state=idle" in repr(composite.get()) and "value=None" in repr(composite.get())
    assert "requests" in repr(service) and type(service).__name__ in repr(service)
    assert tidegate.__version__.count(".") == 2


def test_the_error_names_the_instrument_to_use() -> None:
    counter = Prometheus().register(Counter("Requests", name="requests"))
    with pytest.raises(TypeError, match="FloatCounter"):
        counter.inc(1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="UpDownCounter"):
        counter.inc(-1)
    assert counter.get() == 0
    with pytest.raises(ValueError, match="did you mean 'prometheus'"):
        tidegate.registry("prometheuss")


def test_a_composite_in_a_child_of_fork_is_absent_until_it_sees_data() -> None:
    registry = Prometheus()
    latency = registry.register(Histogram("Latency", name="latency", buckets=[1, 10]))
    composite = registry.composite("latency", of=latency, window=60.0)
    latency.observe(4)
    latency.observe(5)
    assert (composite.get().state, composite.get().count) == ("fresh", 2)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            before = composite.get()
            latency.observe(7)
            after = composite.get()
            os.write(write, f"{before.state} {before.value} {after.state} {after.count} {after.avg}".encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 200).decode() == "absent None fresh 1.0 7.0"
    assert composite.get().count == 2
