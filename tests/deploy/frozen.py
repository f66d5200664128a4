# SPDX-License-Identifier: Apache-2.0

"""Charts of earlier versions, as users have them installed: `charts/VERSION` has the package, and values files of that time.

`FREEZE_CHART=1 cargo xtask deploy -k frozen` keeps the chart of today. Do so before `version` in Chart.yaml changes.
"""

import functools
import os
import shutil
import tarfile
from pathlib import Path

import kit
import yaml

CHARTS = Path(__file__).parent / "charts"
# Helm keeps the times of files, and Git does not. One time for all gives the same bytes on each machine.
TIME = 946_684_800


def version(chart: Path) -> str:
    return str(yaml.safe_load((chart / "Chart.yaml").read_text())["version"])


def versions() -> list[str]:
    return sorted((path.name for path in CHARTS.iterdir()), key=ordered)


def ordered(name: str) -> list[int]:
    return [int(part) for part in name.split(".")]


def archive(name: str) -> Path:
    return CHARTS / name / f"tidegate-{name}.tgz"


def matrix(name: str) -> list[Path]:
    return sorted((CHARTS / name / "values").glob("*.yaml"))


def package(chart: Path, into: Path) -> Path:
    """`helm package` of a copy with fixed times."""
    copy = shutil.copytree(chart, into / "source/tidegate")
    for file in copy.rglob("*"):
        os.utime(file, (TIME, TIME))
    result = kit.run(kit.program("helm"), "package", copy, "--destination", into)
    assert result.returncode == 0, result.stderr
    (made,) = into.glob("*.tgz")
    return made


def members(file: Path) -> list[tuple[str, float, bytes]]:
    """The name, time and content of each file of a package."""
    with tarfile.open(file) as files:
        contents = ((member, files.extractfile(member)) for member in files)
        return [(member.name, member.mtime, content.read()) for member, content in contents if content]


def unpack(name: str, into: Path) -> Path:
    into.mkdir(parents=True, exist_ok=True)
    result = kit.run("tar", "--extract", "--no-same-owner", "--file", archive(name), "--directory", into)
    assert result.returncode == 0, result.stderr
    return into / "tidegate"


@functools.cache
def objects(name: str, values: Path, release: str = "prod") -> list[kit.Object]:
    """The objects of a frozen chart. Callers do not change them."""
    result = kit.run(kit.program("helm"), "template", release, archive(name), "--namespace", kit.NAMESPACE, "--values", values)
    assert result.returncode == 0, result.stderr
    return kit.documents(result.stdout)


def freeze(into: Path) -> None:
    """Keeps the chart of today, with the values files of its matrix."""
    directory = CHARTS / version(kit.CHART)
    (directory / "values").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(package(kit.CHART, into), archive(directory.name))
    for file in kit.MATRIX:
        shutil.copyfile(file, directory / "values" / file.name)
