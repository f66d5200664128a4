# SPDX-License-Identifier: Apache-2.0
"""Processes that record metrics on command, with one client or the other."""

from __future__ import annotations

import importlib
import itertools
import os
import random
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Optional

#: The original first: what holds for it is what the drop-in must do.
REAL = "prometheus_client"
DROP_IN = "tidegate.compat.prometheus_client"
CLIENTS = (REAL, DROP_IN)

#: The numbers of the next free ports. The first is random, so that runs side by side rarely meet.
_NUMBERS = itertools.count(random.randrange(22_000))


def free_port() -> int:
    """A port that no other call gets, below those that connections and listeners on port 0 get: nothing takes it meanwhile."""
    while True:
        port = 10_000 + next(_NUMBERS) % 22_000
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port


_LOOP = """
import importlib, os, sys, json
sys.modules["client"] = importlib.import_module(sys.argv[1])
names = {}
exec("import os; from client import *; import client", names)
for line in sys.stdin:
    try:
        exec(json.loads(line), names)
        print("ok", flush=True)
    except BaseException as error:
        print(type(error).__name__ + ": " + str(error), flush=True)
"""


class Worker:
    """A process that runs what it is sent, after ``from CLIENT import *``."""

    def __init__(self, client: str, directory: Path, **environment: str) -> None:
        settings = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(directory), **environment}
        command = [sys.executable, "-c", _LOOP, client]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=settings
        )
        self.pid = self._process.pid

    def run(self, code: str) -> str:
        """Runs code; gives `ok` or the exception."""
        import json

        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(code) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def do(self, code: str) -> Worker:
        """Runs code that must not fail."""
        answer = self.run(code)
        assert answer == "ok", answer
        return self

    def stop(self) -> None:
        """Ends the process in order."""
        self._process.communicate()

    def kill(self) -> None:
        """Ends the process as a crash does."""
        self._process.kill()
        self._process.communicate()


class Fleet:
    """Workers that share a directory, and what is collected of them."""

    def __init__(self, client: str, directory: Path) -> None:
        self.client = client
        self.module: ModuleType = importlib.import_module(client)
        self.multiprocess: Any = importlib.import_module(client + ".multiprocess")
        self.directory = directory
        self.workers: list[Worker] = []

    def worker(self, code: str = "pass", **environment: str) -> Worker:
        """Starts one more, and has it run code."""
        worker = Worker(self.client, self.directory, **environment)
        self.workers.append(worker)
        return worker.do(code)

    def registry(self) -> Any:
        """A registry with nothing but the collector of the directory."""
        registry = self.module.CollectorRegistry()
        self.multiprocess.MultiProcessCollector(registry, str(self.directory))
        return registry

    def value(self, name: str, **labels: str) -> Optional[float]:
        """The merged value of one series."""
        found: Optional[float] = self.registry().get_sample_value(name, labels)
        return found

    def mark_dead(self, worker: Worker) -> None:
        """Does the work of a server's hook after the end of a worker."""
        self.multiprocess.mark_process_dead(worker.pid, str(self.directory))

    def page(self) -> list[str]:
        """The exposition: lines sorted, each pid as the number of its worker."""
        text = self.module.generate_latest(self.registry()).decode()
        for number, worker in enumerate(self.workers):
            text = re.sub(rf'pid="{worker.pid}"', f'pid="worker {number}"', text)
        return sorted(text.splitlines())

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()


def environment_part(name: str) -> Path:
    """A part of what `cargo xtask setup` has installed."""
    return Path(os.environ["TIDEGATE_TESTENV"]) / name
