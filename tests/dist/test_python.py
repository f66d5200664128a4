# SPDX-License-Identifier: Apache-2.0

"""The wheel, installed by pip, and the source of it, which also has the crate for programs in Rust."""

import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

import kit
import maturin
import pytest

PIP = (sys.executable, "-m", "pip")
OFFLINE = ("--quiet", "--no-index", "--no-deps", "--disable-pip-version-check")

# As `pyproject.toml` names them.
LICENCES = ["LICENSE", "THIRD-PARTY-NOTICES.txt"]

# The pages that take the crate for programs in Rust out of the source.
PAGES_FOR_RUST = ("docs/install.md", "docs/sdk.md", "docs/guides/sdk.md")


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


@pytest.fixture(scope="module")
def source() -> Path:
    """The source, unpacked.

    Cargo's files of a build have its path in their names: another path each time would fill the disk.
    """
    fixed = kit.directory("dist").parent / "source"
    shutil.rmtree(fixed, ignore_errors=True)
    unpacked = kit.unpack(f"tidegate-{kit.VERSION}.tar.gz", fixed)
    # The archive has the time of the commit. For Cargo, files that are older than the last build are unchanged.
    for path in kit.files(unpacked).values():
        path.touch()
    return unpacked


def test_the_source_has_all_crates_that_it_is_built_from(source: Path) -> None:
    assert (source / "PKG-INFO").is_file() and (source / "pyproject.toml").is_file()
    (manifest,) = [path for path in source.rglob("Cargo.toml") if 'name = "tidegate-python"' in path.read_text()]
    assert list(source.rglob("Cargo.lock"))
    kit.output("cargo", "metadata", "--format-version=1", "--no-deps", "--offline", "--manifest-path", manifest)


def test_pip_builds_a_wheel_from_the_source(tmp_path: Path, source: Path) -> None:
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


@pytest.mark.parametrize("page", PAGES_FOR_RUST)
def test_a_page_names_the_source_and_its_crate_for_programs_in_rust(page: str, source: Path) -> None:
    (block,) = [block for block in kit.blocks(page, "sh") if "cargo add" in block]
    unpack, *_, add = [line for line in block.splitlines() if line.startswith(("tar ", "cargo add "))]
    assert unpack.split()[:3] == ["tar", "-xf", f"{source.name}.tar.gz"]
    crate = add.split()[-1].removeprefix("../")
    manifest = tomllib.loads((source.parent / crate / "Cargo.toml").read_text())
    assert manifest["package"]["name"] == "tidegate-metrics"


def test_the_first_program_in_rust_runs_with_the_crate_of_the_source(tmp_path: Path, source: Path) -> None:
    (block,) = kit.blocks("docs/sdk.md", "sh", "## Five minutes")
    program, *_ = kit.blocks("docs/sdk.md", "rust", "## Five minutes")
    # The source is in another directory here. The page tells how to unpack it.
    commands = block.partition("\n")[2].replace(f"../{source.name}/", f"{source}/")
    assert str(source) in commands
    # Tests of the documents build the same program against the checkout. They share the crates of others.
    target = kit.directory("dist").parents[1] / "docs-programs"
    variables = {"CARGO_NET_OFFLINE": "true", "CARGO_TARGET_DIR": str(target)}
    channel = tomllib.loads((kit.ROOT / "rust-toolchain.toml").read_text())["toolchain"]["channel"]
    environment = {"RUSTUP_TOOLCHAIN": channel} | os.environ | variables
    kit.output("bash", "-ec", commands, cwd=tmp_path, env=environment)
    package = tmp_path / "service"
    (package / "src/main.rs").write_text(program)
    # The versions that the build of the gateway has fetched.
    shutil.copy(kit.ROOT / "Cargo.lock", package)
    shown = kit.output("cargo", "run", "--offline", "--quiet", cwd=package, env=environment)
    mean, *page = shown.splitlines()
    assert mean == "Some(0.2)" and 'service_requests_total{model="llama"} 1' in page, shown
