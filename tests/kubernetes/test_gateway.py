# SPDX-License-Identifier: Apache-2.0

"""What the other tests rely on: a gateway that has started takes data."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import gateway
import server


class SlowApi(BaseHTTPRequestHandler):
    """An API server without pods, which takes a second for its answer."""

    def do_GET(self) -> None:
        time.sleep(1)
        body = json.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        # The gateway may have ended.
        with suppress(OSError):
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def slow_api(directory: Path) -> Iterator[Path]:
    """The kubeconfig of the server."""
    listener = ThreadingHTTPServer(("127.0.0.1", 0), SlowApi)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    path = directory / "kubeconfig"
    cluster = {"name": "test", "cluster": {"server": f"http://127.0.0.1:{listener.server_port}"}}
    context = {"name": "test", "context": {"cluster": "test"}}
    path.write_text(json.dumps({"current-context": "test", "contexts": [context], "clusters": [cluster]}))
    try:
        yield path
    finally:
        listener.shutdown()
        listener.server_close()


def test_a_gateway_that_has_started_listens_although_its_pods_came_late(tmp_path: Path) -> None:
    port, statsd = server.free_port(), tmp_path / "statsd.sock"
    with slow_api(tmp_path) as kubeconfig:
        attributes = {"auth_type": "kubeConfig", "kube_config_path": str(kubeconfig), "wait_for_metadata": True}
        config = {
            "receivers": {
                "otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}},
                "uds": {"datagram": {"path": str(statsd)}},
            },
            "processors": {"k8sattributes": attributes | {"extract": {"metadata": ["k8s.pod.name"]}}},
            "exporters": {"file": {"path": str(tmp_path / "out.json")}},
            "service": {
                "pipelines": {"metrics": {"receivers": ["otlp", "uds"], "processors": ["k8sattributes"], "exporters": ["file"]}}
            },
        }
        running = gateway.Gateway(tmp_path, "late", config, port, statsd)
        try:
            gateway.post(port, "/v1/metrics", {"resourceMetrics": []})
            assert running.listens(statsd) and not running.listens(tmp_path / "nosuch.sock")
        finally:
            running.kill()
