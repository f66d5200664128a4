# SPDX-License-Identifier: Apache-2.0

"""Replicas of a cluster that a Lease elects and a DaemonSet names producers for, with the rights of the chart."""

import socket
import time
from pathlib import Path
from typing import Any

import gateway
import kit
import proxy
import server
import yaml


def values(directory: Path) -> Path:
    """Values of the chart with both options."""
    path = directory / "values.yaml"
    cluster = {"enabled": True, "engine": "direct", "expectAgents": True, "leaderLease": True}
    path.write_text(yaml.safe_dump({"cluster": cluster, "gateway": {"replicas": 2}}))
    return path


def account(api: server.Server, directory: Path) -> tuple[str, str]:
    """The token of the gateways' account, and the name of the Lease that it may write."""
    chart = values(directory)
    api.namespace(kit.NAMESPACE)
    for found in kit.of_kind(chart, "ServiceAccount", "Role", "RoleBinding"):
        api.create(found)
    (gateways,) = kit.of_kind(chart, "StatefulSet")
    rules = [rule for role in kit.of_kind(chart, "Role") for rule in role["rules"]]
    (lease,) = (rule["resourceNames"][0] for rule in rules if "resourceNames" in rule)
    return api.token(kit.NAMESPACE, kit.pod(gateways)["serviceAccountName"]), lease


def replica(directory: Path, name: str, cluster: dict[str, Any], receiver: dict[str, Any]) -> gateway.Gateway:
    """A replica with a store of its own, so that only a Lease elects among several. It is a producer too."""
    config = {
        "extensions": {"cluster": {"name": "test", "engine": {"local": {}}, **cluster}},
        "receivers": {
            "uds": {"datagram": {"path": str(directory / f"{name}.sock")}},
            "partials": {"cluster": "cluster", **receiver},
        },
        "processors": {"aggregate": {"rules": [{"match": {"name": "hits"}, "by": []}]}},
        "exporters": {
            "partials": {"cluster": "cluster", "producer": "node-0"},
            "file": {"path": str(directory / f"{name}.json")},
        },
        "service": {
            "extensions": ["cluster"],
            "pipelines": {
                "metrics/produce": {"receivers": ["uds"], "processors": ["aggregate"], "exporters": ["partials"]},
                "metrics/show": {"receivers": ["partials"], "exporters": ["file"]},
            },
        },
    }
    running = gateway.Gateway(directory, name, config, directory / f"{name}.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"hits:7|c", str(directory / f"{name}.sock"))
    return running


def leads(running: gateway.Gateway) -> bool:
    return running.metric("tidegate_cluster_leader") == 1


def test_one_replica_leads_by_a_lease_and_another_follows_it(api: server.Server, tmp_path: Path) -> None:
    token, lease = account(api, tmp_path)
    leader = {"leader": {"lease": f"{kit.NAMESPACE}/{lease}", "kubeconfig_file": str(api.kubeconfig(token))}}
    replicas = [replica(tmp_path, name, leader, {}) for name in ("a", "b")]
    try:
        server.wait_until("one leads", lambda: any(map(leads, replicas)))
        (first,) = (found for found in replicas if leads(found))
        (second,) = (found for found in replicas if found is not first)
        path = f"/apis/coordination.k8s.io/v1/namespaces/{kit.NAMESPACE}/leases/{lease}"
        before = api.request("GET", path)["spec"]
        api.kill()
        killed = time.monotonic()
        api.start()
        renewed = lambda: api.request("GET", path)["spec"]["renewTime"] != before["renewTime"]  # noqa: E731
        server.wait_until("it is renewed", renewed)
        # The server restarts within the term: the leader stays. On a slow machine, the other one may lead.
        if time.monotonic() - killed < 10:
            assert leads(first) and not leads(second)
            assert api.request("GET", path)["spec"]["holderIdentity"] == before["holderIdentity"]
        server.wait_until("one leads again", lambda: leads(first) != leads(second))
        (first,) = (found for found in replicas if leads(found))
        (second,) = (found for found in replicas if found is not first)
        before = api.request("GET", path)["spec"]
        first.kill()
        server.wait_until("the other one leads", lambda: leads(second))
        spec = api.request("GET", path)["spec"]
        assert spec["holderIdentity"] != before["holderIdentity"]
        assert spec["leaseTransitions"] == before["leaseTransitions"] + 1
        # Without the server, nobody leads after the term.
        api.kill()
        server.wait_until("nobody leads", lambda: not leads(second))
        api.start()
        server.wait_until("it leads again", lambda: leads(second))
    finally:
        for running in replicas:
            running.kill()


def test_a_leader_stays_although_its_connection_hangs(api: server.Server, tmp_path: Path) -> None:
    token, lease = account(api, tmp_path)
    between = proxy.Proxy(api.port)
    leader = {"lease": f"{kit.NAMESPACE}/{lease}", "kubeconfig_file": str(api.kubeconfig(token, between.port))}
    running = replica(tmp_path, "a", {"leader": leader}, {})
    path = f"/apis/coordination.k8s.io/v1/namespaces/{kit.NAMESPACE}/leases/{lease}"
    try:
        server.wait_until("it leads", lambda: leads(running))
        between.hang()
        # A request may have passed just before.
        time.sleep(1)
        hanging = api.request("GET", path)["spec"]["renewTime"]

        def renewed() -> bool:
            assert leads(running)
            return api.request("GET", path)["spec"]["renewTime"] > hanging

        server.wait_until("it renews the Lease on another connection", renewed)
        assert between.connections > 1
    finally:
        running.kill()
        between.stop()


def agent(number: int) -> server.Object:
    """A pod of the DaemonSet, as its controller makes it."""
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "11111111-2222-3333-4444-555555555555"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"agent-{number}",
            "namespace": kit.NAMESPACE,
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {"nodeName": f"node-{number}", "containers": [{"name": "agent", "image": "tidegate"}]},
    }


def test_nodes_of_a_daemonset_that_never_reported_are_missing(api: server.Server, tmp_path: Path) -> None:
    token, _ = account(api, tmp_path)
    for number in range(3):
        api.create(agent(number))
    source = {"daemonset": f"{kit.NAMESPACE}/agent", "kubeconfig_file": str(api.kubeconfig(token))}
    running = replica(tmp_path, "a", {}, {"expect_from": source})
    try:
        producers = "tidegate_cluster_producers"
        expected = lambda: running.metric(producers, 'state="expected"')  # noqa: E731
        server.wait_until("three nodes should report", lambda: expected() == 3)
        server.wait_until("one of them does", lambda: running.metric(producers, 'state="reporting"') == 1)
        api.delete(agent(2))
        server.wait_until("two nodes should report", lambda: expected() == 2)
        api.create(agent(7))
        server.wait_until("three nodes should report again", lambda: expected() == 3)
    finally:
        running.kill()
