# SPDX-License-Identifier: Apache-2.0

"""The target allocator of the OpenTelemetry operator, as a process of its own."""

import json
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import server

NAMESPACE = "telemetry"
# The labels that select the pods of collectors.
SELECTED = {"app.kubernetes.io/component": "collector"}


class Allocator:
    """A running allocator. It keeps its port over restarts."""

    def __init__(self, directory: Path, kubeconfig: Path, options: dict[str, Any]) -> None:
        self.port = server.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = directory / "allocator.log"
        config = directory / "allocator.json"
        base = {
            "listen_addr": f"127.0.0.1:{self.port}",
            "collector_namespace": NAMESPACE,
            "collector_selector": {"matchLabels": SELECTED},
        }
        # JSON is YAML.
        config.write_text(json.dumps(base | options))
        self._command = [server.program("allocator"), f"--config-file={config}", f"--kubeconfig-path={kubeconfig}"]
        self.start()

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        try:
            server.wait_until("the allocator is ready", self._is_ready)
        except BaseException:
            self.close()
            raise

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self.log.read_text()[-3000:]
        try:
            self.get("/readyz")
        except OSError:
            return False
        return True

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return answer.read().decode()

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()
