# SPDX-License-Identifier: Apache-2.0

"""The manifests of the crates that are published: what crates.io demands, without a build."""

import re
import tomllib
from pathlib import Path
from typing import Any

import kit
import pytest

Table = dict[str, Any]

# crates.io drops categories that it does not know. These are in its list.
CATEGORIES = {
    "algorithms",
    "concurrency",
    "data-structures",
    "development-tools::ffi",
    "development-tools::procedural-macro-helpers",
    "development-tools::profiling",
    "memory-management",
    "os::linux-apis",
    "parser-implementations",
}

# What a program, a plugin or a reader of cells names. All else that is published is what these depend on.
USED_BY_NAME = {"tidegate-cells", "tidegate-metrics", "tidegate-plugin"}


def load(path: Path) -> Table:
    return tomllib.loads(path.read_text())


WORKSPACE = load(kit.ROOT / "Cargo.toml")["workspace"]
CRATES = {path.parent.name: load(path) for path in sorted((kit.ROOT / "crates").glob("*/Cargo.toml"))}


def is_published(manifest: Table) -> bool:
    """A crate is published unless it, or the workspace for it, says the opposite."""
    publish = manifest["package"].get("publish", True)
    return bool(WORKSPACE["package"]["publish"] if publish == {"workspace": True} else publish)


PUBLISHED = {name: manifest for name, manifest in CRATES.items() if is_published(manifest)}
each_crate = pytest.mark.parametrize("name", PUBLISHED)


def dependencies(manifest: Table, kind: str) -> dict[str, Table]:
    """Dependencies on crates of the workspace, as the workspace completes them."""
    found: dict[str, Table] = {}
    for name, value in manifest.get(kind, {}).items():
        if isinstance(value, dict):
            shared = WORKSPACE["dependencies"][name] if value.get("workspace") else {}
            merged = (shared if isinstance(shared, dict) else {}) | value
            if "path" in merged:
                found[name] = merged
    return found


def needed(name: str) -> set[str]:
    """A crate and all crates of the workspace that it is built from."""
    return {name}.union(*(needed(other) for other in dependencies(CRATES[name], "dependencies")))


def test_the_published_crates_are_those_that_others_are_built_from() -> None:
    assert set(PUBLISHED) == set().union(*(needed(name) for name in USED_BY_NAME))


@each_crate
def test_a_published_crate_says_what_an_index_shows(name: str) -> None:
    package = PUBLISHED[name]["package"]
    assert package["description"] and package["license"] == {"workspace": True}
    assert (kit.ROOT / "crates" / name / package["readme"]).is_file()
    assert 1 <= len(package["keywords"]) <= 5
    assert all(re.fullmatch(r"[a-z][a-z0-9_+-]{0,19}", word) for word in package["keywords"])
    assert 1 <= len(package["categories"]) <= 5 and set(package["categories"]) <= CATEGORIES


@each_crate
def test_a_published_crate_has_the_text_of_its_licence(name: str) -> None:
    # Without a list of its files, a package has all that Git knows. Cargo replaces a link by the file.
    assert "include" not in PUBLISHED[name]["package"] and "exclude" not in PUBLISHED[name]["package"]
    assert (kit.ROOT / "crates" / name / "LICENSE").read_bytes() == (kit.ROOT / "LICENSE").read_bytes()


@each_crate
def test_its_dependencies_can_be_found_outside_of_the_repository(name: str) -> None:
    for other, dependency in dependencies(PUBLISHED[name], "dependencies").items():
        assert other in PUBLISHED and dependency.get("version") == kit.VERSION, other
    # cargo removes those without a version, such as a crate's own.
    for other, dependency in dependencies(PUBLISHED[name], "dev-dependencies").items():
        assert "version" not in dependency or (other in PUBLISHED and dependency["version"] == kit.VERSION), other


@each_crate
def test_its_source_reads_no_file_outside_of_it(name: str) -> None:
    root = kit.ROOT / "crates" / name
    for source in (root / "src").rglob("*.rs"):
        # What only tests of documents read is not in the package's build.
        text = re.sub(r"#\[cfg\(doctest\)\]\n#\[doc = include_str!\([^\n]+\n", "", source.read_text())
        for path in re.findall(r'include(?:_str|_bytes)?!\("([^"]+)"\)', text):
            assert (source.parent / path).resolve().is_relative_to(root), f"{source}: {path}"
