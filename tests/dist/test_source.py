# SPDX-License-Identifier: Apache-2.0

"""The source without a repository: an archive of Git knows its commit."""

import os
import re
from pathlib import Path

import kit
import pytest


def build_script(tmp_path: Path) -> Path:
    program = tmp_path / "build"
    kit.output("rustc", "--edition", "2024", "-o", program, kit.ROOT / "build.rs")
    return program


def values(program: Path, source: Path, **variables: str) -> dict[str, str]:
    """What the build script says of a source in a directory that is not a repository."""
    environment = {"PATH": os.environ["PATH"], "PROFILE": "release", "GIT_CEILING_DIRECTORIES": str(source.parent)}
    said = kit.output(program, cwd=source, env=environment | variables)
    return dict(re.findall(r"^cargo::rustc-env=TIDEGATE_(\w+)=(.*)$", said, re.MULTILINE))


@pytest.mark.skipif(not (kit.ROOT / ".git").exists(), reason="the source is an archive itself")
def test_an_archive_of_the_source_knows_its_commit(tmp_path: Path) -> None:
    program = build_script(tmp_path)
    archive, source = tmp_path / "source.tar", tmp_path / "source"
    source.mkdir()
    git = ("git", "-C", kit.ROOT)
    kit.output(*git, "archive", "--output", archive, "HEAD", ".git_archival.txt")
    kit.output("tar", "--extract", "--file", archive, "--directory", source)
    found = values(program, source)
    assert found["COMMIT"] == kit.output(*git, "rev-parse", "HEAD")[:12]
    assert found["DATE"] == kit.output(*git, "log", "-1", "--format=%cd", "--date=format-local:%Y-%m-%d", env=os.environ | {"TZ": "UTC"}).strip()
    assert values(program, source, TIDEGATE_COMMIT="0123456789abcdef")["COMMIT"] == "0123456789ab"


def test_a_source_without_a_repository_says_that_nothing_is_known(tmp_path: Path) -> None:
    program, source = build_script(tmp_path), tmp_path / "source"
    source.mkdir()
    (source / ".git_archival.txt").write_bytes((kit.ROOT / ".git_archival.txt").read_bytes())
    found = values(program, source, CARGO_FEATURE_B_C="1", CARGO_FEATURE_A="1")
    is_filled = "$Format" not in (source / ".git_archival.txt").read_text()
    assert (found["COMMIT"] == "unknown") != is_filled and found["FEATURES"] == "a,b-c"
    assert found["RUSTC"] == "unknown"
