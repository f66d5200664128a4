# SPDX-License-Identifier: Apache-2.0
"""Instruments, registries and names: the same on prometheus_client and on the drop-in."""

from __future__ import annotations

import inspect
import re
import time
from types import ModuleType
from typing import Any, Callable

import pytest


@pytest.fixture
def registry(client: ModuleType) -> Any:
    return client.CollectorRegistry()


def test_counter(client: ModuleType, registry: Any) -> None:
    counter = client.Counter("c_total", "help", registry=registry)
    value = lambda: registry.get_sample_value("c_total")  # noqa: E731
    assert value() == 0
    counter.inc()
    counter.inc(7)
    counter.inc(amount=0.5)
    assert value() == counter._value.get() == 8.5
    counter.reset()
    assert value() == 0
    counter.inc()
    assert value() == 1
    assert abs(registry.get_sample_value("c_created") - time.time()) < 60
    assert (str(counter), counter._name) == ("counter:c", "c")


@pytest.mark.parametrize("amount", [-1, -0.5, float("-inf")])
def test_a_counter_does_not_fall(client: ModuleType, registry: Any, amount: float) -> None:
    counter = client.Counter("c", "help", registry=registry)
    with pytest.raises(ValueError, match="Counters can only be incremented by non-negative amounts."):
        counter.inc(amount)
    assert registry.get_sample_value("c_total") == 0


def test_a_counter_can_become_infinite(client: ModuleType, registry: Any) -> None:
    counter = client.Counter("c", "help", registry=registry)
    counter.inc(float("inf"))
    counter.inc()
    assert registry.get_sample_value("c_total") == float("inf")


#: Names that no documentation lists, but which programs import.
INNER_NAMES = {
    "context_managers": ["decorate"],
    "decorator": ["decorate", "getargspec", "getfullargspec"],
    "exposition": ["ThreadingWSGIServer", "_SilentHandler", "_get_best_family", "_get_ssl_ctx", "_make_handler"],
    "metrics": ["_build_full_name", "_validate_labelnames", "_validate_metric_name"],
    "mmap_dict": ["MmapedDict", "mmap_key"],
}


@pytest.mark.parametrize("module", INNER_NAMES)
def test_names_that_programs_import_are_there(part: Any, module: str) -> None:
    assert [name for name in INNER_NAMES[module] if not hasattr(part(module), name)] == []


def test_count_exceptions(client: ModuleType, registry: Any) -> None:
    counter = client.Counter("c", "help", registry=registry)

    @counter.count_exceptions(ValueError)
    def fail(error: type[Exception]) -> None:
        """Fails."""
        raise error

    assert (fail.__name__, fail.__doc__) == ("fail", "Fails.")
    assert str(inspect.signature(fail)).startswith("(error: ")
    for error in (TypeError, ValueError):
        with pytest.raises(error):
            fail(error)
    assert registry.get_sample_value("c_total") == 1
    with pytest.raises(TypeError), counter.count_exceptions():
        raise TypeError
    with pytest.raises(KeyError), counter.count_exceptions((KeyError, IndexError)):
        raise KeyError
    with pytest.raises(KeyboardInterrupt), counter.count_exceptions():
        raise KeyboardInterrupt
    assert registry.get_sample_value("c_total") == 3


def test_gauge(client: ModuleType, registry: Any) -> None:
    gauge = client.Gauge("g", "help", registry=registry)
    value = lambda: registry.get_sample_value("g")  # noqa: E731
    gauge.inc()
    gauge.inc(3)
    gauge.dec(0.5)
    gauge.dec()
    assert value() == 2.5
    gauge.set(9)
    assert value() == 9
    gauge.set("4.5")
    assert value() == 4.5
    gauge.set_to_current_time()
    assert abs(value() - time.time()) < 60
    with gauge.track_inprogress():
        assert value() > 1e9 + 1
    gauge.set(0)

    @gauge.track_inprogress()
    def nested(depth: int) -> None:
        assert value() == depth
        if depth < 3:
            nested(depth + 1)

    nested(1)
    assert value() == 0
    gauge.set_function(lambda: 17)
    assert value() == 17


def test_a_gauge_times(client: ModuleType, registry: Any) -> None:
    gauge = client.Gauge("g", "help", registry=registry)
    with gauge.time() as timer:
        time.sleep(0.002)
    assert registry.get_sample_value("g") == timer.duration >= 0.002


def test_summary(client: ModuleType, registry: Any) -> None:
    summary = client.Summary("s", "help", registry=registry)
    summary.observe(10)
    summary.observe(2.5)
    assert registry.get_sample_value("s_count") == 2
    assert registry.get_sample_value("s_sum") == 12.5


def test_timers(client: ModuleType, registry: Any) -> None:
    histogram = client.Histogram("h", "help", ["l"], registry=registry)

    @histogram.labels("f").time()
    def recursive(depth: int = 2) -> int:
        return recursive(depth - 1) + 1 if depth else 0

    assert recursive() == 2
    assert registry.get_sample_value("h_count", {"l": "f"}) == 3
    with histogram.time() as timer:
        timer.labels(l="late")
    assert registry.get_sample_value("h_count", {"l": "late"}) == 1
    with pytest.raises(ZeroDivisionError), histogram.labels("error").time():
        1 / 0
    assert registry.get_sample_value("h_count", {"l": "error"}) == 1


def test_histogram(client: ModuleType, registry: Any) -> None:
    histogram = client.Histogram("h", "help", registry=registry, buckets=[0, 1, 2.5])
    for value in (-1, 0, 0.5, 1, 1.01, 2.5, 3, float("inf")):
        histogram.observe(value)
    counts = [registry.get_sample_value("h_bucket", {"le": le}) for le in ("0.0", "1.0", "2.5", "+Inf")]
    assert counts == [2, 4, 6, 8]
    assert registry.get_sample_value("h_count") == 8
    assert [bucket.get() for bucket in histogram._buckets] == [2, 2, 2, 2]
    assert histogram._sum.get() == float("inf")


@pytest.mark.parametrize(
    ("buckets", "bounds"),
    [
        ([0, 1, 2], ["0.0", "1.0", "2.0", "+Inf"]),
        ([0, 1, 2, float("inf")], ["0.0", "1.0", "2.0", "+Inf"]),
        (("1", "2.5"), ["1.0", "2.5", "+Inf"]),
        ([5e-5, 0.0001, 100000, 1e6, 123456789, 1e16, 1e22], None),
    ],
)
def test_bounds(client: ModuleType, registry: Any, buckets: Any, bounds: Any) -> None:
    histogram = client.Histogram("h", "help", registry=registry, buckets=buckets)
    (metric,) = histogram.collect()
    found = [sample.labels["le"] for sample in metric.samples if sample.name == "h_bucket"]
    assert found == (bounds or ["5e-05", "0.0001", "100000.0", "1e+06", "1.23456789e+08", "1e+16", "1e+22", "+Inf"])


@pytest.mark.parametrize(
    ("buckets", "message"),
    [
        ([], "Must have at least two buckets"),
        ([float("inf")], "Must have at least two buckets"),
        ([3, 1], "Buckets not in sorted order"),
    ],
)
def test_bounds_that_are_none(client: ModuleType, buckets: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        client.Histogram("h", "help", registry=None, buckets=buckets)


def test_a_histogram_of_negative_values_has_no_sum(client: ModuleType, registry: Any) -> None:
    client.Histogram("h", "help", registry=registry, buckets=[-1, 1]).observe(-2)
    assert registry.get_sample_value("h_count") == 1
    assert registry.get_sample_value("h_sum") is None


def test_info(client: ModuleType, registry: Any) -> None:
    info = client.Info("i", "help", registry=registry)
    assert registry.get_sample_value("i_info") == 1
    info.info({"a": "b", "c": "d"})
    assert registry.get_sample_value("i_info", {"a": "b", "c": "d"}) == 1
    labelled = client.Info("il", "help", ["a"], registry=registry)
    with pytest.raises(ValueError, match="Overlapping labels for Info metric"):
        labelled.labels("x").info({"a": ""})
    with pytest.raises(ValueError, match="Label value cannot be None"):
        info.info({"a": None})


def test_enum(client: ModuleType, registry: Any) -> None:
    enum = client.Enum("e", "help", states=["one", "two", "three"], registry=registry)
    value = lambda state: registry.get_sample_value("e", {"e": state})  # noqa: E731
    assert [value(state) for state in ("one", "two", "three")] == [1, 0, 0]
    enum.state("three")
    assert [value(state) for state in ("one", "two", "three")] == [0, 0, 1]
    with pytest.raises(ValueError):
        enum.state("four")
    with pytest.raises(ValueError, match="No states provided for Enum metric: e"):
        client.Enum("e", "help")
    with pytest.raises(ValueError, match="Overlapping labels for Enum metric: e"):
        client.Enum("e", "help", labelnames=["e"], states=["a"], registry=None)


def test_labels(client: ModuleType, registry: Any) -> None:
    counter = client.Counter("c", "help", labelnames=["l", "m"], registry=registry)
    child = counter.labels("x", "y")
    child.inc()
    counter.labels(m="y", l="x").inc(2)
    assert counter.labels("x", "y") is child is counter.labels(l="x", m="y")
    counter.labels(None, 3.5).inc()
    counter.labels(l=b"\xff", m=True).inc()
    counter.labels("ä", "").inc()
    assert registry.get_sample_value("c_total", {"l": "x", "m": "y"}) == 3
    assert registry.get_sample_value("c_total", {"l": "None", "m": "3.5"}) == 1
    assert registry.get_sample_value("c_total", {"l": "b'\\xff'", "m": "True"}) == 1
    assert registry.get_sample_value("c_total", {"l": "ä", "m": ""}) == 1
    assert (child._labelnames, child._labelvalues) == (("l", "m"), ("x", "y"))
    assert type(child) is client.Counter and isinstance(child, client.metrics.MetricWrapperBase)
    counter.remove("x", "y")
    counter.remove("x", "never")
    assert registry.get_sample_value("c_total", {"l": "x", "m": "y"}) is None
    child.inc()
    counter.labels("x", "y").inc(5)
    assert registry.get_sample_value("c_total", {"l": "x", "m": "y"}) == 5
    counter.labels("x", "z").inc()
    counter.remove_by_labels({"l": "x"})
    assert {key[0] for key in counter._metrics} == {"None", "b'\\xff'", "ä"}
    counter.clear()
    assert [sample for metric in registry.collect() for sample in metric.samples] == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c, plain: c.labels(), "Incorrect label count"),
        (lambda c, plain: c.labels("a", "b", "c"), "Incorrect label count"),
        (lambda c, plain: c.labels(l="a"), "Incorrect label names"),
        (lambda c, plain: c.labels(l="a", x="b"), "Incorrect label names"),
        (lambda c, plain: c.labels("a", m="b"), "Can't pass both *args and **kwargs"),
        (lambda c, plain: plain.labels("a"), "No label names were set when constructing counter:plain"),
        (
            lambda c, plain: c.labels("a", "b").labels("a", "b"),
            "counter:c already has labels set ({'l': 'a', 'm': 'b'}); can not chain calls to .labels()",
        ),
        (lambda c, plain: c.remove("a"), "Incorrect label count (expected 2, got ('a',))"),
        (lambda c, plain: plain.remove("a"), "No label names were set when constructing counter:plain"),
        (lambda c, plain: c.remove_by_labels({"x": "y"}), "Unknown label names: ['x']; expected ('l', 'm')"),
        (lambda c, plain: c.inc(), "counter metric is missing label values"),
        (lambda c, plain: c.count_exceptions(), "counter metric is missing label values"),
    ],
)
def test_labels_used_wrongly(
    client: ModuleType, registry: Any, call: Callable[[Any, Any], Any], message: str
) -> None:
    counter = client.Counter("c", "help", ["l", "m"], registry=registry)
    plain = client.Counter("plain", "help", registry=registry)
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        call(counter, plain)


@pytest.mark.parametrize(
    ("kind", "method"),
    [("Gauge", "set"), ("Gauge", "inc"), ("Gauge", "dec"), ("Summary", "observe"), ("Histogram", "observe")],
)
def test_a_parent_records_nothing(client: ModuleType, kind: str, method: str) -> None:
    parent = getattr(client, kind)("m", "help", ["l"], registry=None)
    with pytest.raises(ValueError, match=f"^{kind.lower()} metric is missing label values$"):
        getattr(parent, method)(1)


@pytest.mark.parametrize(
    ("kind", "name", "options", "message"),
    [
        ("Counter", "", {}, "Metric name should not be empty"),
        ("Counter", "c", {"labelnames": ["__reserved"]}, "Reserved label metric name: __reserved"),
        ("Summary", "c", {"labelnames": ["quantile"]}, "Reserved label methe fric name: quantile"),
        ("Histogram", "c", {"labelnames": ["le"]}, "Reserved label methe fric name: le"),
        ("Info", "c", {"unit": "x"}, "Metric name is of a type that cannot have a unit: c_x"),
        ("Gauge", "g", {"multiprocess_mode": "other"}, "Invalid multiprocess mode: other"),
    ],
)
def test_metrics_that_are_none(client: ModuleType, kind: str, name: str, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(client, kind)(name, "help", registry=None, **options)


@pytest.mark.parametrize("name", ["a b", "0x", "a.b", "ä"])
def test_legacy_names(client: ModuleType, part: Any, name: str) -> None:
    validation = part("validation")
    client.Counter(name, "help", registry=None)
    validation.enable_legacy_validation()
    try:
        assert validation.get_legacy_validation()
        with pytest.raises(ValueError, match="invalid metric name|Invalid"):
            client.Counter(name, "help", registry=None)
        with pytest.raises(ValueError, match="Invalid label metric name"):
            client.Counter("c", "help", [name], registry=None)
    finally:
        validation.disable_legacy_validation()


@pytest.mark.parametrize(
    ("kind", "options", "full"),
    [
        ("Counter", {"name": "c_total", "namespace": "ns", "subsystem": "sub", "unit": "s"}, "ns_sub_c_s_total"),
        ("Counter", {"name": "c_total_total"}, "c_total_total"),
        ("Gauge", {"name": "g_total", "namespace": "ns"}, "ns_g_total"),
        ("Summary", {"name": "s_seconds", "unit": "seconds"}, "s_seconds_count"),
        ("Info", {"name": "i_total"}, "i_total_info"),
    ],
)
def test_full_names(client: ModuleType, registry: Any, kind: str, options: Any, full: str) -> None:
    getattr(client, kind)(documentation="help", registry=registry, **options)
    assert registry.get_sample_value(full) is not None


def test_duplicates(client: ModuleType, part: Any, registry: Any) -> None:
    summary = client.Summary("s", "help", registry=registry)
    for kind, name in (("Counter", "s"), ("Gauge", "s"), ("Gauge", "s_sum"), ("Counter", "s_count"), ("Gauge", "s_created")):
        with pytest.raises(part("registry").DuplicateTimeseries, match="Duplicated timeseries in CollectorRegistry: {'") as error:
            getattr(client, kind)(name, "help", registry=registry)
        assert error.value.duplicates and isinstance(error.value, ValueError)
    registry.unregister(summary)
    client.Gauge("s_sum", "help", registry=registry)
    client.Histogram("h", "help", registry=registry)
    with pytest.raises(ValueError):
        client.Gauge("h_bucket", "help", registry=registry)


def test_metrics_of_one_name_in_two_registries(client: ModuleType) -> None:
    registries = [client.CollectorRegistry() for _ in range(2)]
    first, second = (client.Counter("same", "help", ["l"], registry=registry) for registry in registries)
    first.labels("x").inc()
    second.labels("x").inc(5)
    assert [registry.get_sample_value("same_total", {"l": "x"}) for registry in registries] == [1, 5]
    registries[0].unregister(first)
    again = client.Counter("same", "help", ["l"], registry=registries[0])
    again.labels("x").inc(0)
    assert registries[0].get_sample_value("same_total", {"l": "x"}) == 0


def test_programs_find_their_metrics_in_the_registry(client: ModuleType, registry: Any) -> None:
    client.Gauge("vllm:running", "help", registry=registry)
    client.Gauge("other", "help", registry=registry)
    for collector in list(registry._collector_to_names):
        if hasattr(collector, "_name") and "vllm" in collector._name:
            registry.unregister(collector)
    assert [metric.name for metric in registry.collect()] == ["other"]
    assert "other" in registry._names_to_collectors


def test_target_info(client: ModuleType) -> None:
    registry = client.CollectorRegistry(target_info={"foo": "bar"})
    assert registry.get_target_info() == {"foo": "bar"}
    assert registry.get_sample_value("target_info", {"foo": "bar"}) == 1
    with pytest.raises(ValueError):
        client.Info("target", "help", registry=registry)
    assert [m.name for m in registry.restricted_registry(["target_info"]).collect()] == ["target"]
    registry.set_target_info(None)
    assert registry.get_sample_value("target_info", {"foo": "bar"}) is None
    client.Info("target", "help", registry=registry)
    with pytest.raises(ValueError, match="CollectorRegistry already contains a target_info metric"):
        registry.set_target_info({"foo": "baz"})


def test_restricted_registries(client: ModuleType, registry: Any) -> None:
    client.Counter("c", "help", registry=registry).inc()
    client.Summary("s", "help", registry=registry).observe(3)
    text = client.generate_latest(registry.restricted_registry(["s_sum", "nothing"]))
    assert text == b"# HELP s help\n# TYPE s summary\ns_sum 3.0\n"


def test_custom_collectors(client: ModuleType, part: Any) -> None:
    core = part("core")
    asked = []

    class Custom:
        def collect(self) -> Any:
            asked.append(1)
            yield core.GaugeMetricFamily("my_gauge", "Help", value=7)
            family = core.CounterMetricFamily("my_counter_total", "Help", labels=["foo"])
            family.add_metric(["bar"], 1.7, created=123.5)
            yield family

    registry = client.CollectorRegistry(auto_describe=True)
    registry.register(Custom())
    assert len(asked) == 1
    with pytest.raises(ValueError):
        client.Gauge("my_counter_total", "help", registry=registry)
    assert registry.get_sample_value("my_gauge") == 7
    assert registry.get_sample_value("my_counter_total", {"foo": "bar"}) == 1.7
    assert registry.get_sample_value("my_counter_created", {"foo": "bar"}) == 123.5
    plain = client.CollectorRegistry()
    plain.register(Custom())
    client.Gauge("my_gauge", "another", registry=plain)


def test_exemplars(client: ModuleType, registry: Any) -> None:
    counter = client.Counter("c", "help", registry=registry)
    histogram = client.Histogram("h", "help", registry=registry, buckets=[1, 2])
    counter.inc(2, {"trace_id": "x"})
    histogram.observe(1.5, {"trace_id": "y"})
    found = {
        (sample.name, sample.labels.get("le")): (sample.exemplar.labels, sample.exemplar.value)
        for metric in registry.collect()
        for sample in metric.samples
        if sample.exemplar
    }
    assert found == {("c_total", None): ({"trace_id": "x"}, 2), ("h_bucket", "2.0"): ({"trace_id": "y"}, 1.5)}
    with pytest.raises(ValueError, match="exceeding the limit of 128"):
        counter.inc(1, {"x": "y" * 128})
    assert registry.get_sample_value("c_total") == 3


def test_subclasses(client: ModuleType, registry: Any) -> None:
    class Mine(client.Counter):  # type: ignore[name-defined, misc]
        def inc(self, amount: float = 1, exemplar: Any = None) -> None:
            super().inc(amount * 10, exemplar)

    counter = Mine("c", "help", ["l"], registry=registry)
    counter.note = "an attribute of its own"
    counter.labels("x").inc()
    assert registry.get_sample_value("c_total", {"l": "x"}) == 10
    assert type(counter.labels("x")) is Mine


def test_created_series_can_be_omitted(client: ModuleType, registry: Any) -> None:
    client.Counter("c", "help", registry=registry)
    client.disable_created_metrics()
    try:
        assert registry.get_sample_value("c_created") is None
    finally:
        client.enable_created_metrics()
    assert registry.get_sample_value("c_created") is not None


def test_default_collectors(client: ModuleType, part: Any, registry: Any) -> None:
    client.ProcessCollector(namespace="n", registry=registry)
    assert registry.get_sample_value("n_process_virtual_memory_bytes") > 1e6
    assert registry.get_sample_value("n_process_resident_memory_bytes") > 1e6
    assert registry.get_sample_value("n_process_cpu_seconds_total") > 0
    assert abs(registry.get_sample_value("n_process_start_time_seconds") - time.time()) < 36000
    assert registry.get_sample_value("n_process_open_fds") > 2
    assert registry.get_sample_value("n_process_max_fds") > 2
    names = {metric.name for metric in client.REGISTRY.collect()}
    assert {"python_info", "python_gc_objects_collected", "process_cpu_seconds"} <= names
    client.ProcessCollector(pid=lambda: 2**31, registry=(nobody := client.CollectorRegistry()))
    assert list(nobody.collect()) == []


def test_metrics_are_equal_by_content(part: Any) -> None:
    core = part("core")
    first, second = (core.GaugeMetricFamily("g", "help", value=1) for _ in range(2))
    assert first == second and first != core.GaugeMetricFamily("g", "help", value=2)
    assert "Metric(g, help, gauge, , [Sample(name='g'" in repr(first)
    with pytest.raises(ValueError, match="Invalid metric type: other"):
        core.Metric("n", "help", "other")
    assert core.Metric("n", "help", "untyped").type == "unknown"
