# SPDX-License-Identifier: Apache-2.0

"""One language server for all tests of the schema."""

from typing import Iterator

import kit
import pytest


@pytest.fixture(scope="session")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kit.Editor]:
    with kit.Editor(tmp_path_factory.mktemp("editor")) as running:
        yield running
