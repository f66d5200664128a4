# SPDX-License-Identifier: Apache-2.0

"""A gateway as a process of its own, and what it says of itself."""

import json
import re
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import server


class Gateway:
    """A running gateway that listens at these ports and datagram sockets. `config` has no `service::telemetry`."""

    def __init__(self, directory: Path, name: str, config: dict[str, Any], *listeners: int | Path) -> None:
        self.telemetry = server.free_port()
        reader = {"pull": {"exporter": {"prometheus": {"host": "127.0.0.1", "port": self.telemetry}}}}
        config["service"]["telemetry"] = {"metrics": {"readers": [reader]}}
        path = directory / f"{name}.yaml"
        path.write_text(json.dumps(config))
        self.log = directory / f"{name}.log"
        with open(self.log, "wb") as log:
            command = [server.program("binary"), f"--config={path}"]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory)
        try:
            server.wait_until("the gateway answers", self._answers)
            # The page of its own metrics is there before the components start.
            server.wait_until("the gateway listens", lambda: all(map(self.listens, listeners)))
        except BaseException:
            self.kill()
            raise

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            self.metrics()
        except OSError:
            return False
        return True

    def listens(self, at: int | Path) -> bool:
        """Whether there is a listener at a port, or at the path of a datagram socket."""
        assert self.process.poll() is None, self.log.read_text()
        is_path = isinstance(at, Path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if is_path else socket.socket() as client:
            return client.connect_ex(str(at) if is_path else ("127.0.0.1", at)) == 0

    def metrics(self) -> str:
        return get(self.telemetry, "/metrics")

    def metric(self, name: str, *labels: str) -> float:
        """The sum of the series with this name and these labels."""
        total = 0.0
        for line in self.metrics().splitlines():
            found = re.match(rf"{name}(\{{.*\}})? (\S+)", line)
            if found and all(label in (found[1] or "") for label in labels):
                total += float(found[2])
        return total

    def resident_mib(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found
        return int(found[1]) / 1024

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return answer.read().decode()


def post(port: int, path: str, body: Any) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), method="POST")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200
