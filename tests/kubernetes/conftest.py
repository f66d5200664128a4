# SPDX-License-Identifier: Apache-2.0

from collections.abc import Iterator

import pytest
import server


@pytest.fixture
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.Server]:
    running = server.Server(tmp_path_factory.mktemp("kubernetes"))
    try:
        yield running
    finally:
        running.stop()
