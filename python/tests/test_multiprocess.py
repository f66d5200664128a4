# SPDX-License-Identifier: Apache-2.0
"""The multi-process mode: the same scenarios on prometheus_client and on the drop-in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kit import DROP_IN, Fleet, Worker

COUNTER = 'c = Counter("c", "help")'


def test_counters_add_up(fleet: Fleet) -> None:
    first, second = fleet.worker(COUNTER), fleet.worker(COUNTER)
    assert fleet.value("c_total") == 0
    first.do("c.inc()")
    second.do("c.inc(2)")
    assert fleet.value("c_total") == 3


def test_a_counter_of_a_dead_process_still_counts(fleet: Fleet) -> None:
    first, second = fleet.worker(COUNTER + "; c.inc(3)"), fleet.worker(COUNTER + "; c.inc()")
    first.stop()
    second.kill()
    fleet.mark_dead(first)
    assert fleet.value("c_total") == 4


def test_summaries_add_up(fleet: Fleet) -> None:
    first, second = (fleet.worker('s = Summary("s", "help")') for _ in range(2))
    assert (fleet.value("s_count"), fleet.value("s_sum")) == (0, 0)
    first.do("s.observe(1)")
    second.do("s.observe(2.5)")
    assert (fleet.value("s_count"), fleet.value("s_sum")) == (2, 3.5)


def test_histograms_add_up(fleet: Fleet) -> None:
    first, second = (fleet.worker('h = Histogram("h", "help")') for _ in range(2))
    assert (fleet.value("h_count"), fleet.value("h_sum")) == (0, 0)
    assert fleet.value("h_bucket", le="5.0") == 0
    first.do("h.observe(1)")
    second.do("h.observe(2)")
    assert (fleet.value("h_count"), fleet.value("h_sum")) == (2, 3)
    assert fleet.value("h_bucket", le="1.0") == 1
    assert fleet.value("h_bucket", le="2.5") == 2
    assert fleet.value("h_bucket", le="+Inf") == 2


def gauges(fleet: Fleet, mode: str) -> tuple[Worker, Worker]:
    code = f'g = Gauge("g", "help", multiprocess_mode="{mode}")'
    return fleet.worker(code), fleet.worker(code)


@pytest.mark.parametrize("mode", ["all", "liveall"])
def test_gauges_of_each_process(fleet: Fleet, mode: str) -> None:
    first, second = gauges(fleet, mode)
    assert fleet.value("g", pid=str(first.pid)) == 0
    first.do("g.set(1)")
    second.do("g.set(2)")
    assert fleet.value("g", pid=str(first.pid)) == 1
    assert fleet.value("g", pid=str(second.pid)) == 2
    first.stop()
    fleet.mark_dead(first)
    assert fleet.value("g", pid=str(first.pid)) == (1 if mode == "all" else None)
    assert fleet.value("g", pid=str(second.pid)) == 2


@pytest.mark.parametrize(
    ("mode", "both", "after"),
    [
        ("sum", 3, 3),
        ("livesum", 3, 1),
        ("max", 2, 2),
        ("livemax", 2, 1),
        ("min", 1, 1),
        ("livemin", 1, 1),
        ("mostrecent", 2, 2),
        ("livemostrecent", 2, 1),
    ],
)
def test_gauges_as_one(fleet: Fleet, mode: str, both: float, after: float) -> None:
    first, second = gauges(fleet, mode)
    first.do("g.set(1)")
    second.do("g.set(2)")
    assert fleet.value("g") == both
    second.stop()
    fleet.mark_dead(second)
    assert fleet.value("g") == after


@pytest.mark.parametrize(("mode", "value"), [("min", 1), ("livemin", None)])
def test_the_least_of_a_process_that_died(fleet: Fleet, mode: str, value: object) -> None:
    first, second = gauges(fleet, mode)
    first.do("g.set(1)")
    second.do("g.set(2)")
    first.stop()
    fleet.mark_dead(first)
    assert fleet.value("g") == (value or 2)


def test_the_most_recent_gauge_is_the_one_set_last(fleet: Fleet) -> None:
    first, second = gauges(fleet, "mostrecent")
    second.do("g.set(2)")
    first.do("g.set(1)")
    assert fleet.value("g") == 1
    second.do("g.set(0)")
    assert fleet.value("g") == 0


@pytest.mark.parametrize("method", ["inc", "dec"])
def test_the_most_recent_gauge_is_not_added_to(fleet: Fleet, method: str) -> None:
    worker, _ = gauges(fleet, "mostrecent")
    answer = worker.run(f"g.{method}()")
    assert answer == f"RuntimeError: {method} must not be used with the mostrecent mode"


def test_names_are_built_once(fleet: Fleet) -> None:
    worker = fleet.worker('c = Counter("c", "help", labelnames=["l"], namespace="ns", subsystem="sub", unit="s")')
    worker.do('c.labels("a").inc(2)')
    assert fleet.value("ns_sub_c_s_total", l="a") == 2


def test_help_and_types_are_kept(fleet: Fleet) -> None:
    fleet.worker('Counter("c", "counts"); Gauge("g", "gauges"); Histogram("h", "histograms"); Summary("s", "sums")')
    found = {metric.name: (metric.type, metric.documentation) for metric in fleet.registry().collect()}
    assert found == {
        "c": ("counter", "counts"),
        "g": ("gauge", "gauges"),
        "h": ("histogram", "histograms"),
        "s": ("summary", "sums"),
    }


def test_buckets_come_in_order(fleet: Fleet) -> None:
    code = 'h = Histogram("h", "help", labelnames=["view"])'
    for _ in range(2):
        worker = fleet.worker(code)
        worker.do('h.labels(view="view1").observe(1)')
    worker.do('h.labels(view="view1").observe(5); h.labels(view="view2").observe(1)')
    (metric,) = fleet.registry().collect()
    for view, count in (("view1", 3), ("view2", 1)):
        buckets = [
            sample for sample in metric.samples if sample.name == "h_bucket" and sample.labels["view"] == view
        ]
        bounds = [float(sample.labels["le"]) for sample in buckets]
        assert bounds == sorted(bounds) and len(bounds) == 15
        counts = [sample.value for sample in buckets]
        assert counts == sorted(counts) and counts[-1] == count


def test_a_restricted_registry_collects_what_it_names(fleet: Fleet) -> None:
    fleet.worker('Counter("a", "help").inc(); Counter("b", "help").inc()')
    registry = fleet.module.CollectorRegistry(support_collectors_without_names=True)
    fleet.multiprocess.MultiProcessCollector(registry, str(fleet.directory))
    metrics = list(registry.restricted_registry(["b_total"]).collect())
    assert [sample.name for metric in metrics for sample in metric.samples] == ["b_total"]


def test_the_own_registry_shows_the_own_values(fleet: Fleet) -> None:
    fleet.worker(COUNTER + "; c.inc(5)")
    worker = fleet.worker(COUNTER + "; c.inc(2)")
    worker.do('assert REGISTRY.get_sample_value("c_total") == 2')
    assert fleet.value("c_total") == 7


def test_a_child_of_fork_counts_for_itself(fleet: Fleet) -> None:
    worker = fleet.worker(COUNTER + "; c.inc(3)")
    worker.do("""
pid = os.fork()
if pid == 0:
    c.inc(4)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
c.inc()
""")
    assert fleet.value("c_total") == 8


def test_a_metric_made_after_fork_and_labels_from_before(fleet: Fleet) -> None:
    worker = fleet.worker('c = Counter("c", "help", ["l"]); child = c.labels("x"); child.inc()')
    worker.do("""
pid = os.fork()
if pid == 0:
    child.inc(10)
    c.labels("y").inc(100)
    Counter("d", "help").inc(7)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
""")
    assert fleet.value("c_total", l="x") == 11
    assert fleet.value("c_total", l="y") == 100
    assert fleet.value("d_total") == 7


def test_there_must_be_a_directory(fleet: Fleet, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="env PROMETHEUS_MULTIPROC_DIR is not set or not a directory"):
        fleet.multiprocess.MultiProcessCollector(None)
    with pytest.raises(ValueError, match="not a directory"):
        fleet.multiprocess.MultiProcessCollector(None, str(tmp_path / "nowhere"))


def test_the_directory_may_be_a_path(fleet: Fleet) -> None:
    fleet.worker(COUNTER + "; c.inc()")
    registry = fleet.module.CollectorRegistry()
    fleet.multiprocess.MultiProcessCollector(registry, fleet.directory)
    assert registry.get_sample_value("c_total") == 1


def test_info_and_enum_stay_in_their_process(fleet: Fleet) -> None:
    fleet.worker('Info("i", "help").info({"a": "b"}); Enum("e", "help", states=["x", "y"]).state("y")')
    assert list(fleet.registry().collect()) == []


SCENARIO = """
requests = Counter("requests", "Requests", ["method", "status"])
latency = Histogram("latency_seconds", "Latency", ["method"], buckets=(0.1, 1, 10))
sizes = Summary("size_bytes", "Sizes", ["method"])
fine = Histogram("fine", "Negative bounds", buckets=(-1, 0, 1, 1e6, 1e7))
gauges = {mode: Gauge("gauge_" + mode, "A \\\\ in \\n help", ["l"], multiprocess_mode=mode) for mode in sorted(Gauge._MULTIPROC_MODES)}
for at in range(20):
    requests.labels("get", 200 + at % 3).inc(at + NUMBER)
    requests.labels(status="500", method='p"o\\\\st\\n').inc(0.25)
    latency.labels("get").observe(at * NUMBER / 7)
    sizes.labels("get").observe(at)
    fine.observe((at - 3) * 10.0 ** (at - 5))
for gauge in gauges.values():
    gauge.labels("a").set(NUMBER)
    gauge.labels("b").set(-NUMBER)
"""


def test_the_pages_are_the_same(fleets: tuple[Fleet, Fleet]) -> None:
    pages = []
    for fleet in fleets:
        workers = [fleet.worker(SCENARIO.replace("NUMBER", str(number))) for number in (1, 2, 3)]
        pages.append(fleet.page())
        workers[1].stop()
        fleet.mark_dead(workers[1])
        pages.append(fleet.page())
    real, real_later, ours, ours_later = pages
    assert len(real) > 70
    assert ours == real
    assert ours_later == real_later


def test_cells_have_a_variable_of_their_own(tmp_path: Path) -> None:
    fleet = Fleet(DROP_IN, tmp_path)
    fleet.worker(COUNTER + "; c.inc()", PROMETHEUS_MULTIPROC_DIR="", TIDEGATE_CELLS_DIR=str(tmp_path))
    assert fleet.value("c_total") == 1
    fleet.close()


def test_the_variable_in_lower_case_still_counts(tmp_path: Path) -> None:
    fleet = Fleet(DROP_IN, tmp_path)
    fleet.worker(COUNTER + "; c.inc()", PROMETHEUS_MULTIPROC_DIR="", prometheus_multiproc_dir=str(tmp_path))
    assert fleet.value("c_total") == 1
    fleet.close()


def test_a_dead_process_needs_no_mark(tmp_path: Path) -> None:
    fleet = Fleet(DROP_IN, tmp_path)
    for _ in range(2):
        fleet.worker('g = Gauge("g", "help", multiprocess_mode="livesum"); g.set(1)')
    assert fleet.value("g") == 2
    fleet.workers[0].kill()
    assert fleet.value("g") == 1
    fleet.close()


def test_removed_labels_are_gone_in_all_processes(tmp_path: Path) -> None:
    fleet = Fleet(DROP_IN, tmp_path)
    worker = fleet.worker('c = Counter("c", "help", ["l"]); c.labels("x").inc(); c.labels("y").inc(5)')
    worker.do('held = c.labels("x"); c.remove("x"); held.inc()')
    assert fleet.value("c_total", l="x") is None
    worker.do('c.labels("x").inc(2)')
    assert fleet.value("c_total", l="x") == 2
    worker.do("c.clear()")
    assert fleet.value("c_total", l="y") is None
    fleet.close()


def test_a_name_that_is_something_else_elsewhere_stays_local(tmp_path: Path) -> None:
    fleet = Fleet(DROP_IN, tmp_path)
    worker = fleet.worker(COUNTER + "; c.inc()")
    worker.do("""
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    other = CollectorRegistry()
    d = Counter("c", "help", ["l"], registry=other)
    d.labels("x").inc()
assert [w.category for w in caught] == [RuntimeWarning], caught
assert other.get_sample_value("c_total", {"l": "x"}) == 1
""")
    assert fleet.value("c_total") == 1
    fleet.close()


def test_a_damaged_file_is_omitted_and_reported(tmp_path: Path) -> None:
    fleet = Fleet(DROP_IN, tmp_path)
    fleet.worker(COUNTER + "; c.inc()")
    (tmp_path / "1-2-0123456789abcdef.cells").write_bytes(os.urandom(8192))
    with pytest.warns(RuntimeWarning, match="is omitted"):
        assert fleet.value("c_total") == 1
    fleet.close()
