# SPDX-License-Identifier: Apache-2.0
"""The cost of recording in Python: the drop-in next to prometheus_client, in one run.

    cargo xtask bench sdk

Prints nanoseconds a call, of prometheus_client, of the drop-in and of the SDK's own instruments, which take turns: the
median of rounds, and what a tenth of them were below and above, as rows of one table with those of Rust. It is time of
the process on processors, which no other process uses; with four threads that of all, by the calls of all.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import threading
import time
from typing import Any, Callable

import prometheus_client as real

import tidegate
import tidegate.compat.prometheus_client as ours

#: The most that a counter may take of prometheus_client's time.
BUDGET = 1 / 3

ROUNDS = 21
CALLS = 40_000

Record = Callable[[int], None]


class Sdk:
    """The SDK's instruments by the names and arguments of prometheus_client."""

    def __init__(self, registry: tidegate.Registry) -> None:
        self._registry = registry

    def Counter(self, name: str, help: str, labels: tuple[str, ...] = (), registry: None = None) -> Any:
        kind = tidegate.FloatCounter if name == "cf" else tidegate.Counter
        return self._registry.register(kind(help, name=name, labels=labels))

    def Gauge(self, name: str, help: str, labels: tuple[str, ...] = (), registry: None = None) -> Any:
        return self._registry.register(tidegate.Gauge(help, name=name, labels=labels))

    def Histogram(self, name: str, help: str, labels: tuple[str, ...] = (), registry: None = None) -> Any:
        return self._registry.register(tidegate.Histogram(help, name=name, labels=labels))


def repeat(operation: str, names: dict[str, Any]) -> Record:
    """A loop of the operation alone."""
    program = f"def loop(times):\n    for _ in range(times):\n        {operation}\n"
    exec(program, names)
    loop: Record = names["loop"]
    return loop


def operations(client: Any) -> dict[str, Record]:
    """The measured operations, by name."""
    made = {
        "c": client.Counter("c", "help", registry=None),
        "cf": client.Counter("cf", "help", registry=None),
        "cl": client.Counter("cl", "help", ["method", "status"], registry=None),
        "g": client.Gauge("g", "help", registry=None),
        "gl": client.Gauge("gl", "help", ["model"], registry=None),
        "h": client.Histogram("h", "help", registry=None),
        "hl": client.Histogram("hl", "help", ["model"], registry=None),
    }
    lines = {
        "counter.inc()": "c.inc()",
        "counter.inc(2.5)": "cf.inc(2.5)",
        "counter.labels(2).inc()": "cl.labels('GET', '200').inc()",
        "counter.labels(2 by name).inc()": "cl.labels(method='GET', status='200').inc()",
        "counter child.inc()": "child.inc()",
        "gauge.set(3.5)": "g.set(3.5)",
        "gauge.labels(1).set(3.5)": "gl.labels('llama').set(3.5)",
        "histogram.observe(0.3)": "h.observe(0.3)",
        "histogram.observe(7)": "h.observe(7)",
        "histogram.labels(1).observe(0.3)": "hl.labels('llama').observe(0.3)",
        "with histogram.time()": "with h.time(): pass",
    }
    names = {**made, "child": made["cl"].labels("GET", "500")}
    return {name: repeat(line, dict(names)) for name, line in lines.items()}


def measure(record: Record, threads: int) -> float:
    """Nanoseconds a call."""
    calls = CALLS // threads
    if threads == 1:
        start = time.process_time_ns()
        record(calls)
        return (time.process_time_ns() - start) / calls
    workers = [threading.Thread(target=record, args=(calls,)) for _ in range(threads)]
    start = time.process_time_ns()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return (time.process_time_ns() - start) / (calls * threads)


def compare(place: str, clients: tuple[Any, ...]) -> list[tuple[str, int, float]]:
    """Prints rows; gives the operations with the drop-in's shares of prometheus_client's time."""
    libraries = [f"{name}{place}" for name in ("Prometheus client", "drop-in", "tidegate")]
    all_operations = [operations(client) for client in clients]
    shares = []
    for name in all_operations[0]:
        for threads in (1, 4):
            rounds = [[measure(client[name], threads) for client in all_operations] for _ in range(ROUNDS)]
            columns = [sorted(column) for column in zip(*rounds)]
            for library, column in zip(libraries, columns):
                low, median, high = (column[(ROUNDS - 1) * percent // 100] for percent in (10, 50, 90))
                print(f"row\tPython: {name}\t{threads}\t{library}\t{median:.0f}\t{low:.0f}\t{high:.0f}")
            theirs, mine = (column[ROUNDS // 2] for column in columns[:2])
            shares.append((name, threads, mine / theirs))
    return shares


def main() -> int:
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} processors, {CALLS} calls, {ROUNDS} rounds")
    clients = (real, ours, Sdk(tidegate.Prometheus()))
    shares = compare("", clients)
    with tempfile.TemporaryDirectory() as directory:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = directory
        # It decides when it is imported; the drop-in when the first metric is made.
        for name in [name for name in sys.modules if name.split(".")[0] == "prometheus_client"]:
            del sys.modules[name]
        shared = importlib.import_module("prometheus_client")
        clients = (shared, ours, Sdk(tidegate.Shm(directory)))
        shares += compare(", files", clients)
    missed = [row for row in shares if row[0].startswith("counter") and row[2] > BUDGET]
    print(f"\nBudget: a counter takes {BUDGET:.2f} of prometheus_client's time or less: {'missed by' if missed else 'kept'}")
    for name, threads, share in missed:
        print(f"  {name}, {threads} threads: {share:.2f}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
