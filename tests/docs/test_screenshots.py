# SPDX-License-Identifier: Apache-2.0

"""The pictures of the tutorial can be taken again. With UPDATE_GOLDEN=1 they are those of docs/."""

import os
import re
import struct
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PICTURES = ["tutorial-composites.png", "tutorial-graph.png"]
# This one comes 10 s later, when the window has passed.
LATER = ["tutorial-idle.png"]


def size(picture: Path) -> tuple[int, int]:
    head = picture.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", head[16:])
    return width, height


def test_the_pictures_of_the_tutorial_are_of_its_gateway(tmp_path: Path) -> None:
    is_golden = "UPDATE_GOLDEN" in os.environ
    output = ROOT / "docs" if is_golden else tmp_path
    options = ["--output", str(output), *([] if is_golden else ["--seconds", "0", "--steps", "1"])]
    result = subprocess.run([sys.executable, str(ROOT / "docs/screenshots.py"), *options], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert sorted(path.name for path in output.glob("tutorial-*.png")) == PICTURES + (LATER if is_golden else [])
    for name in PICTURES:
        # Values differ, and a line of tiles may come later. The view has the same rows.
        (width, height), (width_before, height_before) = size(output / name), size(ROOT / "docs" / name)
        assert width == width_before and abs(height - height_before) < 80, name


def test_the_tutorial_shows_all_its_pictures() -> None:
    shown = re.findall(r"\((tutorial-.*\.png)\)", (ROOT / "docs/tutorial.md").read_text())
    assert sorted(shown) == PICTURES + LATER
