# SPDX-License-Identifier: Apache-2.0

"""Pods that come and go: what the gateway knows of them, with the rights of the chart, through restarts of the server."""

import json
import os
import subprocess
import sys
from pathlib import Path

import gateway
import kit
import server

PODS = 5_000
NODES = 50
DISCOVERY = kit.CHART / "ci/discovery.yaml"
# Pushes a signal with the SDK of OpenTelemetry.
SDK = Path(__file__).parents[1] / "python/otel_push.py"
SIGNALS = ("metrics", "traces", "logs")
UNKNOWN = ("tidegate_k8sattributes_unmatched_resources_total", 'reason="unknown"')


def pod(number: int, generation: int = 0) -> server.Object:
    labels = {"app": "web", "generation": str(generation)}
    # A pod has environment, volumes and mounts, of which the gateway wants nothing.
    environment = [{"name": f"VARIABLE_{at}", "value": "a value of some length"} for at in range(20)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"web-{number}", "namespace": "shop", "labels": labels},
        "spec": {
            "nodeName": f"node-{number % NODES}",
            "containers": [{"name": "app", "image": "shop/web:1.2", "env": environment}],
        },
    }


def status(number: int) -> server.Object:
    return {"status": {"phase": "Running", "podIP": address(number), "podIPs": [{"ip": address(number)}]}}


def address(number: int) -> str:
    return f"10.{1 + number // 65_536}.{number // 256 % 256}.{number % 256}"


def node(number: int) -> server.Object:
    labels = {"rack": f"rack-{number}"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{number}", "labels": labels}}


def relabel(api: server.Server, number: int, rack: str) -> None:
    api.patch(node(number), {"metadata": {"labels": {"rack": rack}}})


def create(api: server.Server, number: int, generation: int = 0) -> None:
    made = pod(number, generation)
    api.create(made)
    api.patch(made, status(number), "/status")


def account(api: server.Server) -> str:
    """The token of the account that the chart gives to agents, with its rights."""
    api.namespace(kit.NAMESPACE)
    kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    for found in kit.of_kind(DISCOVERY, *kinds):
        api.create(found)
    pods = map(kit.pod, kit.workloads(DISCOVERY))
    (name,) = {found["serviceAccountName"] for found in pods if found["automountServiceAccountToken"]}
    return api.token(kit.NAMESPACE, name)


def start(directory: Path, kubeconfig: Path) -> tuple[gateway.Gateway, int, Path]:
    port, out = server.free_port(), directory / "out.json"
    extract = {
        "metadata": ["k8s.pod.name", "k8s.node.name", "k8s.namespace.name"],
        "labels": [
            {"tag_name": "generation", "key": "generation", "from": "pod"},
            {"tag_name": "rack", "key": "rack", "from": "node"},
        ],
    }
    sources = [{"from": "resource_attribute", "name": "k8s.pod.ip"}]
    attributes = {
        "auth_type": "kubeConfig",
        "kube_config_path": str(kubeconfig),
        "extract": extract,
        "pod_association": [{"sources": sources}],
        "pod_delete_grace_period": "1s",
    }
    config = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
        "processors": {"k8sattributes": attributes},
        "exporters": {"file": {"path": str(out)}},
        "service": {"pipelines": {"logs": {"receivers": ["otlp"], "processors": ["k8sattributes"], "exporters": ["file"]}}},
    }
    return gateway.Gateway(directory, "attributes", config, port), port, out


def attributes_of(port: int, out: Path, number: int) -> dict[str, str]:
    """The attributes of a log record that comes from a pod."""
    before = os.path.getsize(out) if out.exists() else 0
    resource = {"attributes": [{"key": "k8s.pod.ip", "value": {"stringValue": address(number)}}]}
    record = {"logRecords": [{"body": {"stringValue": "a"}}]}
    gateway.post(port, "/v1/logs", {"resourceLogs": [{"resource": resource, "scopeLogs": [record]}]})
    server.wait_until("the record is written", lambda: out.exists() and new_line(out, before) is not None)
    (logs,) = json.loads(new_line(out, before) or "")["resourceLogs"]
    return {pair["key"]: pair["value"]["stringValue"] for pair in logs["resource"]["attributes"]}


def rack_of(port: int, out: Path, number: int) -> str | None:
    """The label that a log record of a pod has from the node of the pod."""
    return attributes_of(port, out, number).get("rack")


def new_line(out: Path, before: int) -> str | None:
    with open(out) as file:
        file.seek(before)
        text = file.read()
    return text if text.endswith("\n") else None


def pods(running: gateway.Gateway) -> float:
    return running.metric("tidegate_k8sattributes_pods")


def test_five_thousand_pods_are_known_through_churn_and_restarts(api: server.Server, tmp_path: Path) -> None:
    api.namespace("shop")
    for number in range(NODES):
        api.create(node(number))
    kubeconfig = api.kubeconfig(account(api))
    running, port, out = start(tmp_path, kubeconfig)
    try:
        empty = running.resident_mib()
        for number in range(PODS):
            create(api, number)
        server.wait_until("all pods are known", lambda: pods(running) == PODS)
        full, used = running.resident_mib(), running.cpu_seconds()
        listed = api.request("GET", "/api/v1/pods", raw=True)
        print(
            f"{PODS} pods of {len(listed) / PODS / 1024:.1f} KiB JSON: resident {empty:.1f} MiB without, {full:.1f} MiB with, "
            f"{used:.2f} s of processor time for {2 * PODS} changes"
        )
        found = attributes_of(port, out, 4_321)
        assert found["k8s.pod.name"] == "web-4321" and found["k8s.node.name"] == f"node-{4_321 % NODES}"
        assert found["k8s.namespace.name"] == "shop" and found["generation"] == "0"
        # The pods 4,321, 4,322 and 4,323 are on the nodes 21, 22 and 23.
        server.wait_until("the nodes are known", lambda: rack_of(port, out, 4_321) == "rack-21")
        assert (rack_of(port, out, 4_322), rack_of(port, out, 4_323)) == ("rack-22", "rack-23")

        # Pods are replaced, and keep their names and addresses. Meanwhile, nodes change and end.
        for number in range(200):
            if number == 100:
                relabel(api, 21, "new")
                api.delete(node(22))
            api.delete(pod(number))
            create(api, number, generation=1)
        server.wait_until("new pods are known", lambda: attributes_of(port, out, 199).get("generation") == "1")
        server.wait_until("the new label is known", lambda: rack_of(port, out, 4_321) == "new")
        assert rack_of(port, out, 171) == "new", "also for a replaced pod of the node"
        server.wait_until("the node is gone", lambda: rack_of(port, out, 4_322) is None)
        assert attributes_of(port, out, 4_322)["k8s.node.name"] == "node-22", "the pod stays"
        assert rack_of(port, out, 4_323) == "rack-23", "the other nodes stay"

        # While the server is away, what was known stays. Its history is gone after the restart, so the gateway lists again.
        # Without a change that is newer than the last event of a pod, the server could still continue the watch.
        api.namespace("later")
        api.kill()
        assert attributes_of(port, out, 4_000)["k8s.pod.name"] == "web-4000"
        assert rack_of(port, out, 4_321) == "new"
        api.start()
        relabel(api, 21, "newer")
        api.create(node(22))
        api.delete(node(23))
        for number in range(200, 300):
            api.delete(pod(number))
        create(api, 200, generation=2)
        server.wait_until("changes come again", lambda: attributes_of(port, out, 200).get("generation") == "2")
        # The server has refused the version of the last event (410).
        assert running.metric("tidegate_kubernetes_errors_total", 'reason="expired"') >= 1
        server.wait_until("deleted pods are gone", lambda: pods(running) == PODS - 99)
        for number, rack in ((4_321, "newer"), (4_322, "rack-22"), (4_323, None), (4_324, "rack-24")):
            server.wait_until(f"the node of pod {number} is right", lambda: rack_of(port, out, number) == rack)
        unknown = running.metric(*UNKNOWN)
        assert "k8s.pod.name" not in attributes_of(port, out, 250)
        assert running.metric(*UNKNOWN) == unknown + 1
        print(f"after churn and a restart: resident {running.resident_mib():.1f} MiB")
        assert full < 120, "a pod takes some KiB at most"
    finally:
        running.kill()


def owned(api: server.Server, kind: str, name: str, owner: server.Object | None = None) -> server.Object:
    """A controller of pods. Its own one is `owner`."""
    metadata: server.Object = {"name": name, "namespace": "shop"}
    if owner:
        metadata["ownerReferences"] = [reference(owner)]
    labels = {"app": "web"}
    container = {"name": "app", "image": "shop/web:1.2"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    found = {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}
    return found | {"metadata": api.create(found)["metadata"]}


def reference(owner: server.Object) -> server.Object:
    of_owner = {key: owner["metadata"][key] for key in ("name", "uid")}
    return {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True} | of_owner


def create_owned_pod(api: server.Server) -> str:
    """A pod of a Deployment, at the address of this machine. Gives its uid."""
    replicas = owned(api, "ReplicaSet", "web-5d8f", owned(api, "Deployment", "web"))
    made = pod(0)
    made["metadata"] |= {"name": "web-5d8f-x7k2p", "ownerReferences": [reference(replicas)]}
    uid = str(api.create(made)["metadata"]["uid"])
    at = "127.0.0.1"
    api.patch(made, {"status": {"phase": "Running", "podIP": at, "podIPs": [{"ip": at}]}}, "/status")
    return uid


def attributes_processor(kubeconfig: Path, source: server.Object) -> server.Object:
    return {
        "auth_type": "kubeConfig",
        "kube_config_path": str(kubeconfig),
        "wait_for_metadata": True,
        "extract": {"metadata": ["k8s.pod.name", "k8s.node.name", "k8s.deployment.name"]},
        "pod_association": [{"sources": [source]}],
    }


def pushed(port: int, out: Path, signal: str) -> dict[str, str | None]:
    """The attributes of the resource that the SDK of OpenTelemetry sends, as the gateway writes them. `None`: not a text."""
    before = os.path.getsize(out) if out.exists() else 0
    endpoint = ["--protocol", "http", "--endpoint", f"http://127.0.0.1:{port}"]
    command = [sys.executable, str(SDK), *endpoint, "--signal", signal, "--service", "web"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    server.wait_until(f"the {signal} are written", lambda: out.exists() and new_line(out, before) is not None)
    ((found,),) = json.loads(new_line(out, before) or "").values()
    return {pair["key"]: pair["value"].get("stringValue") for pair in found["resource"]["attributes"]}


def test_a_pod_that_sends_otlp_has_its_name_node_and_deployment(api: server.Server, tmp_path: Path) -> None:
    api.namespace("shop")
    kubeconfig = api.kubeconfig(account(api))
    create_owned_pod(api)
    port, out = server.free_port(), tmp_path / "out.json"
    pipeline = {"receivers": ["otlp"], "processors": ["k8sattributes"], "exporters": ["file"]}
    config = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
        "processors": {"k8sattributes": attributes_processor(kubeconfig, {"from": "connection"})},
        "exporters": {"file": {"path": str(out)}},
        "service": {"pipelines": dict.fromkeys(SIGNALS, pipeline)},
    }
    running = gateway.Gateway(tmp_path, "attributes", config, port)
    try:
        expected = {
            "service.name": "web",
            "k8s.pod.name": "web-5d8f-x7k2p",
            "k8s.node.name": "node-0",
            "k8s.deployment.name": "web",
        }
        for signal in SIGNALS:
            found = pushed(port, out, signal)
            assert expected.items() <= found.items(), (signal, found)
    finally:
        running.kill()


def test_rings_have_the_pod_that_owns_their_directory(api: server.Server, tmp_path: Path) -> None:
    api.namespace("shop")
    kubeconfig = api.kubeconfig(account(api))
    uid = create_owned_pod(api)
    rings, page = tmp_path / "nixl", server.free_port()
    directory = rings / uid
    command = [server.program("binary"), "ring", "sim", "--directory", directory, "--agents", "1", "--seconds", "1"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    source = {"from": "resource_attribute", "name": "k8s.pod.uid"}
    by = ["k8s.pod.name", "k8s.node.name", "k8s.deployment.name"]
    config = {
        "receivers": {"nixl": {"directories": [f"{rings}/*"]}},
        "processors": {
            "k8sattributes": attributes_processor(kubeconfig, source),
            "aggregate": {"rules": [{"match": {"name": "agent_tx_bytes"}, "instrument": "counter", "by": by}]},
        },
        "exporters": {"prometheus": {"endpoint": f"127.0.0.1:{page}"}},
        "service": {
            "pipelines": {
                "metrics": {"receivers": ["nixl"], "processors": ["k8sattributes", "aggregate"], "exporters": ["prometheus"]}
            }
        },
    }
    running = gateway.Gateway(tmp_path, "rings", config, page)
    try:
        labels = 'k8s_deployment_name="web",k8s_node_name="node-0",k8s_pod_name="web-5d8f-x7k2p"'
        expected = f"\nagent_tx_bytes_total{{{labels}}} "
        server.wait_until("the ring is counted by its pod", lambda: expected in gateway.get(page, "/metrics"))
    finally:
        running.kill()


def test_the_account_of_the_chart_may_not_read_secrets(api: server.Server) -> None:
    token = account(api)
    api.request("GET", "/api/v1/pods?limit=1", token=token)
    for path in ("/api/v1/secrets", f"/api/v1/namespaces/{kit.NAMESPACE}/configmaps"):
        try:
            api.request("GET", path, token=token)
        except server.ApiError as error:
            assert error.code == 403
        else:
            raise AssertionError(f"{path} is readable")
