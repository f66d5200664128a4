# SPDX-License-Identifier: Apache-2.0
"""Fixtures of both clients."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any, Iterator

import pytest

import kit


@pytest.fixture(autouse=True)
def _own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own process does not share its values."""
    for name in ("PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir", "TIDEGATE_CELLS_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=kit.CLIENTS)
def client(request: pytest.FixtureRequest) -> ModuleType:
    """`prometheus_client`, then the drop-in."""
    return importlib.import_module(request.param)


@pytest.fixture
def part(client: ModuleType) -> Any:
    """A submodule of the client by name."""
    return lambda name: importlib.import_module(f"{client.__name__}.{name}")


@pytest.fixture(params=kit.CLIENTS)
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[kit.Fleet]:
    """Processes over one directory."""
    fleet = kit.Fleet(request.param, tmp_path)
    yield fleet
    fleet.close()


@pytest.fixture
def fleets(tmp_path: Path) -> Iterator[tuple[kit.Fleet, kit.Fleet]]:
    """The same for both clients at once, to compare them."""
    made = []
    for number, client in enumerate(kit.CLIENTS):
        place = tmp_path / str(number)
        place.mkdir()
        made.append(kit.Fleet(client, place))
    yield made[0], made[1]
    for fleet in made:
        fleet.close()
