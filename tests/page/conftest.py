# SPDX-License-Identifier: Apache-2.0

"""One gateway and one browser for all tests of the page."""

from pathlib import Path
from typing import Iterator

import kit
import pytest
from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kit.Gateway]:
    with kit.Gateway(tmp_path_factory.mktemp("gateway"), ", tap: true") as running:
        yield running


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    yield from kit.browsers(tmp_path_factory.mktemp("browser"))


@pytest.fixture
def watched(browser: Browser, gateway: kit.Gateway) -> Iterator[kit.Watched]:
    with kit.Watched(browser, gateway.url) as page:
        yield page
