# SPDX-License-Identifier: Apache-2.0

"""Jobs and targets from the target allocator of the OpenTelemetry operator. What gateways show is compared with what targets serve."""

import base64
import re
import subprocess
import threading
import zlib
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import allocator
import custom
import gateway
import server
import test_discovery

GATES = ("gate-0", "gate-1")
STATIC = {f"/static-{number}" for number in range(6)}
# The header in which gateways say their names to targets.
NAME = "X-Gateway"


def served(path: str) -> int:
    """The value of a target."""
    return zlib.crc32(path.encode())


class Request(NamedTuple):
    """What a target has been asked."""

    path: str
    gateway: str
    authorization: str


class Target(BaseHTTPRequestHandler):
    """A page for each path."""

    def do_GET(self) -> None:
        assert isinstance(self.server, Targets)
        request = Request(self.path, self.headers.get(NAME, ""), self.headers.get("Authorization", ""))
        self.server.requests.append(request)
        body = f'# TYPE hits counter\nhits_total{{path="{self.path}"}} {served(self.path)}\nnoise 1\n'.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Targets(ThreadingHTTPServer):
    """All targets: the path of a request is the address of one."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Target)
        self.requests: list[Request] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class Gate:
    """A gateway that is a collector for the allocator."""

    def __init__(self, directory: Path, name: str, options: dict[str, Any]) -> None:
        self.name, self.page = name, server.free_port()
        base = {
            "interval": "1s",
            "collector_id": name,
            "http_sd_config": {"refresh_interval": "1s"},
        }
        config = {
            "receivers": {"prometheus": {"target_allocator": base | options}},
            "exporters": {"prometheus": {"endpoint": f"127.0.0.1:{self.page}"}},
            "service": {"pipelines": {"metrics": {"receivers": ["prometheus"], "exporters": ["prometheus"]}}},
        }
        self.running = gateway.Gateway(directory, name, config, self.page)

    def close(self) -> None:
        self.running.kill()

    def shown(self) -> dict[str, dict[str, str]]:
        """The labels of the targets on the page. Their values are those of the targets."""
        lines = re.findall(r"^hits_total\{(.*)\} (\S+)", gateway.get(self.page, "/metrics"), re.MULTILINE)
        found = {}
        for text, value in lines:
            labels = dict(re.findall(r'(\w+)="([^"]*)"', text))
            assert float(value) == served(labels["path"]), text
            assert labels["path"] not in found, "one series for each target"
            found[labels["path"]] = labels
        return found


def relabelings(port: int, source: str, target: str) -> list[dict[str, Any]]:
    """A target is a path of the server, named after its address. `source` and `target` are the names of the fields."""
    return [
        {source: ["__address__"], target: "instance"},
        {source: ["__address__"], "regex": "(.+):.*", target: "__metrics_path__", "replacement": "/$1"},
        {target: "__address__", "replacement": f"127.0.0.1:{port}"},
    ]


def monitor(port: int) -> server.Object:
    own = [
        {"targetLabel": "team", "replacement": "core"},
        {"sourceLabels": ["__meta_kubernetes_service_label_app"], "targetLabel": "app"},
    ]
    endpoint = {
        "port": "web",
        "interval": "1s",
        "relabelings": relabelings(port, "sourceLabels", "targetLabel") + own,
        "metricRelabelings": [{"sourceLabels": ["__name__"], "regex": "noise", "action": "drop"}],
    }
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "endpoints": [endpoint]},
    }


def pod_monitor(port: int) -> server.Object:
    endpoint = {"port": "web", "interval": "1s", "relabelings": relabelings(port, "sourceLabels", "targetLabel")}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "podMetricsEndpoints": [endpoint]},
    }


def pod_address(number: int) -> str:
    return f"10.0.2.{number + 1}"


def slice_of(numbers: range) -> server.Object:
    ready = {test_discovery.address(number): True for number in numbers}
    return test_discovery.endpoints("shop", "web", 8080, ready)


def of_slice(numbers: range) -> set[str]:
    return {f"/{test_discovery.address(number)}" for number in numbers}


def create_collector(api: server.Server, number: int) -> None:
    at = f"10.0.3.{number + 1}"
    test_discovery.create_pod(api, GATES[number], 4317, at, namespace=allocator.NAMESPACE, labels=allocator.SELECTED)


def delete_pod(api: server.Server, namespace: str, name: str) -> None:
    api.delete({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": namespace, "name": name}})


def static_job(port: int) -> dict[str, Any]:
    # With `labels` beside `targets`, the rules of this allocator do not see the address, and all targets are one.
    own = {"target_label": "site", "replacement": "a"}
    return {
        "job_name": "static/a b",
        "scrape_interval": "1s",
        "static_configs": [{"targets": [f"{path[1:]}:80" for path in sorted(STATIC)]}],
        "relabel_configs": [*relabelings(port, "source_labels", "target_label"), own],
    }


def wait_until_divided(targets: Targets, gates: list[Gate], expected: set[str], sharing: tuple[str, ...] = GATES) -> None:
    """Waits until each target is on the page of one gateway, and that gateway alone scrapes it: three times at least."""

    def scraped_since(begin: int) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for request in targets.requests[begin:]:
            found.setdefault(request.path, []).append(request.gateway)
        return found

    def is_divided() -> bool:
        begin = len(targets.requests)
        enough = lambda: all(len(scraped_since(begin).get(path, [])) >= 3 for path in expected)  # noqa: E731
        server.wait_until("all targets are scraped", enough)
        scraped = {(path, name) for path, names in scraped_since(begin).items() for name in names}
        shown = {(path, gate.name) for gate in gates for path in gate.shown()}
        paths, names = [path for path, _ in shown], {name for _, name in shown}
        return scraped == shown and sorted(paths) == sorted(expected) and names == set(sharing)

    server.wait_until(f"{len(expected)} targets are divided among {sharing}", is_divided)


def header(name: str) -> dict[str, Any]:
    return {"http_headers": {NAME: {"values": [name]}}}


def failures(gate: Gate) -> float:
    return gate.running.metric("tidegate_scrape_discovery_failures_total", 'reason="target_allocator"')


def test_gateways_share_the_targets_of_a_real_allocator(api: server.Server, tmp_path: Path) -> None:
    custom.install(api)
    api.namespace("shop")
    api.namespace(allocator.NAMESPACE)
    for number in range(len(GATES)):
        create_collector(api, number)
    with ExitStack() as stack:
        targets = stack.enter_context(closing(Targets()))
        port = targets.server_port
        options = {
            "config": {"scrape_configs": [static_job(port)]},
            "prometheus_cr": {"enabled": True, "service_monitor_selector": {}, "pod_monitor_selector": {}},
        }
        peer = stack.enter_context(closing(allocator.Allocator(tmp_path, api.kubeconfig(server.TOKEN), options)))
        gates = [
            stack.enter_context(closing(Gate(tmp_path, name, {"endpoint": peer.url, "http_scrape_config": header(name)})))
            for name in GATES
        ]
        wait_until_divided(targets, gates, STATIC)

        api.create(test_discovery.service("shop", "web", 8080))
        api.create(slice_of(range(12)))
        api.create(monitor(port))
        for number in range(6):
            test_discovery.create_pod(api, f"web-{number}", 8080, pod_address(number))
        api.create(pod_monitor(port))
        pods = {f"/{pod_address(number)}" for number in range(6)}
        wait_until_divided(targets, gates, STATIC | pods | of_slice(range(12)))
        labels = {path: found for gate in gates for path, found in gate.shown().items()}
        # The labels of the objects, those of the operator and those of the monitor.
        of_service = {"namespace": "shop", "service": "web", "endpoint": "web", "job": "web", "team": "core", "app": "web"}
        for path in of_slice(range(12)):
            assert (of_service | {"instance": f"{path[1:]}:8080"}).items() <= labels[path].items()
        for number in range(6):
            of_pod = {"namespace": "shop", "pod": f"web-{number}", "container": "app", "job": "shop/web"}
            assert of_pod.items() <= labels[f"/{pod_address(number)}"].items()
        for path in STATIC:
            assert {"job": "static/a b", "site": "a"}.items() <= labels[path].items()
        pages = [gateway.get(gate.page, "/metrics") for gate in gates]
        noise = [line for page in pages for line in page.splitlines() if line.startswith("noise{")]
        assert len(noise) == len(STATIC | pods), "the monitor of services drops this metric"

        # Changes of the objects are followed.
        api.patch(slice_of(range(12)), {"endpoints": slice_of(range(1, 13))["endpoints"]})
        delete_pod(api, "shop", "web-0")
        pods.remove(f"/{pod_address(0)}")
        wait_until_divided(targets, gates, STATIC | pods | of_slice(range(1, 13)))

        # While the allocator is away, its last answers stay.
        peer.close()
        before = [failures(gate) for gate in gates]
        api.patch(slice_of(range(12)), {"endpoints": slice_of(range(2, 14))["endpoints"]})
        shares = [set(gate.shown()) for gate in gates]
        server.wait_until("the failures are counted", lambda: all(failures(gate) > count + 3 for gate, count in zip(gates, before)))
        wait_until_divided(targets, gates, STATIC | pods | of_slice(range(1, 13)))
        assert [set(gate.shown()) for gate in gates] == shares
        peer.start()
        wait_until_divided(targets, gates, STATIC | pods | of_slice(range(2, 14)))

        # The targets of a collector whose pod is gone move to the other one, and come back with it.
        delete_pod(api, allocator.NAMESPACE, GATES[1])
        wait_until_divided(targets, gates, STATIC | pods | of_slice(range(2, 14)), sharing=GATES[:1])
        create_collector(api, 1)
        wait_until_divided(targets, gates, STATIC | pods | of_slice(range(2, 14)))
        api.delete(monitor(port))
        wait_until_divided(targets, gates, STATIC | pods)


def certificates(directory: Path) -> dict[str, Path]:
    """An authority, and the certificates of the allocator and of a collector."""
    found = {f"{name}.{kind}": directory / f"{name}.{kind}" for name in ("ca", "server", "client") for kind in ("crt", "key")}
    signed = ["-CA", found["ca.crt"], "-CAkey", found["ca.key"], "-addext", "basicConstraints=critical,CA:FALSE"]
    extensions = {
        "ca": ["-addext", "keyUsage=critical,keyCertSign"],
        "server": [*signed, "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "extendedKeyUsage=serverAuth"],
        "client": [*signed, "-addext", "extendedKeyUsage=clientAuth"],
    }
    for name, own in extensions.items():
        files = ["-keyout", found[f"{name}.key"], "-out", found[f"{name}.crt"], "-subj", f"/CN={name}"]
        kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        subprocess.run(["openssl", "req", *kind, *files, *own], check=True, capture_output=True)
    return found


def secret() -> server.Object:
    metadata = {"name": "reader", "namespace": "shop"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"user": "reader", "password": "hunter2"}}


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"reader:{password}".encode()).decode()


def test_credentials_of_objects_arrive_over_https_only(api: server.Server, tmp_path: Path) -> None:
    custom.install(api)
    api.namespace("shop")
    api.namespace(allocator.NAMESPACE)
    for number in range(len(GATES)):
        create_collector(api, number)
    api.create(secret())
    api.create(test_discovery.service("shop", "web", 8080))
    api.create(slice_of(range(12)))
    with ExitStack() as stack:
        targets = stack.enter_context(closing(Targets()))
        found = monitor(targets.server_port)
        keys = {"username": "user", "password": "password"}
        found["spec"]["endpoints"][0]["basicAuth"] = {key: {"name": "reader", "key": of} for key, of in keys.items()}
        api.create(found)
        files, port = certificates(tmp_path), server.free_port()
        https = {
            "enabled": True,
            "listen_addr": f"127.0.0.1:{port}",
            "ca_file_path": str(files["ca.crt"]),
            "tls_cert_file_path": str(files["server.crt"]),
            "tls_key_file_path": str(files["server.key"]),
        }
        options = {"prometheus_cr": {"enabled": True, "service_monitor_selector": {}}, "https": https}
        peer = stack.enter_context(closing(allocator.Allocator(tmp_path, api.kubeconfig(server.TOKEN), options)))
        tls = {"ca_file": str(files["ca.crt"]), "cert_file": str(files["client.crt"]), "key_file": str(files["client.key"])}
        clients = [{"endpoint": f"https://127.0.0.1:{port}", "tls": tls}, {"endpoint": peer.url}]
        gates = [stack.enter_context(closing(Gate(tmp_path, name, own))) for name, own in zip(GATES, clients)]
        server.wait_until("all targets are shown", lambda: {path for gate in gates for path in gate.shown()} == of_slice(range(12)))
        shares = [set(gate.shown()) for gate in gates]
        assert all(shares)
        # Without TLS, the allocator hides the password.
        for share, password in zip(shares, ("hunter2", "<secret>")):
            sent = {request.authorization for request in targets.requests if request.path in share}
            assert sent == {basic(password)}
