# SPDX-License-Identifier: Apache-2.0

"""The packed program between real peers: rings of NIXL, OTLP over gRPC and a Unix socket go in. One table of values must come
out of all its interfaces, and its own counters must agree with what the peers sent and got.

Two rings are as NIXL left them, and two have agents that write them while the gateway reads. These agents say what they did. Only
NIXL itself knows how long a transfer took: all interfaces must agree on these times, and on their number.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import kit
import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as service
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as stubs
from scaler import Scaler

# The folder has a `kit` of its own: ours comes first.
sys.path.append(str(kit.ROOT / "python/tests"))
import otlp  # noqa: E402

CONFIG = "examples/whole-node.yaml"
CAPTURES = kit.ROOT / "tests/data/nixl"
# Rings as NIXL left them: of the newest layout, and of an older one whose events have a category.
RINGS = {"rank_0": "nixl-cu12-1.5.1.few-cap4096.live.agent_a.bin", "rank_1": "nixl-cu12-1.2.0.few.live.agent_a.bin"}
# Agents of NIXL that write while the gateway reads, and the program that drives them.
LIVE = ("live_a", "live_b")
DRIVER = kit.ROOT / "tests/python/nixl_transfer.py"
TRANSFERS = 12
# Events of a transfer: its two times, its bytes, itself. Each agent registers memory twice, and deregisters it once.
EVENTS_PER_TRANSFER = 4
EVENTS_OF_MEMORY = 3
# The counters of an agent whose values its driver knows.
COUNTERS = ("tx_bytes", "rx_bytes", "tx_requests_num", "rx_requests_num", "memory_registered", "memory_deregistered")
STATUSES = (
    *("not_posted", "invalid_param", "backend", "not_found", "mismatch", "not_allowed", "repost_active", "unknown"),
    *("not_supported", "remote_disconnect", "canceled", "no_telemetry"),
)
# The bounds of NIXL's histograms, in microseconds.
TIMES = [bound * 10**power for power in range(1, 6) for bound in (1, 2.5, 5)] + [1e6, 5e6, 1e7]

# What the engines say over gRPC: requests that wait, and requests since the start.
ENGINES = {"a": (3, 100), "b": (4, 150)}
# What the router says over the socket.
ROUTED = [5, 7]
WAITS = [10, 20, 60]
# The bounds that the example has for them.
WAIT_BOUNDS = [10, 25, 50, 100]

#: Name and labels, as Prometheus has them.
Series = tuple[str, frozenset[tuple[str, str]]]
Values = dict[Series, float]


def series(name: str, **labels: str) -> Series:
    return name, frozenset(labels.items())


def captured(file: str) -> list[tuple[str, int]]:
    """The events of a ring, as another program decoded them."""
    text = (CAPTURES / "DECODED.txt").read_text()
    section = text.split(f"captures/{file}: ")[1].split("\ncaptures/")[0]
    events = re.findall(r"slot\[\d+\] .*?type=\d+\((\w+)\).*? value=(\d+)", section)
    assert len(events) == 13, section
    return [(name, int(value)) for name, value in events]


def statistics(name: str, values: list[int], **labels: str) -> Values:
    """The composites of some observations: NAME_min, NAME_avg and NAME_max, over a minute."""
    found = {"min": min(values), "avg": sum(values) / len(values), "max": max(values)}
    return {series(f"{name}_{function}_1m", **labels): value for function, value in found.items()}


def histogram(name: str, bounds: list[float], values: list[int], **labels: str) -> Values:
    """The series of a classic histogram."""
    found = {series(f"{name}_bucket", **labels, le=f"{bound:.15g}"): sum(value <= bound for value in values) for bound in bounds}
    found[series(f"{name}_bucket", **labels, le="+Inf")] = len(values)
    return found | {series(f"{name}_count", **labels): len(values), series(f"{name}_sum", **labels): sum(values)}


def expected_composites(node: Node) -> Values:
    expected = statistics("router_wait", WAITS, model="llama") | node.times
    for agent, file in RINGS.items():
        times = [value for name, value in captured(file) if name == "agent_xfer_time"]
        expected |= statistics("xfer_time", times, agent_name=agent)
    waiting = [waits for waits, _ in ENGINES.values()]
    found = {"min": min(waiting), "avg": sum(waiting) / len(waiting), "max": max(waiting), "sum": sum(waiting)}
    return expected | {series(f"engine_waiting_{function}", model="llama"): value for function, value in found.items()}


def expected_totals(node: Node) -> Values:
    host = socket.gethostname()
    expected = {
        series("engine_requests_total", model="llama"): sum(total for _, total in ENGINES.values()),
        series("engine_waiting", model="llama"): sum(waits for waits, _ in ENGINES.values()),
        series("router_routed_total", model="llama"): sum(ROUTED),
    }
    expected |= histogram("router_wait", WAIT_BOUNDS, WAITS, model="llama") | node.buckets
    for agent, file in RINGS.items():
        times = [value for name, value in captured(file) if name == "agent_xfer_time"]
        expected |= histogram("agent_xfer_time_us", TIMES, times, agent_name=agent, hostname=host)
    for metric in (*COUNTERS, "xfer_time"):
        of_agents = {
            agent: sum(value for name, value in captured(file) if name == f"agent_{metric}") for agent, file in RINGS.items()
        }
        for agent in LIVE:
            of_agents[agent] = node.xfer_time(agent) if metric == "xfer_time" else node.did[agent][f"agent_{metric}"]
        for agent, total in of_agents.items():
            expected[series(f"agent_{metric}_total", agent_name=agent, hostname=host)] = total
        expected[series(f"nixl_node_{metric}_total", hostname=host)] = sum(of_agents.values())
    for status in STATUSES:
        errors = {agent: node.did[agent]["errors"].get(status, 0) if agent in LIVE else 0 for agent in (*RINGS, *LIVE)}
        for agent, count in errors.items():
            expected[series("agent_errors_total", agent_name=agent, hostname=host, status=status)] = count
        expected[series("nixl_node_errors_total", hostname=host, status=status)] = sum(errors.values())
    return expected


def samples(page: str) -> Values:
    """The samples of a page, by their series."""
    found = {}
    for name, labels, value in re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", page, re.MULTILINE):
        found[series(name, **dict(re.findall(r'(\w+)="([^"]*)"', labels)))] = float(value)
    return found


def points(request: Any) -> Iterator[tuple[Any, Any]]:
    """The points of an OTLP request, each with its metric."""
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in getattr(metric, metric.WhichOneof("data")).data_points:
                    yield metric, point


def newest(requests: list[Any]) -> Values:
    """The last values of OTLP requests, by the names that Prometheus gives them."""
    found = {}
    for metric, point in (each for request in requests for each in points(request)):
        name = metric.name.replace(".", "_")
        labels = {pair.key: pair.value.string_value for pair in point.attributes}
        if metric.WhichOneof("data") == "histogram":
            below = 0
            for bound, count in zip([*point.explicit_bounds, None], point.bucket_counts, strict=True):
                below += count
                found[series(f"{name}_bucket", **labels, le="+Inf" if bound is None else f"{bound:.15g}")] = below
            found[series(f"{name}_count", **labels)] = point.count
            found[series(f"{name}_sum", **labels)] = point.sum
            continue
        value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
        is_total = metric.WhichOneof("data") == "sum" and metric.sum.is_monotonic
        found[series(f"{name}_total" if is_total else name, **labels)] = value
    return found


@dataclass
class Node:
    """A gateway of the tarball with its peers."""

    folder: Path
    ports: dict[str, int]
    vendor: otlp.Grpc
    # What the live agents say that they did.
    did: dict[str, Any]
    # The times of their transfers: composites, and the series of a histogram.
    times: Values
    buckets: Values

    def get(self, port: str, path: str) -> str:
        page = kit.get(f"http://127.0.0.1:{self.ports[port]}{path}")
        assert page is not None, (port, path)
        return page

    def page(self) -> Values:
        return samples(self.get("PROMETHEUS", "/metrics"))

    def queried(self) -> Values:
        query = urllib.parse.quote('{__name__=~"(agent|engine|nixl|router|xfer)_.+"}')
        answer = json.loads(self.get("ADMIN", f"/api/v1/query?query={query}"))
        labels = ((one["metric"], one["value"][1]) for one in answer["data"]["result"])
        return {series(metric.pop("__name__"), **metric): float(value) for metric, value in labels}

    def composites(self) -> Values:
        entries = json.loads(self.get("ADMIN", "/api/v1/composites"))
        assert {entry["state"] for entry in entries} <= {"fresh", "absent"}, entries
        return {series(entry["name"], **entry["labels"]): entry["value"] for entry in entries}

    def written(self) -> list[Any]:
        """The requests in the file. The last line may be on its way."""
        *lines, _ = (self.folder / "metrics.jsonl").read_text().split("\n")
        return [json_format.Parse(line, service.ExportMetricsServiceRequest()) for line in lines]

    def own(self, name: str, **labels: str) -> int:
        """The sum of an own metric over the series with these labels."""
        chosen = labels.items()
        found = samples(self.get("OWN_METRICS", "/metrics")).items()
        return round(sum(value for (metric, its), value in found if metric == name and its >= chosen))

    def xfer_time(self, agent: str) -> float:
        """The time of all transfers of a live agent."""
        return self.buckets[series("agent_xfer_time_us_sum", agent_name=agent, hostname=socket.gethostname())]

    def learn_times(self) -> None:
        """Waits until the times of all transfers of live agents are there, and notes them. They must fit each other."""
        host = socket.gethostname()

        def of_live(found: Values, prefix: str) -> Values:
            chosen = ((name, labels) for name, labels in found if name.startswith(prefix))
            return {(name, labels): found[name, labels] for name, labels in chosen if dict(labels)["agent_name"] in LIVE}

        counts = {
            series("agent_xfer_time_us_count", agent_name=agent, hostname=host): self.did[agent]["transfers"] for agent in LIVE
        }
        wait_until_equal(lambda: of_live(self.page(), "agent_xfer_time_us_"), counts)
        self.buckets = of_live(self.page(), "agent_xfer_time_us_")
        self.times = of_live(self.composites(), "xfer_time_")
        for agent in LIVE:
            transfers = self.did[agent]["transfers"]
            least, mean, greatest = (
                self.times[series(f"xfer_time_{function}_1m", agent_name=agent)] for function in ("min", "avg", "max")
            )
            assert least <= mean == self.xfer_time(agent) / transfers <= greatest, agent
            for bound in TIMES:
                # The first bucket in use has the least time, and the last one the greatest.
                below = self.buckets[series("agent_xfer_time_us_bucket", agent_name=agent, hostname=host, le=f"{bound:.15g}")]
                assert (below > 0) == (least <= bound), (agent, bound)
                assert (below == transfers) == (greatest <= bound), (agent, bound)

    def send(self) -> None:
        """Each peer says what it has to say, once."""
        for agent, file in RINGS.items():
            # A ring appears as a whole.
            copy = shutil.copy(CAPTURES / file, self.folder / f"{agent}.new")
            os.rename(copy, self.folder / f"rings/{agent}")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as router:
            router.connect(str(self.folder / "statsd.sock"))
            for count in ROUTED:
                router.send(f"router.routed:{count}|c|#model:llama".encode())
            router.send("\n".join(f"router.wait:{wait}|h|#model:llama" for wait in WAITS).encode())
        with grpc.insecure_channel(f"127.0.0.1:{self.ports['OTLP_GRPC']}") as channel:
            answer = stubs.MetricsServiceStub(channel).Export(engines(), timeout=60)
        assert answer.partial_success.rejected_data_points == 0, answer


def engines() -> Any:
    """A push of all engines."""
    request, now = service.ExportMetricsServiceRequest(), time.time_ns()
    for engine, (waits, requests) in ENGINES.items():
        metrics = request.resource_metrics.add()
        metrics.resource.attributes.add(key="service.instance.id").value.string_value = engine
        scope = metrics.scope_metrics.add()
        gauge = scope.metrics.add(name="engine.waiting").gauge
        total = scope.metrics.add(name="engine.requests").sum
        total.is_monotonic, total.aggregation_temporality = True, 2
        began = now - 1_000_000_000
        for point in (
            gauge.data_points.add(time_unix_nano=now, as_int=waits),
            total.data_points.add(time_unix_nano=now, start_time_unix_nano=began, as_int=requests),
        ):
            point.attributes.add(key="model").value.string_value = "llama"
    return request


@contextmanager
def live_agents(rings: Path) -> Iterator[dict[str, Any]]:
    """Two agents of NIXL that exchange memory, and then live on. Gives what they did."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NIXL_")}
    environment = clean | {
        "NIXL_LOG_LEVEL": "ERROR",
        "NIXL_TELEMETRY_DIR": str(rings),
        "NIXL_TELEMETRY_ENABLE": "y",
        "PYTHONPATH": f"{kit.directory('nixl')}:{os.environ['PYTHONPATH']}",
    }
    command = [sys.executable, str(DRIVER), "--agents", ",".join(LIVE), "--transfers", str(TRANSFERS), "--hold"]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    limit = threading.Timer(120, process.kill)
    limit.start()
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        limit.cancel()
        assert said, f"the agents ended: {process.wait()}"
        yield json.loads(said)["agents"]
        process.communicate(timeout=120)
        assert process.returncode == 0
    finally:
        limit.cancel()
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("node")
    (folder / "rings").mkdir()
    unpacked = kit.unpack("tidegate-[0-9]*-linux.tar.gz", tmp_path_factory.mktemp("tarball"))
    vendor = otlp.Grpc()
    ports = {name: kit.free_port() for name in ("OTLP_GRPC", "PROMETHEUS", "HEALTH", "ADMIN", "OWN_METRICS")}
    variables = {f"{name}_ENDPOINT": f"127.0.0.1:{port}" for name, port in ports.items()}
    variables |= {"NIXL_TELEMETRY_DIR": str(folder / "rings"), "VENDOR_GRPC_ENDPOINT": vendor.address}
    variables |= {name: str(folder) for name in ("SOCKET_DIR", "OUTPUT_DIR")}
    # On a busy machine, the tests take longer than the windows of the example, and than its sources are silent.
    text = (unpacked / CONFIG).read_text()
    for short, long in (("window: 1m,", "window: 30m, lease: 30m,"), ("function: last,", "function: last, lease: 30m,")):
        assert short in text, short
        text = text.replace(short, long)
    config = folder / "node.yaml"
    config.write_text(text)
    try:
        with kit.running("./tidegate", "run", "--config", config, cwd=unpacked, env=os.environ | variables) as gateway:
            kit.wait_for(gateway, f"http://127.0.0.1:{ports['HEALTH']}/", "")
            with live_agents(folder / "rings") as did:
                started = Node(folder, ports, vendor, did, {}, {})
                started.send()
                started.learn_times()
                yield started
    finally:
        vendor.close()


def wait_until_equal(look: Callable[[], Values], expected: Values) -> None:
    """All series of the expected names are there with their values, and no others of these names."""
    names = {name for name, _ in expected}
    deadline = time.monotonic() + 120
    while True:
        found = {key: value for key, value in look().items() if key[0] in names}
        if found == expected:
            return
        if time.monotonic() > deadline:
            differing = {key: (found.get(key), expected.get(key)) for key in found.keys() | expected.keys()}
            raise AssertionError({key: pair for key, pair in differing.items() if pair[0] != pair[1]})
        time.sleep(0.05)


def test_every_interface_has_the_same_values(node: Node) -> None:
    composites, totals = expected_composites(node), expected_totals(node)
    # A table that lost a line would compare less.
    assert len(composites) == 19 and len(totals) == 189, (len(composites), len(totals))
    wait_until_equal(node.composites, composites)
    everything = composites | totals
    for look in (node.page, node.queried, lambda: newest(node.vendor.requests), lambda: newest(node.written())):
        wait_until_equal(look, everything)


def test_keda_gets_the_values_too(node: Node) -> None:
    scaler = Scaler(f"127.0.0.1:{node.ports['ADMIN']}")
    wait_until_equal(node.composites, expected_composites(node))
    wait_until_equal(node.queried, expected_totals(node))
    for (name, labels), value in expected_composites(node).items():
        group = ",".join("=".join(pair) for pair in labels)
        assert scaler.value(composite=name, labels=group, target="2") == value, name
    for (name, labels), value in expected_totals(node).items():
        selector = ",".join(f'{label}="{text}"' for label, text in labels)
        assert scaler.value(query=f"{name}{{{selector}}}", target="2") == value, name
    trigger = {"composite": "engine_waiting_sum", "labels": "model=llama", "target": "2"}
    waiting = sum(waits for waits, _ in ENGINES.values())
    assert scaler.is_active(**trigger, activation=str(waiting - 1))
    assert not scaler.is_active(**trigger, activation=str(waiting))
    scaler.close()


def test_its_own_counters_agree_with_its_peers(node: Node) -> None:
    events = sum(len(captured(file)) for file in RINGS.values())
    for did in node.did.values():
        events += EVENTS_PER_TRANSFER * did["transfers"] + EVENTS_OF_MEMORY + sum(did["errors"].values())
    sent = {"nixl": events, "uds": len(ROUTED) + len(WAITS), "otlp": 2 * len(ENGINES)}
    for receiver, count in sent.items():
        assert node.own("otelcol_receiver_accepted_metric_points", receiver=receiver) == count, receiver
    got = {
        "otlp": lambda: sum(len(list(points(request))) for request in list(node.vendor.requests)),
        "file": lambda: sum(len(list(points(request))) for request in node.written()),
    }
    deadline = time.monotonic() + 120
    for exporter, count in got.items():
        # The gateway goes on sending: the counter is right if it lies between two looks at the peer that are equal.
        while True:
            before = count()
            counter = node.own("otelcol_exporter_sent_metric_points", exporter=exporter)
            if before == counter == count() > 0:
                break
            assert time.monotonic() < deadline, (exporter, before, counter, count())
    for lost in ("tidegate_dropped_items_total", "tidegate_uds_rejected_events_total", "otelcol_exporter_send_failed_metric_points"):
        assert node.own(lost) == 0, lost
    first = "processors::composite@metrics"
    assert node.own("tidegate_component_items_total", component=first, flow="in") == sum(sent.values())
