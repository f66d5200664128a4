# SPDX-License-Identifier: Apache-2.0

"""Discovery of targets and endpoints, with the rights that the documentation names."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import custom
import gateway
import kit
import pytest
import server
import test_objects
import yaml

ACCOUNT = "discoverer"
TARGETS = 40


class Target(BaseHTTPRequestHandler):
    """A page with one counter, for each path."""

    def do_GET(self) -> None:
        body = b"# TYPE hits counter\nhits_total 7\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def targets() -> Iterator[int]:
    """The port of a server that stands for all targets: slices must not have loopback addresses."""
    listener = ThreadingHTTPServer(("127.0.0.1", 0), Target)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    try:
        yield listener.server_port
    finally:
        listener.shutdown()


def documented(file: str, kind: str, name: str) -> server.Object:
    found = [document for document in test_objects.documented() if document["metadata"]["name"] == name]
    assert [document["kind"] for document in found] == [kind], f"{name} in {file}"
    return found[0]


def of_operator() -> server.Object:
    """The rights for the operator's objects, which the documentation lists as rules."""
    text = (kit.ROOT / "docs/scraping.md").read_text()
    (block,) = re.findall(r"^```yaml\n(rules:\n  - {apiGroups: \[monitoring.*?)^```", text, re.MULTILINE | re.DOTALL)
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "operator"}}
    return role | yaml.safe_load(block)


def allow(api: server.Server, role: server.Object) -> None:
    """Creates a role and gives it to the account."""
    api.create(role)
    name, kind = role["metadata"]["name"], role["kind"]
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": f"{kind}Binding",
        "metadata": {"name": name, "namespace": kit.NAMESPACE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": kit.NAMESPACE}],
    }
    api.create(binding)


@pytest.fixture
def account(api: server.Server) -> str:
    api.namespace(kit.NAMESPACE)
    api.namespace("shop")
    metadata = {"name": ACCOUNT, "namespace": kit.NAMESPACE}
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    return str(api.kubeconfig(api.token(kit.NAMESPACE, ACCOUNT)))


def service(namespace: str, name: str, port: int) -> server.Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {"clusterIP": "None", "ports": [{"name": "web", "port": port}]},
    }


def endpoints(namespace: str, name: str, port: int, ready: dict[str, bool]) -> server.Object:
    """The slice of a service, as its controller makes it."""
    of_service = {"kubernetes.io/service-name": name, "app": name}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"{name}-1", "namespace": namespace, "labels": of_service},
        "addressType": "IPv4",
        "ports": [{"name": "web", "port": port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [at], "conditions": {"ready": is_ready}} for at, is_ready in ready.items()],
    }


def legacy_endpoints(namespace: str, name: str, port: int, address: str) -> server.Object:
    """The endpoints of a service in the form before slices."""
    subset = {"addresses": [{"ip": address}], "ports": [{"name": "web", "port": port}]}
    return {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "subsets": [subset],
    }


def ingress(namespace: str, name: str, port: int) -> server.Object:
    backend = {"service": {"name": name, "port": {"number": port}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"rules": [{"host": "web.example.com", "http": {"paths": [path]}}]},
    }


def create_pod(
    api: server.Server, name: str, port: int, address: str, *, namespace: str = "shop", labels: dict[str, str] | None = None, named: str = "web"
) -> None:
    """A pod that runs, as a kubelet says it. `named` is the name of its port."""
    container = {"name": "app", "image": "app:1", "ports": [{"name": named, "containerPort": port}]}
    spec = {"nodeName": "node-1", "containers": [container]}
    metadata = {"name": name, "namespace": namespace, "labels": labels or {"app": "web"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    api.create(pod)
    running_at = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    api.patch(pod, {"status": running_at}, "/status")


def address(number: int) -> str:
    return f"10.0.1.{number + 1}"


def monitor(port: int) -> server.Object:
    # The target keeps its own address as its instance.
    relabelings = [
        {"sourceLabels": ["__address__"], "targetLabel": "instance"},
        {"targetLabel": "__address__", "replacement": f"127.0.0.1:{port}"},
    ]
    endpoint = {"port": "web", "interval": "1s", "relabelings": relabelings}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "endpoints": [endpoint]},
    }


def lines(page: int) -> list[str]:
    return [line for line in gateway.get(page, "/metrics").splitlines() if line.startswith("hits_total{")]


def labels_of(line: str) -> dict[str, str]:
    """The labels of a line without those of its scope."""
    labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
    return {name: value for name, value in labels.items() if not name.startswith("otel_scope_")}


def scraping(directory: Path, receiver: server.Object) -> tuple[gateway.Gateway, int]:
    page = server.free_port()
    config = {
        "receivers": {"prometheus": receiver},
        "exporters": {"prometheus": {"endpoint": f"127.0.0.1:{page}"}},
        "service": {"pipelines": {"metrics": {"receivers": ["prometheus"], "exporters": ["prometheus"]}}},
    }
    return gateway.Gateway(directory, "scraping", config, page), page


def test_targets_of_a_service_monitor_are_scraped_and_followed(api: server.Server, account: str, tmp_path: Path) -> None:
    custom.install(api)
    allow(api, of_operator())
    with targets() as port:
        api.create(service("shop", "web", port))
        slice_of = endpoints("shop", "web", port, {address(number): True for number in range(TARGETS)})
        api.create(slice_of)
        options = {"enabled": True, "service_monitor_selector": {}, "kubeconfig_file": account}
        running, page = scraping(tmp_path, {"prometheus_cr": options})
        try:
            assert lines(page) == []
            api.create(monitor(port))
            server.wait_until("all targets are scraped", lambda: len(lines(page)) == TARGETS)
            assert all('namespace="shop"' in line and 'service="web"' in line for line in lines(page))
            # A target leaves, and the watch goes on after a restart of the server.
            api.patch(slice_of, {"endpoints": slice_of["endpoints"][1:]})
            server.wait_until("its series ends", lambda: len(lines(page)) == TARGETS - 1)
            api.kill()
            assert len(lines(page)) == TARGETS - 1
            api.start()
            api.patch(slice_of, {"endpoints": slice_of["endpoints"][2:]})
            server.wait_until("another series ends", lambda: len(lines(page)) == TARGETS - 2)
            api.delete(monitor(port))
            server.wait_until("the job is gone", lambda: lines(page) == [])
        finally:
            running.kill()


def pod_monitor(port: int) -> server.Object:
    # Targets are pods, which have no page here.
    relabelings = [{"targetLabel": "__address__", "replacement": f"127.0.0.1:{port}"}]
    endpoint = {"port": "web", "interval": "1s", "relabelings": relabelings}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "podMetricsEndpoints": [endpoint]},
    }


def scrape_config(port: int) -> server.Object:
    target = {"targets": [f"127.0.0.1:{port}"], "labels": {"pod": "web-1"}}
    return {
        "apiVersion": "monitoring.coreos.com/v1alpha1",
        "kind": "ScrapeConfig",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"scrapeInterval": "1s", "staticConfigs": [target]},
    }


@pytest.mark.parametrize("kind", ["pod_monitor", "scrape_config"])
def test_other_objects_of_the_operator_are_jobs(api: server.Server, account: str, tmp_path: Path, kind: str) -> None:
    custom.install(api)
    allow(api, of_operator())
    with targets() as port:
        create_pod(api, "web-1", port, address(0))
        found = pod_monitor(port) if kind == "pod_monitor" else scrape_config(port)
        options = {"enabled": True, f"{kind}_selector": {}, "kubeconfig_file": account}
        running, page = scraping(tmp_path, {"prometheus_cr": options})
        try:
            assert lines(page) == []
            api.create(found)
            server.wait_until("the target is scraped", lambda: any('pod="web-1"' in line for line in lines(page)))
            api.delete(found)
            server.wait_until("the job is gone", lambda: lines(page) == [])
        finally:
            running.kill()


def test_the_pod_monitor_of_the_chart_is_a_job(api: server.Server, account: str, tmp_path: Path) -> None:
    custom.install(api)
    allow(api, of_operator())
    (agent,) = (values for values in kit.COLLECTORS if values.stem == "agent")
    found = {each["kind"]: each for each in kit.collector_objects(agent) if each["kind"] in ("DaemonSet", "PodMonitor")}
    monitor, workload = found["PodMonitor"], found["DaemonSet"]
    labels = workload["spec"]["template"]["metadata"]["labels"]
    options = {"enabled": True, "pod_monitor_selector": {"match_labels": {"release": "prometheus"}}, "scrape_interval": "1s"}
    with targets() as port:
        # The address of a pod of this node, so that the object needs no relabelling.
        create_pod(api, "agent-1", port, "127.0.0.1", namespace=kit.NAMESPACE, labels=labels, named="metrics")
        create_pod(api, "other-1", port, "127.0.0.1", namespace=kit.NAMESPACE, named="metrics")
        running, page = scraping(tmp_path, {"prometheus_cr": options | {"kubeconfig_file": account}})
        try:
            api.create(monitor)
            server.wait_until("the pod of the chart is scraped", lambda: any('pod="agent-1"' in line for line in lines(page)))
            of_state = lambda state: running.metric("tidegate_scrape_targets", f'state="{state}"')  # noqa: E731
            server.wait_until("it is the only target", lambda: [*map(of_state, ("up", "down", "unknown"))] == [1, 0, 0])
            (line,) = lines(page)
            assert f'job="{kit.NAMESPACE}/{monitor["metadata"]["name"]}"' in line and 'endpoint="metrics"' in line
        finally:
            running.kill()


def owned_by(version: str, kind: str, name: str) -> list[server.Object]:
    return [{"apiVersion": version, "kind": kind, "name": name, "uid": f"of-{name}", "controller": True}]


def create_workloads(api: server.Server) -> None:
    """The ReplicaSet of a Deployment and the Job of a CronJob."""
    containers = [{"name": "app", "image": "app:1"}]
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}}
    of_set = {"name": "web-5d", "namespace": "shop", "ownerReferences": owned_by("apps/v1", "Deployment", "web")}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    api.create({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": of_set, "spec": spec})
    of_job = {"name": "report-29", "namespace": "shop", "ownerReferences": owned_by("batch/v1", "CronJob", "report")}
    once = {"template": {"spec": {"containers": containers, "restartPolicy": "Never"}}}
    api.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": of_job, "spec": once})


def create_owned_pod(api: server.Server, name: str, port: int, address: str, owner: list[server.Object]) -> str:
    """The uid of a new pod with an owner. It runs."""
    create_pod(api, name, port, address)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop"}}
    api.patch(pod, {"metadata": {"ownerReferences": owner, "annotations": {"team/unit": "7"}}})
    container = {"name": "app", "image": "app:1", "imageID": "app:1", "containerID": "containerd://4a", "ready": True, "restartCount": 0}
    conditions = [{"type": "Ready", "status": "True"}]
    api.patch(pod, {"status": {"containerStatuses": [container], "conditions": conditions, "hostIP": "10.0.2.1"}}, "/status")
    return api.request("GET", api.path(pod, name=True))["metadata"]["uid"]


def create_node(api: server.Server) -> None:
    labels = {"topology.kubernetes.io/zone": "eu-1a"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "labels": labels}, "spec": {"providerID": "cloud://1"}}
    api.create(node)
    addresses = [{"type": "InternalIP", "address": "10.0.2.1"}, {"type": "Hostname", "address": "node-1"}]
    kubelet = {"kubeletEndpoint": {"Port": 10250}}
    conditions = [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}]
    api.patch(node, {"status": {"addresses": addresses, "daemonEndpoints": kubelet, "conditions": conditions}}, "/status")


def present(of: str, name: str, value: str, what: str = "label") -> dict[str, str]:
    return {f"{of}_{what}_{name}": value, f"{of}_{what}present_{name}": "true"}


def expected_targets(role: str, port: int, uids: dict[str, str]) -> list[dict[str, str]]:
    """The labels that Prometheus 3.16 finds, without `__meta_kubernetes_`."""
    number = str(port)
    target = {"instance": f"127.0.0.1:{port}", "job": "found"}
    zone = present("node", "topology_kubernetes_io_zone", "eu-1a")
    namespace = {"namespace": "shop"} | present("namespace", "kubernetes_io_metadata_name", "shop")
    on_node = zone | {"node_name": "node-1"}
    of_service = {"service_name": "web"} | present("service", "app", "web")
    container = {
        "pod_container_name": "app",
        "pod_container_image": "app:1",
        "pod_container_init": "false",
        "pod_container_port_name": "web",
        "pod_container_port_number": number,
        "pod_container_port_protocol": "TCP",
    }

    def pod(name: str, at: str, kind: str, controller: str) -> dict[str, str]:
        of_pod = {"ip": at, "name": name, "uid": uids[name], "phase": "Running", "ready": "true", "host_ip": "10.0.2.1"}
        of_pod |= {"node_name": "node-1", "controller_kind": kind, "controller_name": controller}
        named = {f"pod_{key}": value for key, value in of_pod.items()}
        # The server gives a pod the zone of its node.
        labels = present("pod", "app", "web") | present("pod", "topology_kubernetes_io_zone", "eu-1a")
        return named | labels | present("pod", "team_unit", "7", "annotation") | container

    web = pod("web-1", address(0), "ReplicaSet", "web-5d") | {"pod_deployment_name": "web"}
    report = pod("report-1", address(1), "Job", "report-29") | {"pod_job_name": "report-29", "pod_cronjob_name": "report"}
    of_web = {"address": f"{address(0)}:{port}"} | target | namespace | on_node | web
    match role:
        case "pod":
            of_report = {"address": f"{address(1)}:{port}"} | target | namespace | on_node | report
            container_id = {"pod_container_id": "containerd://4a"}
            return [of_report | container_id, of_web | container_id]
        case "endpoints":
            of_port = {"port_name": "web", "port_protocol": "TCP", "ready": "true", "node_name": "node-1"}
            of_port |= {"address_target_kind": "Pod", "address_target_name": "web-1"}
            named = {f"endpoint_{key}": value for key, value in of_port.items()}
            return [of_web | of_service | named | {"endpoints_name": "web"} | present("endpoints", "app", "web")]
        case "endpointslice":
            of_slice = {"name": "web-1", "address_type": "IPv4", "port": number, "port_name": "web", "port_protocol": "TCP"}
            of_slice |= {"address_target_kind": "Pod", "address_target_name": "web-1"}
            of_slice |= {"endpoint_conditions_ready": "true", "endpoint_node_name": "node-1", "endpoint_zone": "eu-1a"}
            named = {f"endpointslice_{key}": value for key, value in of_slice.items()}
            service_name = present("endpointslice", "kubernetes_io_service_name", "web")
            return [of_web | of_service | named | service_name | present("endpointslice", "app", "web")]
        case "service":
            of_port = {"cluster_ip": "None", "type": "ClusterIP", "port_name": "web", "port_number": number, "port_protocol": "TCP"}
            named = {f"service_{key}": value for key, value in of_port.items()}
            return [{"address": f"web.shop.svc:{port}"} | target | namespace | of_service | named]
        case "ingress":
            of_path = {"name": "web", "host": "web.example.com", "path": "/", "scheme": "http"}
            return [{"address": "web.example.com"} | target | namespace | {f"ingress_{key}": value for key, value in of_path.items()}]
        case _:
            of_node = {"provider_id": "cloud://1", "address_InternalIP": "10.0.2.1", "address_Hostname": "node-1"}
            of_node |= {"condition_ready": "true", "condition_diskpressure": "false"}
            named = {f"node_{key}": value for key, value in of_node.items()}
            return [{"address": "10.0.2.1:10250", "instance": "node-1", "job": "found"} | on_node | named]


@pytest.mark.parametrize("role", ["endpointslice", "endpoints", "service", "pod", "node", "ingress"])
def test_each_role_finds_its_objects(api: server.Server, account: str, tmp_path: Path, role: str) -> None:
    allow(api, documented("docs/scraping.md", "ClusterRole", "tidegate-discovery"))
    with targets() as port:
        create_node(api)
        create_workloads(api)
        uids = {
            "web-1": create_owned_pod(api, "web-1", port, address(0), owned_by("apps/v1", "ReplicaSet", "web-5d")),
            "report-1": create_owned_pod(api, "report-1", port, address(1), owned_by("batch/v1", "Job", "report-29")),
        }
        of_pod = {"nodeName": "node-1", "targetRef": {"kind": "Pod", "namespace": "shop", "name": "web-1"}}
        slice_of = endpoints("shop", "web", port, {address(0): True})
        slice_of["endpoints"][0] |= of_pod | {"zone": "eu-1a"}
        legacy = legacy_endpoints("shop", "web", port, address(0))
        legacy["subsets"][0]["addresses"][0] |= of_pod
        for found in (service("shop", "web", port), slice_of, legacy, ingress("shop", "web", port)):
            api.create(found)
        attached = dict.fromkeys(("node", "namespace", "deployment", "job", "cronjob"), True)
        # The server has a service of its own in another namespace.
        discovery = {"role": role, "kubeconfig_file": account, "namespaces": {"names": ["shop"]}, "attach_metadata": attached}
        job = {
            "job_name": "found",
            "scrape_interval": "1s",
            "kubernetes_sd_configs": [discovery],
            "relabel_configs": [
                {"source_labels": ["__address__"], "target_label": "address"},
                # No target is reachable at the address that the objects have.
                {"target_label": "__address__", "replacement": f"127.0.0.1:{port}"},
                {"action": "labelmap", "regex": "__meta_kubernetes_(.+)"},
            ],
        }
        running, page = scraping(tmp_path, {"config": {"scrape_configs": [job]}})
        expected = expected_targets(role, port, uids)
        try:
            server.wait_until("the targets are scraped", lambda: len(lines(page)) == len(expected))
            assert sorted(map(labels_of, lines(page)), key=lambda labels: labels.get("pod_name", "")) == expected
        finally:
            running.kill()


def test_load_balancing_uses_the_ready_endpoints(api: server.Server, account: str, tmp_path: Path) -> None:
    allow(api, documented("docs/otlp.md", "Role", "tidegate-endpoints"))
    ready = {address(0): True, address(1): False, address(2): True}
    api.create(service(kit.NAMESPACE, "gateways", 4317))
    slice_of = endpoints(kit.NAMESPACE, "gateways", 4317, ready)
    api.create(slice_of)
    resolver = {"service": f"gateways.{kit.NAMESPACE}", "timeout": "30s", "kubeconfig_file": account}
    balancing = {"resolver": {"k8s": resolver}, "protocol": {"otlp": {"tls": {"insecure": True}}}}
    config = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{server.free_port()}"}}}},
        "exporters": {"loadbalancing": balancing},
        "service": {"pipelines": {"logs": {"receivers": ["otlp"], "exporters": ["loadbalancing"]}}},
    }
    running = gateway.Gateway(tmp_path, "balancing", config)
    known = lambda: running.metric("tidegate_loadbalancing_endpoints")  # noqa: E731
    try:
        server.wait_until("two are ready", lambda: known() == 2)
        api.patch(slice_of, endpoints(kit.NAMESPACE, "gateways", 4317, dict.fromkeys(ready, True)))
        server.wait_until("three are ready", lambda: known() == 3)
        api.kill()
        failing = "tidegate_loadbalancing_resolver_failing"
        server.wait_until("the trouble is shown", lambda: running.metric(failing) == 1)
        assert known() == 3
        api.start()
        api.patch(slice_of, endpoints(kit.NAMESPACE, "gateways", 4317, {address(0): True}))
        server.wait_until("one is ready", lambda: known() == 1)
        assert running.metric(failing) == 0
    finally:
        running.kill()
