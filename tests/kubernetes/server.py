# SPDX-License-Identifier: Apache-2.0

"""A real API server of Kubernetes with etcd, and its client. No controllers run: tests make the objects that these would."""

import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Callable

sys.path.append(str(Path(__file__).parents[1] / "shared"))
from ports import free_port

Object = dict[str, Any]

TOKEN = "admin-token"
PATIENCE = 120.0

# The plural of each kind, and whether it lies in a namespace.
KINDS = {
    "ClusterRole": ("clusterroles", False),
    "ClusterRoleBinding": ("clusterrolebindings", False),
    "ConfigMap": ("configmaps", True),
    "CustomResourceDefinition": ("customresourcedefinitions", False),
    "DaemonSet": ("daemonsets", True),
    "Deployment": ("deployments", True),
    "EndpointSlice": ("endpointslices", True),
    "Endpoints": ("endpoints", True),
    "HorizontalPodAutoscaler": ("horizontalpodautoscalers", True),
    "Ingress": ("ingresses", True),
    "Job": ("jobs", True),
    "Lease": ("leases", True),
    "Namespace": ("namespaces", False),
    "NetworkPolicy": ("networkpolicies", True),
    "Node": ("nodes", False),
    "Pod": ("pods", True),
    "PodDisruptionBudget": ("poddisruptionbudgets", True),
    "PodMonitor": ("podmonitors", True),
    "PrometheusRule": ("prometheusrules", True),
    "ReplicaSet": ("replicasets", True),
    "Role": ("roles", True),
    "RoleBinding": ("rolebindings", True),
    "ScaledObject": ("scaledobjects", True),
    "ScrapeConfig": ("scrapeconfigs", True),
    "Secret": ("secrets", True),
    "Service": ("services", True),
    "ServiceAccount": ("serviceaccounts", True),
    "ServiceMonitor": ("servicemonitors", True),
    "StatefulSet": ("statefulsets", True),
}


def wait_until(what: str, holds: Callable[[], bool], patience: float = PATIENCE) -> None:
    end = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < end, f"not within {patience} s: {what}"
        time.sleep(0.05)


def program(name: str) -> str:
    variable = f"TIDEGATE_{name.upper()}"
    assert variable in os.environ, f"{variable} is not set: run `cargo xtask kubernetes`"
    return os.environ[variable]


class ApiError(Exception):
    """An answer that is an error."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Server:
    """etcd and the API server. The API server keeps its port over restarts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port, self.store = free_port(), free_port()
        peer = f"http://127.0.0.1:{free_port()}"
        client = f"http://127.0.0.1:{self.store}"
        (directory / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
        # fmt: off
        self.api: subprocess.Popen[bytes] | None
        self.etcd = self._start(
            program("etcd"), "--data-dir", directory / "etcd", "--unsafe-no-fsync", "--log-level", "error",
            "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
            "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
        )
        # fmt: on
        self.api = None
        try:
            self.start()
        except BaseException:
            self.stop()
            raise

    def _start(self, *command: str | Path) -> subprocess.Popen[bytes]:
        log = open(self.directory / f"{Path(command[0]).name}.log", "ab")
        environment = {**os.environ, "SERVICE_ACCOUNT_KEY": str(self.directory / "accounts.key")}
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def start(self) -> None:
        key = self.directory / "accounts.key"
        # fmt: off
        self.api = self._start(
            program("apiserver"), "--etcd-servers", f"http://127.0.0.1:{self.store}",
            "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--secure-port", str(self.port),
            "--cert-dir", self.directory / "certificates", "--token-auth-file", self.directory / "tokens.csv",
            "--service-account-key-file", key, "--service-account-signing-key-file", key,
            "--service-account-issuer", "https://kubernetes.default.svc", "--service-cluster-ip-range", "10.0.0.0/16",
            "--authorization-mode", "RBAC", "--endpoint-reconciler-type", "none",
            "--disable-admission-plugins", "ServiceAccount",
        )
        # fmt: on
        wait_until("the API server is ready", self.is_ready)

    def is_ready(self) -> bool:
        assert self.api and self.api.poll() is None, (self.directory / "apiserver.log").read_text()[-3000:]
        try:
            self.request("GET", "/readyz", raw=True)
        except (OSError, ApiError):
            return False
        return True

    def kill(self) -> None:
        assert self.api
        self.api.send_signal(signal.SIGKILL)
        self.api.wait()

    def stop(self) -> None:
        for process in filter(None, (self.api, self.etcd)):
            process.kill()
            process.wait()

    @property
    def authority(self) -> Path:
        return self.directory / "certificates/apiserver.crt"

    def request(self, method: str, path: str, body: Any = None, token: str = TOKEN, raw: bool = False, kind: str = "") -> Any:
        """`kind`: the type of the body; by default JSON, or a merge patch."""
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", method=method)
        request.add_header("Authorization", f"Bearer {token}")
        kind = kind or ("application/merge-patch+json" if method == "PATCH" else "application/json")
        request.add_header("Content-Type", kind)
        context = ssl.create_default_context(cafile=str(self.authority))
        context.check_hostname = False
        data = None if body is None else json.dumps(body, default=str).encode()
        try:
            with urllib.request.urlopen(request, data, timeout=60, context=context) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise ApiError(error.code, error.read().decode()) from error
        return text if raw else json.loads(text)

    def path(self, found: Object, name: bool = False) -> str:
        version, (plural, is_namespaced) = found["apiVersion"], KINDS[found["kind"]]
        base = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        if is_namespaced:
            base += f"/namespaces/{found['metadata'].get('namespace', 'default')}"
        return f"{base}/{plural}" + (f"/{found['metadata']['name']}" if name else "")

    def create(self, found: Object, query: str = "") -> Object:
        return self.request("POST", self.path(found) + query, found)

    def delete(self, found: Object) -> None:
        # No kubelet confirms the end of a pod.
        self.request("DELETE", self.path(found, name=True) + "?gracePeriodSeconds=0")

    def patch(self, found: Object, change: Object, part: str = "") -> None:
        self.request("PATCH", self.path(found, name=True) + part, change)

    def apply(self, found: Object) -> Object:
        """Makes or changes an object as Helm 4 does: on the side of the server."""
        query = "?fieldManager=helm&force=true&fieldValidation=Strict"
        # JSON is YAML.
        return self.request("PATCH", self.path(found, name=True) + query, found, kind="application/apply-patch+yaml")

    def namespace(self, name: str) -> None:
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def token(self, namespace: str, account: str) -> str:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        return self.request("POST", path, wanted)["status"]["token"]

    def kubeconfig(self, token: str, port: int | None = None) -> Path:
        """`port`: of a proxy before the server."""
        cluster = {"server": f"https://127.0.0.1:{port or self.port}", "certificate-authority": str(self.authority)}
        config = {
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token}}],
        }
        path = self.directory / f"kubeconfig-{abs(hash(token))}"
        path.write_text(json.dumps(config))
        return path
