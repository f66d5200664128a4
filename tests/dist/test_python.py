# SPDX-License-Identifier: Apache-2.0

"""The wheel, installed by pip, and the source of it."""

import os
import re
import sys
from pathlib import Path

import kit


def first_example() -> str:
    """The first example of docs/python.md."""
    found = re.search(r"```python\n(.+?)```", (kit.ROOT / "docs/python.md").read_text(), re.DOTALL)
    assert found
    return found[1]


def installed(to: Path) -> Path:
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check")
    kit.output(*pip, "--root-user-action=ignore", "--target", to, kit.package("*.whl"))
    return to


def test_the_wheel_installs_without_a_compiler_and_counts(tmp_path: Path) -> None:
    site = installed(tmp_path / "site")
    program = f"{first_example()}\nprint(tidegate.__version__)\nprint(registry.expose())\n"
    shown = kit.output(sys.executable, "-c", program, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(site)})
    assert shown.startswith(f"{kit.VERSION}\n"), shown
    assert re.search(r'service_requests_total\{[^}]*status="ok"[^}]*\} 1\b', shown), shown


def test_the_metadata_says_what_an_index_shows(tmp_path: Path) -> None:
    (metadata,) = installed(tmp_path / "site").glob("tidegate-*.dist-info/METADATA")
    text = metadata.read_text()
    fields = dict(re.findall(r"^([A-Z][A-Za-z-]+): (.+)$", text.split("\n\n")[0], re.MULTILINE))
    assert (fields["Name"], fields["Version"], fields["Requires-Python"]) == ("tidegate", kit.VERSION, ">=3.10")
    assert fields["License-Expression"] == "Apache-2.0" and fields["Summary"] and fields["Keywords"]
    assert fields["Description-Content-Type"].startswith("text/markdown")


def test_the_wheel_is_for_all_versions_of_python() -> None:
    assert re.fullmatch(r"tidegate-.+-cp310-abi3-(many)?linux\w*\.whl", kit.package("*.whl").name)


def test_the_source_has_all_crates_that_it_is_built_from(tmp_path: Path) -> None:
    source = kit.unpack(f"tidegate-{kit.VERSION}.tar.gz", tmp_path)
    assert (source / "PKG-INFO").is_file() and (source / "pyproject.toml").is_file()
    (manifest,) = [path for path in source.rglob("Cargo.toml") if 'name = "tidegate-python"' in path.read_text()]
    assert list(source.rglob("Cargo.lock"))
    kit.output("cargo", "metadata", "--format-version=1", "--no-deps", "--offline", "--manifest-path", manifest)
