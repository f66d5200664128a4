# SPDX-License-Identifier: Apache-2.0

"""The archive of deploy/: its files, and its chart as Helm reads it."""

import re
from pathlib import Path

import kit
import pytest

CHART = "deploy/helm/tidegate"

# Folders of deploy/ that make the image, the packages and the dashboards.
LEFT_OUT = {"container", "monitoring", "packages"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kit.unpack(f"tidegate-{kit.VERSION}-deploy.tar.gz", tmp_path_factory.mktemp("deploy"))


@pytest.mark.skipif(not (kit.ROOT / ".git").exists(), reason="the source is an archive itself")
def test_it_has_all_files_that_users_need(folder: Path) -> None:
    listed = kit.output("git", "-C", kit.ROOT, "ls-files", "deploy").splitlines()
    expected = {path for path in listed if path.split("/")[1] not in LEFT_OUT} | {"LICENSE"}
    found = kit.files(folder)
    assert set(found) == expected
    assert [path for path, file in found.items() if file.read_bytes() != (kit.ROOT / path).read_bytes()] == []


def test_helm_renders_its_chart_as_that_of_the_checkout(folder: Path) -> None:
    helm = kit.directory("helm")
    values = "ci/everything.yaml"
    kit.output(helm, "lint", "--strict", "--quiet", folder / CHART, "--values", folder / CHART / values)
    rendered, expected = (
        kit.output(helm, "template", "prod", root / CHART, "--values", root / CHART / values) for root in (folder, kit.ROOT)
    )
    assert "kind: StatefulSet" in rendered and rendered == expected


def test_compose_finds_what_it_mounts(folder: Path) -> None:
    compose = folder / "deploy/compose/compose.yaml"
    mounts = re.findall(r"- (\.\.?/[^:]+):/", compose.read_text())
    assert len(mounts) >= 5 and [mount for mount in mounts if not (compose.parent / mount).exists()] == []
