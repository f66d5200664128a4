# SPDX-License-Identifier: Apache-2.0

"""The wheel, installed by pip, and the source of it."""

import os
import re
import shutil
import sys
from pathlib import Path

import kit
import maturin

PIP = (sys.executable, "-m", "pip")
OFFLINE = ("--quiet", "--no-index", "--no-deps", "--disable-pip-version-check")

# As `pyproject.toml` names them.
LICENCES = ["LICENSE", "THIRD-PARTY-NOTICES.txt"]


def installed(to: Path, wheel: Path | None = None) -> Path:
    files = wheel or kit.package("*.whl")
    kit.output(*PIP, "install", *OFFLINE, "--root-user-action=ignore", "--target", to, files)
    return to


def shown(site: Path, program: str) -> str:
    return kit.output(sys.executable, "-c", program, cwd=site.parent, env=os.environ | {"PYTHONPATH": str(site)})


def test_the_wheel_installs_without_a_compiler_and_counts(tmp_path: Path) -> None:
    site = installed(tmp_path / "site")
    first, *_ = kit.blocks("docs/python.md", "python", "## The SDK")
    assert shown(site, first) == "1\n"
    assert shown(site, "import tidegate; print(tidegate.__version__)") == f"{kit.VERSION}\n"


def test_the_first_example_on_the_page_of_an_index_counts(tmp_path: Path) -> None:
    (first,) = kit.blocks("python/README.md", "python")
    assert '\nrequests_total{model="llama"} 1.0\n' in shown(installed(tmp_path / "site"), first)


def test_the_metadata_says_what_an_index_shows(tmp_path: Path) -> None:
    (metadata,) = installed(tmp_path / "site").glob("tidegate-*.dist-info/METADATA")
    text = metadata.read_text()
    fields = dict(re.findall(r"^([A-Z][A-Za-z-]+): (.+)$", text.split("\n\n")[0], re.MULTILINE))
    assert (fields["Name"], fields["Version"], fields["Requires-Python"]) == ("tidegate", kit.VERSION, ">=3.10")
    assert fields["License-Expression"] == "Apache-2.0" and fields["Summary"] and fields["Keywords"]
    assert fields["Description-Content-Type"].startswith("text/markdown")


def assert_licences(site: Path) -> None:
    """What a package in a directory says of its licences, with their texts."""
    (info,) = site.glob("tidegate-*.dist-info")
    texts = {path: file.read_bytes() for path, file in kit.files(info / "licenses").items()}
    # The packages of the tests have the licence in both files.
    assert texts == dict.fromkeys(LICENCES, (kit.ROOT / "LICENSE").read_bytes())
    assert re.findall(r"^License-File: (.+)$", (info / "METADATA").read_text(), re.MULTILINE) == LICENCES


def test_the_wheel_and_its_source_have_the_licences(tmp_path: Path) -> None:
    assert_licences(installed(tmp_path / "site"))
    source = kit.unpack(f"tidegate-{kit.VERSION}.tar.gz", tmp_path / "source")
    assert all((source / name).is_file() for name in LICENCES)
    # The release leaves nothing in the checkout.
    assert not (kit.ROOT / "python" / LICENCES[1]).exists()


def test_the_wheel_is_for_all_versions_of_python() -> None:
    assert re.fullmatch(r"tidegate-.+-cp310-abi3-(many)?linux[\w.]*\.whl", kit.package("*.whl").name)


def test_the_source_has_all_crates_that_it_is_built_from(tmp_path: Path) -> None:
    source = kit.unpack(f"tidegate-{kit.VERSION}.tar.gz", tmp_path)
    assert (source / "PKG-INFO").is_file() and (source / "pyproject.toml").is_file()
    (manifest,) = [path for path in source.rglob("Cargo.toml") if 'name = "tidegate-python"' in path.read_text()]
    assert list(source.rglob("Cargo.lock"))
    kit.output("cargo", "metadata", "--format-version=1", "--no-deps", "--offline", "--manifest-path", manifest)


def test_pip_builds_a_wheel_from_the_source(tmp_path: Path) -> None:
    # Cargo's files of a build have the path of the source in their names: another path each time would fill the disk.
    fixed = kit.directory("dist").parent / "source"
    shutil.rmtree(fixed, ignore_errors=True)
    source = kit.unpack(f"tidegate-{kit.VERSION}.tar.gz", fixed)
    # The archive has the time of the commit. For Cargo, files that are older than the last build are unchanged.
    for path in kit.files(source).values():
        path.touch()
    tools = Path(maturin.__file__).parents[1] / "bin"
    variables = {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        # Other crates are built there already, without optimisation.
        "CARGO_TARGET_DIR": str(kit.directory("python_build")),
        "CARGO_NET_OFFLINE": "true",
        "MATURIN_PEP517_ARGS": "--profile dev",
    }
    options = ("--no-build-isolation", "--wheel-dir", tmp_path)
    kit.output(*PIP, "wheel", *OFFLINE, *options, source, env=os.environ | variables)
    (wheel,) = tmp_path.glob("*.whl")
    # A system that pip builds on is the one that it installs on.
    assert re.fullmatch(r"tidegate-.+-cp310-abi3-(many)?linux[\w.]*\.whl", wheel.name)
    first, *_ = kit.blocks("docs/python.md", "python", "## The SDK")
    site = installed(tmp_path / "site", wheel)
    assert shown(site, first) == "1\n"
    assert_licences(site)
