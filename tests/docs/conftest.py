# SPDX-License-Identifier: Apache-2.0

"""One browser for all tests of the documents: a thread can drive only one."""

import importlib.util
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest

ROOT = Path(__file__).parents[2]


def browser_kit() -> Any:
    """How the tests of the gateway's page start Chromium."""
    spec = importlib.util.spec_from_file_location("page_kit", ROOT / "tests/page/kit.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its data classes look for their module.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    yield from browser_kit().browsers(tmp_path_factory.mktemp("browser"))
