# SPDX-License-Identifier: Apache-2.0
"""Rings that a real NIXL agent writes."""

from __future__ import annotations

import array
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterable, NamedTuple

import pytest

from kit import environment_part

from tidegate.ring import Event, Reader, Store, inspect, stores

#: Lets two agents exchange memory and prints what they did; shared with the gateway's own tests.
DRIVER = Path(__file__).parents[2] / "tests/python/nixl_transfer.py"


class Agents(NamedTuple):
    """Where the rings are, and what the agents say that they did."""

    directory: Path
    did: dict[str, dict[str, Any]]


@pytest.fixture(params=["1.0.1", "1.1.0", "1.2.0", "1.3.2", "1.5.1"])
def agents(request: pytest.FixtureRequest, tmp_path: Path) -> Agents:
    """The rings of two agents that have ended; one wheel for each layout."""
    testenv = os.environ.get("TIDEGATE_TESTENV")
    assert testenv, "run by `cargo xtask test`, or set TIDEGATE_TESTENV"
    environment = {
        **os.environ,
        "NIXL_TELEMETRY_ENABLE": "y",
        "NIXL_TELEMETRY_DIR": str(tmp_path),
        "NIXL_LOG_LEVEL": "ERROR",
        "PYTHONPATH": os.pathsep.join([f"{testenv}/nixl-{request.param}", f"{testenv}/python"]),
    }
    command = [sys.executable, str(DRIVER)]
    done = subprocess.run(command, env=environment, check=True, timeout=300, stdout=subprocess.PIPE, text=True)
    return Agents(tmp_path, json.loads(done.stdout.splitlines()[-1])["agents"])


def sums(events: Iterable[Event], did: dict[str, Any]) -> dict[str, int]:
    """The sum of the values by name, of the names that the driver tells."""
    found: dict[str, int] = {name: 0 for name in did if name.startswith("agent_")}
    for event in events:
        if event.name in found:
            found[event.name] += event.value
    return found


def test_events_of_real_agents(agents: Agents) -> None:
    for name, did in agents.did.items():
        ring = agents.directory / name
        found = inspect(ring)
        assert found.reject is None and found.version in ("1", "2a", "2b", "3", "4")
        with Reader(ring, consume=False) as reader:
            batch = reader.read()
            assert batch.status == "events" and len(batch) == batch.readable == found.readable > 0
            events = list(batch)
            assert sums(events, did) == {key: did[key] for key in did if key.startswith("agent_")}
            assert {event.unit for event in events if event.name == "agent_memory_registered"} == {"By"}
            assert array.array("Q", batch.values).tolist() == [event.value for event in events]
            assert [reader.kind(number).name for number in batch.kinds] == [event.name for event in events]
            assert (events[0].timestamp_us is not None) == (found.version == "1")
            assert list(reader.read()) == events, "nothing was committed"
            assert reader.commit()
            assert reader.read().status == "idle"
            assert reader.stats.events == len(events)
            assert reader.mode == "peek"
        assert inspect(ring).readable == len(events), "a peeking reader hands nothing back"


def test_draining_hands_the_slots_back(agents: Agents) -> None:
    for name, did in agents.did.items():
        ring = agents.directory / name
        with Reader(ring, max_events=7) as reader:
            assert reader.mode == "consume" and reader.capacity > 7
            with Reader(ring) as second:
                assert second.mode == "peek_locked" and not second.try_consume()
            assert sums(reader.drain(), did) == {key: did[key] for key in did if key.startswith("agent_")}
        assert inspect(ring).readable == 0


def test_what_is_no_ring(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Reader(tmp_path / "nothing")
    (tmp_path / "noise").write_bytes(os.urandom(4096))
    with pytest.raises(ValueError, match="noise"):
        Reader(tmp_path / "noise")
    assert inspect(tmp_path / "noise").reject
    with pytest.raises(ValueError):
        Reader(tmp_path)


def test_stores_hold_what_living_agents_did(tmp_path: Path) -> None:
    testenv = environment_part("nixl-1.5.1")
    environment = {
        **os.environ,
        "NIXL_TELEMETRY_ENABLE": "y",
        "NIXL_TELEMETRY_EXPORTER": "prometheus_mp",
        "NIXL_TELEMETRY_MULTIPROC_DIR": str(tmp_path),
        "NIXL_TELEMETRY_PROMETHEUS_LOCAL": "y",
        "NIXL_TELEMETRY_PROMETHEUS_PORT": "0",
        "NIXL_LOG_LEVEL": "ERROR",
        "PYTHONPATH": os.pathsep.join([str(testenv), str(environment_part("python"))]),
    }
    command = [sys.executable, str(DRIVER), "--hold"]
    driver = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert driver.stdout
    line = next(line for line in driver.stdout if line.startswith("{"))
    agents = json.loads(line)["agents"]
    (tmp_path / "nixl.noise.mmap").write_bytes(b"noise")
    found = stores(tmp_path)
    assert {store.identity.agent_name for store in found} == set(agents)
    for store in found:
        did, totals = agents[store.identity.agent_name], store.totals()
        for name, value in did.items():
            if name.startswith("agent_"):
                assert totals[name].total == value, name
        errors = {total.status: total.total for total in totals.values() if total.status and total.total}
        assert errors == did["errors"]
        time = totals["agent_xfer_time"]
        assert time.unit == "us" and time.histogram and time.total
        bounds, buckets, total = time.histogram
        assert len(buckets) == len(bounds) + 1 and total == time.total
        assert totals["agent_memory_registered"].unit == "By" and totals["agent_memory_registered"].last
        assert store.alive() and store.last_update_ns and store.identity.pid == driver.pid
        assert store.identity.owner_uid == os.getuid()
    driver.communicate(timeout=180)
    assert not any(store.alive() for store in found)


def test_what_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Store(tmp_path / "nothing")
    (tmp_path / "nixl.1.2.3.mmap").write_bytes(os.urandom(6800))
    with pytest.raises(ValueError, match="nixl"):
        Store(tmp_path / "nixl.1.2.3.mmap")
    assert stores(tmp_path) == []
