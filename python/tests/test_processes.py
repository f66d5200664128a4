# SPDX-License-Identifier: Apache-2.0
"""Processes that fork, are spawned and are killed: no count gets lost, none counts twice."""

from __future__ import annotations


import os
import random
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Optional

import pytest
from kit import DROP_IN, Fleet, free_port

from tidegate.compat import prometheus_client as client
from tidegate.compat.prometheus_client import multiprocess


def total(directory: Path, name: str = "c_total", **labels: str) -> Optional[float]:
    registry = client.CollectorRegistry()
    multiprocess.MultiProcessCollector(registry, directory)
    return registry.get_sample_value(name, labels)


#: A server that forks its workers, as gunicorn and uvicorn do: the metrics are there before the fork. Each
#: worker tells each count it has made through a pipe.
PREFORK = """
import os, sys
from tidegate.compat.prometheus_client import Counter, Histogram
c = Counter("c", "help", ["l"])
h = Histogram("h", "help")
c.labels("parent").inc()
told = int(sys.argv[1])
def work():
    mine = c.labels("worker")
    while True:
        mine.inc()
        h.observe(0.3)
        os.write(told, b".")
for _ in range(int(sys.argv[2])):
    pid = os.fork()
    if pid == 0:
        work()
    print(pid, flush=True)
sys.stdin.read()
"""


class Prefork:
    """A server of this kind, and the number of counts that its workers have told."""

    def __init__(self, directory: Path, workers: int) -> None:
        self.told = 0
        self._read, write = os.pipe()
        environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(directory)}
        self._master = subprocess.Popen(
            [sys.executable, "-c", PREFORK, str(write), str(workers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[write],
            env=environment,
            text=True,
        )
        os.close(write)
        assert self._master.stdout
        self.workers = [int(self._master.stdout.readline()) for _ in range(workers)]

    def read_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([self._read], [], [], left)[0]:
                self.told += len(os.read(self._read, 65536))

    def stop(self) -> None:
        for pid in self.workers:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._master.kill()
        self._master.communicate()
        while left := os.read(self._read, 65536):
            self.told += len(left)
        os.close(self._read)


@pytest.mark.parametrize("seed", [random.randrange(2**32) for _ in range(3)])
def test_killed_workers_lose_nothing(tmp_path: Path, seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    servers = [Prefork(tmp_path, workers=3) for _ in range(2)]
    stop = threading.Event()
    falls: list[tuple[float, float]] = []

    def scrape() -> None:
        registry = client.CollectorRegistry()
        multiprocess.MultiProcessCollector(registry, tmp_path)
        before = 0.0
        while not stop.is_set():
            now = registry.get_sample_value("c_total", {"l": "worker"}) or 0.0
            if now < before:
                falls.append((before, now))
            before = now

    # It folds the dead into one file all the while.
    scraper = threading.Thread(target=scrape)
    scraper.start()
    for server in servers:
        # On a busy machine, workers begin late.
        until = time.monotonic() + 60
        while server.told < 1000 and time.monotonic() < until:
            server.read_for(0.05)
        for pid in server.workers:
            server.read_for(chance.uniform(0, 0.15))
            os.kill(pid, signal.SIGKILL)
        server.stop()
    stop.set()
    scraper.join()
    told = sum(server.told for server in servers)
    counted = total(tmp_path, l="worker")
    assert told > 1000 and counted is not None
    # A worker that is killed between counting and telling has counted one more.
    assert told <= counted <= told + 6
    observed = total(tmp_path, "h_count")
    assert observed is not None and told <= observed <= told + 6
    assert total(tmp_path, l="parent") == 2
    assert falls == []



@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(tmp_path: Path, method: str) -> None:
    program = f"""
        import multiprocessing
        from tidegate.compat.prometheus_client import Counter

        c = Counter("c", "help", ["l"])
        child = c.labels("x")

        def work(times):
            for _ in range(times):
                child.inc()

        if __name__ == "__main__":
            child.inc()
            context = multiprocessing.get_context("{method}")
            processes = [context.Process(target=work, args=(number * 100,)) for number in range(1, 5)]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
                assert process.exitcode == 0
            with context.Pool(2) as pool:
                pool.map(work, [10] * 20)
                pool.close()
                pool.join()
            child.inc()
    """
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(program))
    cells = tmp_path / "cells"
    environment = {**os.environ, "TIDEGATE_CELLS_DIR": str(cells)}
    subprocess.run([sys.executable, str(script)], env=environment, check=True, timeout=300)
    assert total(cells, l="x") == 2 + 1000 + 200


def test_a_fork_of_a_fork_and_threads_that_count_meanwhile(tmp_path: Path) -> None:
    program = """
        import os, threading
        from tidegate.compat.prometheus_client import Counter, Gauge

        c = Counter("c", "help")
        g = Gauge("g", "help", multiprocess_mode="livesum")
        stop = threading.Event()
        made = 0

        def count():
            global made
            while not stop.is_set():
                c.inc()
                made += 1

        thread = threading.Thread(target=count)
        thread.start()
        for number in range(20):
            pid = os.fork()
            if pid == 0:
                c.inc(1000)
                if os.fork() == 0:
                    c.inc(500)
                    os._exit(0)
                os.wait()
                os._exit(0)
            os.waitpid(pid, 0)
        stop.set()
        thread.join()
        print(made)
    """
    environment = {**os.environ, "TIDEGATE_CELLS_DIR": str(tmp_path)}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    made = subprocess.run(command, env=environment, check=True, timeout=300, capture_output=True, text=True).stdout
    assert total(tmp_path) == int(made) + 20 * 1500


def test_without_a_directory_a_fork_has_a_copy() -> None:
    counter = client.Counter("copied", "help", registry=None)
    counter.inc(3)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        counter.inc()
        os.write(write, str(counter._value.get()).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 100) == b"4.0"
    assert counter._value.get() == 3


def test_dead_processes_files_become_one(tmp_path: Path) -> None:
    fleet = Fleet(DROP_IN, tmp_path)
    for _ in range(5):
        fleet.worker('Counter("c", "help").inc(2)').kill()
    assert fleet.value("c_total") == 10
    from tidegate._tidegate import Directory

    directory = Directory(tmp_path)
    assert directory.fold(0) == (0, 5)
    assert [path.name for path in tmp_path.glob("*.cells")] == ["retained.cells"]
    assert fleet.value("c_total") == 10
    assert directory.processes() == []


def test_threads_lose_nothing() -> None:
    counter = client.Counter("threads", "help", ["l"], registry=None)
    histogram = client.Histogram("threads_seconds", "help", registry=None)

    def work() -> None:
        for at in range(20_000):
            counter.labels("x").inc()
            histogram.observe(at % 12)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.labels("x")._value.get() == 80_000
    counts, _ = histogram._get()
    assert sum(counts) == 80_000


def test_threads_that_begin_together_lose_nothing() -> None:
    """The first use of a metric and of its label values, by all threads at once."""
    counters = [client.Counter(f"c{number}", "help", ["l"], registry=None) for number in range(50)]
    together = threading.Barrier(8)

    def work() -> None:
        for counter in counters:
            together.wait()
            for at in range(4):
                counter.labels(at).inc()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for counter in counters:
        (metric,) = counter.collect()
        values = {sample.labels["l"]: sample.value for sample in metric.samples if sample.name.endswith("_total")}
        assert values == {str(at): 8 for at in range(4)}


GUNICORN = """
from tidegate.compat.prometheus_client import Counter
requests = Counter("requests", "Requests served")

def app(environ, start_response):
    requests.inc()
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""

HOOKS = """
from tidegate.compat.prometheus_client import multiprocess

def child_exit(server, worker):
    multiprocess.mark_process_dead(worker.pid)
"""


def test_gunicorn(tmp_path: Path) -> None:
    import http.client

    (tmp_path / "served.py").write_text(GUNICORN)
    (tmp_path / "hooks.py").write_text(HOOKS)
    cells = tmp_path / "cells"
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "--preload", "--workers", "2", "--max-requests", "40"]
    command += ["--bind", f"127.0.0.1:{port}", "--config", "hooks.py", "served:app"]
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(cells)}
    server = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    answered = 0
    try:
        until = time.monotonic() + 180
        while answered < 200 and time.monotonic() < until:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request("GET", "/")
                assert connection.getresponse().read() == b"ok"
                answered += 1
            except (ConnectionError, http.client.HTTPException):
                time.sleep(0.02)
            finally:
                connection.close()
    finally:
        server.terminate()
        server.wait()
    assert answered == 200
    # Workers were replaced all the while. One that ends with a request on its hands may have counted it.
    counted = total(cells, "requests_total")
    assert counted is not None and 200 <= counted <= 210
