# SPDX-License-Identifier: Apache-2.0

"""Gateways with data: the quickstart, the autoscaling example, a cluster, one with a broken vendor, and what reads them all.

The cluster has two replicas, a producer, and one that was killed.

What reads them: a Prometheus, and a gateway with `config/watch-gateways.yaml`.
"""

import http.server
import json
import os
import random
import re
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Callable

import engines
import kit
import yaml

CONFIG = kit.ROOT / "config"

# Seconds between two scrapes. A range of 4 of them always has two samples.
INTERVAL = 1

# The vendor of this configuration does not exist, and its queue holds 5 requests: it drops all further ones.
BROKEN = """
receivers: {otlp: {protocols: {http: {endpoint: "${env:OTLP_HTTP_ENDPOINT}"}}}}
processors:
  memory_limiter: {check_interval: 1s, limit_mib: 512}
  batch: {timeout: 100ms}
exporters:
  otlphttp/vendor:
    endpoint: "http://127.0.0.1:1"
    sending_queue: {queue_size: 5, on_full: drop}
extensions: {health_check: {endpoint: "${env:HEALTH_ENDPOINT}"}}
service:
  extensions: [health_check]
  drain_timeout: 1s
  telemetry: {metrics: {level: detailed, address: "${env:OWN_METRICS_ENDPOINT}"}}
  pipelines:
    metrics: {receivers: [otlp], processors: [memory_limiter, batch], exporters: [otlphttp/vendor]}
    logs: {receivers: [otlp], processors: [memory_limiter, batch], exporters: [otlphttp/vendor]}
    traces: {receivers: [otlp], processors: [memory_limiter, batch], exporters: [otlphttp/vendor]}
"""


def wait_for(what: str, condition: Callable[[], Any], seconds: float = 90) -> Any:
    """The first true result of a condition."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {seconds} s")


class Ports:
    """Ports that are free, each given once. They lie below those that connections and listeners on port 0 get: nothing takes
    them before their gateways do."""

    def __init__(self) -> None:
        self.held: list[socket.socket] = []

    def address(self) -> str:
        while True:
            port = random.randrange(10_000, 32_000)
            try:
                self.held.append(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return f"127.0.0.1:{port}"

    def release(self) -> None:
        while self.held:
            self.held.pop().close()


class Reader:
    """What answers PromQL at an address."""

    def __init__(self, name: str, address: str) -> None:
        self.name, self.address = name, address

    def get(self, path: str, **parameters: Any) -> Any:
        """The data of an answer. An error of the API is an assertion, with its text."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{self.name}: {parameters}: {error.read().decode()}") from error

    def answers(self) -> bool:
        try:
            return bool(self.get("query", query="vector(1)"))
        except (OSError, AssertionError):
            return False

    def value(self, query: str) -> float:
        """The value of a vector of one element; 0 if there is none."""
        result = self.get("query", query=query)["result"]
        return float(result[0]["value"][1]) if result else 0.0

    def graph(self, query: str, seconds: float) -> list[Any]:
        """The series of the last seconds, as Grafana asks for a graph."""
        now = time.time()
        return self.get("query_range", query=query, start=f"{now - seconds:.3f}", end=f"{now:.3f}", step=INTERVAL)["result"]


class Fleet:
    """All processes, in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.processes: list[subprocess.Popen[bytes]] = []
        self.servers: list[http.server.ThreadingHTTPServer] = []
        self.stopping = threading.Event()
        # By name, the variables of a gateway.
        self.gateways: dict[str, dict[str, str]] = {}
        self.ports = Ports()

    def __enter__(self) -> "Fleet":
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        # Nobody reads what they would still send.
        for process in self.processes:
            process.kill()
            process.wait()
        for server in self.servers:
            server.shutdown()

    def start(self) -> None:
        names = ("quickstart", "autoscaling", "replica", "second", "producer", "broken", "watcher")
        listeners = ("ADMIN", "PROMETHEUS", "HEALTH", "OWN_METRICS", "OTLP_GRPC", "OTLP_HTTP")
        self.gateways = {name: {f"{each}_ENDPOINT": self.ports.address() for each in listeners} for name in (*names, "killed")}
        killed = self.gateways.pop("killed")
        prometheus = self.ports.address()
        replicas = {name: self.ports.address() for name in ("replica", "second")}
        # These servers must not get the ports of the gateways.
        vllm = [self.serve(engines.vllm), self.serve(engines.vllm)]
        self.targets([self.serve(engines.sglang), self.serve(engines.dynamo)])
        self.ports.release()

        rings = self.directory / "rings"
        rings.mkdir()
        self.spawn("agents", kit.program("binary"), "ring", "sim", "--directory", rings, "--agents", "8", "--rate", "100")
        self.run("quickstart", *self.config("quickstart.yaml"), QUICKSTART_RINGS=str(rings))
        scraped = {"VLLM_A": vllm[0], "VLLM_B": vllm[1], "COMPOSITE_PAGE": str(self.directory / "page")}
        self.run("autoscaling", *self.config("autoscaling.yaml"), **scraped)
        self.cluster(replicas, killed)
        broken = self.directory / "broken.yaml"
        broken.write_text(BROKEN)
        self.run("broken", "run", f"--config={broken}")
        self.run("watcher", *self.watcher(), GATEWAYS=str(self.directory / "targets"))
        self.prometheus(prometheus)
        self.readers = [Reader("gateway", self.gateways["watcher"]["ADMIN_ENDPOINT"]), Reader("Prometheus", prometheus)]
        for reader in self.readers:
            wait_for(f"{reader.name} answers", reader.answers)
        threading.Thread(target=self.send, daemon=True).start()

    def cluster(self, replicas: dict[str, str], killed: dict[str, str]) -> None:
        common = {"CLUSTER_TOKEN": "a", "VENDOR_ENDPOINT": "http://127.0.0.1:1"}
        all_replicas = f"--set=extensions.cluster.engine.direct.replicas=[{', '.join(replicas.values())}]"
        for name, address in replicas.items():
            variables = {**common, "CLUSTER_ENDPOINT": address, "REPLICA_NAME": name}
            self.run(name, *self.config("cluster-replica.yaml"), all_replicas, **variables)
        producer = [*self.config("cluster-producer.yaml"), all_replicas]
        self.run("producer", *producer, **common)
        # No reader knows its own metrics: it is silent, and its target is not down.
        environment = {**os.environ, **killed, **common, "NODE_NAME": "node-b"}
        self.spawn("killed", kit.program("binary"), *producer, env=environment)
        for name in replicas:
            url = f"http://{self.gateways[name]['OWN_METRICS_ENDPOINT']}/metrics"
            wait_for(f"both producers of {name}", lambda: re.search(r'cluster_producers\{.*"reporting".*\} 2$', page(url), re.MULTILINE))
        self.processes[-1].kill()

    def config(self, name: str) -> list[str]:
        return ["run", f"--config={CONFIG / name}"]

    def watcher(self) -> list[str]:
        """The example with shorter intervals."""
        text = (CONFIG / "watch-gateways.yaml").read_text()
        for old, new in [("{scrape_interval: 5s, scrape_timeout: 4s}", "{scrape_interval: 1s}"), ("{interval: 5s, ", "{interval: 1s, ")]:
            assert old in text, old
            text = text.replace(old, new)
        file = self.directory / "watcher.yaml"
        file.write_text(text)
        return ["run", f"--config={file}"]

    def run(self, name: str, *arguments: str | Path, **variables: str) -> None:
        environment = {**os.environ, **self.gateways[name], **variables}
        self.spawn(name, kit.program("binary"), *arguments, env=environment)

    def spawn(self, name: str, *command: str | Path, **options: Any) -> None:
        with (self.directory / f"{name}.log").open("wb") as log:
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, **options))

    def targets(self, scraped: list[str]) -> None:
        """The files of targets that both readers have. Engines have no gateway before them here."""
        own = [self.gateways[name]["OWN_METRICS_ENDPOINT"] for name in self.gateways]
        data = [self.gateways[name]["PROMETHEUS_ENDPOINT"] for name in ("quickstart", "autoscaling", "replica")]
        folder = self.directory / "targets"
        folder.mkdir()
        (folder / "own.yaml").write_text(yaml.safe_dump([{"targets": own}]))
        (folder / "data.yaml").write_text(yaml.safe_dump([{"targets": [*data, *scraped]}]))

    def prometheus(self, address: str) -> None:
        # The part of Compose, with the targets above.
        config = yaml.safe_load((kit.DEPLOY / "compose/prometheus.yaml").read_text())
        config["global"] = {f"{what}_interval": f"{INTERVAL}s" for what in ("scrape", "evaluation")}
        config["global"]["scrape_timeout"] = f"{INTERVAL}s"
        config["rule_files"] = [str(kit.DEPLOY / "alerts/tidegate.yaml")]
        for job, file in zip(config["scrape_configs"], ("data", "own"), strict=True):
            del job["static_configs"]
            job["file_sd_configs"] = [{"files": [str(self.directory / f"targets/{file}.yaml")]}]
        file = self.directory / "prometheus.yaml"
        file.write_text(yaml.safe_dump(config))
        storage = f"--storage.tsdb.path={self.directory / 'prometheus'}"
        self.spawn("prometheus", kit.program("prometheus"), f"--config.file={file}", storage, f"--web.listen-address={address}")

    def serve(self, page: Callable[[float], str]) -> str:
        server = engines.serve(page)
        self.servers.append(server)
        return f"127.0.0.1:{server.server_port}"

    def send(self) -> None:
        """Sends a point, a span and a log record to each gateway that takes them, ten times a second."""
        count = 0
        while not self.stopping.wait(0.1):
            count += 1
            for name, signal in (("producer", "metrics"), ("broken", "metrics"), ("broken", "traces"), ("broken", "logs")):
                try:
                    post(self.gateways[name]["OTLP_HTTP_ENDPOINT"], signal, count)
                except OSError:
                    pass  # It starts, or refuses for its full queue.


def page(url: str) -> str:
    """The page, or nothing while nobody serves it."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return str(answer.read(), "utf-8")
    except OSError:
        return ""


def post(address: str, signal: str, count: int) -> None:
    now = str(time.time_ns())
    point = {"timeUnixNano": now, "startTimeUnixNano": "1", "asInt": str(count)}
    items: dict[str, tuple[str, str, dict[str, Any]]] = {
        "metrics": ("resourceMetrics", "scopeMetrics", {"metrics": [{"name": "jobs", "sum": {"dataPoints": [point], "aggregationTemporality": 2, "isMonotonic": True}}]}),
        "traces": ("resourceSpans", "scopeSpans", {"spans": [{"traceId": f"{count:032x}", "spanId": f"{count:016x}", "name": "a", "startTimeUnixNano": now, "endTimeUnixNano": now}]}),
        "logs": ("resourceLogs", "scopeLogs", {"logRecords": [{"timeUnixNano": now, "body": {"stringValue": "a"}}]}),
    }
    resources, scopes, content = items[signal]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "jobs"}}, {"key": "service.instance.id", "value": {"stringValue": "a"}}]}
    body = json.dumps({resources: [{"resource": resource, scopes: [content]}]}).encode()
    request = urllib.request.Request(f"http://{address}/v1/{signal}", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        answer.read()
