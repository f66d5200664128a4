# SPDX-License-Identifier: Apache-2.0

"""Pods that come and go: what the gateway knows of them, with the rights of the chart, through restarts of the server."""

import json
import os
from pathlib import Path

import gateway
import kit
import server

PODS = 5_000
NODES = 50
DISCOVERY = kit.CHART / "ci/discovery.yaml"
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
        "labels": [{"tag_name": "generation", "key": "generation", "from": "pod"}],
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
    return gateway.Gateway(directory, "attributes", config), port, out


def attributes_of(port: int, out: Path, number: int) -> dict[str, str]:
    """The attributes of a log record that comes from a pod."""
    before = os.path.getsize(out) if out.exists() else 0
    resource = {"attributes": [{"key": "k8s.pod.ip", "value": {"stringValue": address(number)}}]}
    record = {"logRecords": [{"body": {"stringValue": "a"}}]}
    gateway.post(port, "/v1/logs", {"resourceLogs": [{"resource": resource, "scopeLogs": [record]}]})
    server.wait_until("the record is written", lambda: out.exists() and new_line(out, before) is not None)
    (logs,) = json.loads(new_line(out, before) or "")["resourceLogs"]
    return {pair["key"]: pair["value"]["stringValue"] for pair in logs["resource"]["attributes"]}


def new_line(out: Path, before: int) -> str | None:
    with open(out) as file:
        file.seek(before)
        text = file.read()
    return text if text.endswith("\n") else None


def pods(running: gateway.Gateway) -> float:
    return running.metric("tidegate_k8sattributes_pods")


def test_five_thousand_pods_are_known_through_churn_and_restarts(api: server.Server, tmp_path: Path) -> None:
    api.namespace("shop")
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

        # Pods are replaced, and keep their names and addresses.
        for number in range(200):
            api.delete(pod(number))
            create(api, number, generation=1)
        server.wait_until("new pods are known", lambda: attributes_of(port, out, 199).get("generation") == "1")

        # While the server is away, what was known stays. Its history is gone after the restart, so the gateway lists again.
        api.kill()
        assert attributes_of(port, out, 4_000)["k8s.pod.name"] == "web-4000"
        api.start()
        for number in range(200, 300):
            api.delete(pod(number))
        create(api, 200, generation=2)
        server.wait_until("changes come again", lambda: attributes_of(port, out, 200).get("generation") == "2")
        server.wait_until("deleted pods are gone", lambda: pods(running) == PODS - 99)
        unknown = running.metric(*UNKNOWN)
        assert "k8s.pod.name" not in attributes_of(port, out, 250)
        assert running.metric(*UNKNOWN) == unknown + 1
        print(f"after churn and a restart: resident {running.resident_mib():.1f} MiB")
        assert full < 120, "a pod takes some KiB at most"
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
