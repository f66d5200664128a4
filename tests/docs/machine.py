# SPDX-License-Identifier: Apache-2.0

"""The machine of a reader: commands that run to their end or in the background, a gateway, and what it receives."""

import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Callable

from blocks import SOON, Page

CONFIG = """
receivers: {uds: {datagram: {path: statsd.sock}}}
processors: {composite: {composites: [{name: depth, metric: queue_depth, function: avg, window: 10s}]}}
exporters: {prometheus: {endpoint: "127.0.0.1:9464"}}
extensions: {admin: {endpoint: "127.0.0.1:8080", tap: true}}
service:
  extensions: [admin]
  telemetry: {metrics: {address: "127.0.0.1:8888"}}
  pipelines: {metrics: {receivers: [uds], processors: [composite], exporters: [prometheus]}}
"""


class Machine(Page):
    """A directory with a program `tidegate`, and free ports instead of those of the texts."""

    def __init__(self, directory: Path) -> None:
        super().__init__("commands.md", directory, os.environ["TIDEGATE_BINARY"])
        self.sending = threading.Event()

    def write(self, name: str, text: str) -> None:
        (self.work / name).write_text(self.moved(text))

    def ends(self, script: str, code: int, says: str = "") -> str:
        """Runs a script. Gives all that it prints."""
        result = self.finished(["bash", "-c", self.moved(script)])
        said = result.stdout + result.stderr
        assert result.returncode == code and says in said, f"{script}: {result.returncode}\n{said}{self.logs()}"
        return said

    def until(self, what: str, condition: Callable[[], object]) -> None:
        end = time.monotonic() + SOON
        while not condition():
            assert time.monotonic() < end, f"not within {SOON} s: {what}\n{self.logs()}"
            time.sleep(0.05)

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()

    def begin(self, name: str, command: str, sign: str | None = None) -> None:
        """Starts a command in the background, and waits until its output has the sign. SIGINT is not ignored."""
        self.start(name, self.moved(f"env --default-signal=INT {command}"))
        if sign is not None:
            self.until(f"{name} prints {sign}", lambda: sign in self.log(name))

    def end(self, name: str, number: signal.Signals | None = None) -> int:
        """The code of a background command, as shells show it. Sends a signal before."""
        process = self.running[name]
        if number is not None:
            process.send_signal(number)
        code = process.wait(timeout=SOON)
        del self.running[name]
        return code if code >= 0 else 128 - code

    def gateway(self, config: str = CONFIG) -> None:
        self.write("gateway.yaml", config)
        self.begin("gateway", "tidegate run --config gateway.yaml")
        self.until("the gateway answers", lambda: self.finished(["tidegate", "query", "vector(1)"]).returncode == 0)

    def send(self) -> None:
        """Sends a point every 0.1 s until the end of the case."""

        def send() -> None:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                while not self.sending.wait(0.1):
                    try:
                        sender.sendto(b"queue_depth:3|g", str(self.work / "statsd.sock"))
                    except OSError:
                        # The gateway is not there.
                        continue

        threading.Thread(target=send, daemon=True).start()

    def ring(self) -> None:
        """A NIXL agent with a ring."""
        self.begin("agent", "tidegate ring sim --directory rings --agents 1")
        self.until("the ring is there", (self.work / "rings/rank_0").exists)
