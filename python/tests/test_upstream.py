# SPDX-License-Identifier: Apache-2.0
"""prometheus_client's own tests against the drop-in: what differs is listed (`upstream.py`), nothing else does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from kit import environment_part

import upstream


def test_prometheus_clients_own_tests_pass() -> None:
    tests = environment_part("prometheus-client-source") / "tests"
    here = Path(__file__).parent
    paths = [str(here), *filter(None, sys.path), str(environment_part("python-servers"))]
    command = [sys.executable, "-m", "pytest", "-p", "upstream", "-p", "no:cacheprovider", "--rootdir", str(tests), str(tests)]
    done = subprocess.run(
        command,
        cwd=here,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", done.stdout.splitlines()[-1])}
    print(counts)
    assert "skipped" not in counts
    # It has 320, of which one fails or not.
    assert counts["passed"] >= 319 - len(upstream.DIFFERENCES)
    assert counts["xfailed"] >= len(upstream.DIFFERENCES)
