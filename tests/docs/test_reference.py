# SPDX-License-Identifier: Apache-2.0

"""The pages of docs/reference are those of this build."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_reference_is_that_of_this_build() -> None:
    script = ROOT / "docs/reference.py"
    command = [sys.executable, str(script), "--check", os.environ["TIDEGATE_BINARY"]]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"run `cargo xtask reference`, and commit what it writes:\n{result.stdout}{result.stderr}"
