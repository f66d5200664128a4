# SPDX-License-Identifier: Apache-2.0

"""What documents say of crates agrees with their manifests: names, paths and features. `test_commands.py` runs such lines."""

import re
import shlex
import tomllib
from typing import Any, Iterator

import pytest
from blocks import DOCS, blocks_of
from test_fragments import DOCUMENTS

ROOT = DOCS.parent

MANIFESTS: dict[str, dict[str, Any]] = {
    path.parent.name: tomllib.loads(path.read_text()) for path in ROOT.glob("crates/*/Cargo.toml")
}

VERSION = str(tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"])

# Options of `cargo add` with a value.
WITH_VALUE = ("--path", "--features", "--manifest-path")


# A line of a manifest with a crate of a checkout.
DEPENDENCY = re.compile(r'(tidegate-[a-z-]+) = \{ path = "([^"]+)"(?:, features = \[([^\]]*)\])? \}')


def added(document: str) -> Iterator[str]:
    """Each `cargo add` of a document, in its blocks and its sentences, and each line of a manifest as such a command."""
    text = (ROOT / document).read_text()
    lines = [line for block in blocks_of(ROOT / document) for line in block.text.splitlines()]
    for found in [*lines, *re.findall(r"`([^`\n]+)`", text)]:
        if found.startswith("cargo add "):
            yield found.partition(" #")[0]
    for name, path, features in DEPENDENCY.findall(text):
        listed = ",".join(re.findall(r"[a-z-]+", features))
        options = f" --features {listed}" if listed else ""
        yield f"cargo add {name} --path {path}{options}"


ADDED = [(document, line) for document in DOCUMENTS for line in added(document)]


def problems(line: str) -> list[str]:
    """What is wrong with a `cargo add`."""
    words = shlex.split(line)[2:]
    names: list[str] = []
    features: list[str] = []
    found: list[str] = []
    while words:
        word = words.pop(0)
        value = words.pop(0) if word in WITH_VALUE else ""
        if word == "--path":
            # A checkout, or the archive of a release.
            folder = re.sub(rf"^(?:\.\./)?tidegate(?:-{re.escape(VERSION)})?/", "", value)
            names.append(folder.removeprefix("crates/"))
            found += [] if folder.startswith("crates/") else [f"{value} is not the path of a crate"]
        elif word == "--features":
            features += value.split(",")
        elif word.startswith("-") and not value:
            found.append(f"{word}: add it to WITH_VALUE, or check it here")
        elif not word.startswith("-"):
            names.append(word)
    for name in names:
        manifest = MANIFESTS.get(name)
        if manifest is None or manifest["package"]["name"] != name:
            found.append(f"no crate has the name {name}")
        elif manifest["package"].get("publish", True) is not True:
            found.append(f"{name} is not for other programs")
        else:
            found += [f"{name} has no feature {one}" for one in features if one not in manifest["features"]]
    return found


@pytest.mark.parametrize(("document", "line"), ADDED)
def test_a_crate_that_a_document_adds_exists(document: str, line: str) -> None:
    assert problems(line) == [], document


def test_documents_add_the_crate_of_the_sdk() -> None:
    expected = {"docs/sdk.md", "docs/install.md", "docs/guides/sdk.md", "crates/tidegate-metrics/README.md"}
    assert {document for document, _ in ADDED} >= expected


@pytest.mark.parametrize(
    "line",
    [
        "cargo add tidegate-metric",
        "cargo add tidegate-config",
        "cargo add --path ../tidegate/tidegate-metrics",
        "cargo add --path ../tidegate-0.0.9/crates/tidegate-metrics",
        "cargo add tidegate-metrics --features otlp",
        "cargo add --path ../tidegate/crates/tidegate-metrics --features tracing,otlp",
    ],
)
def test_a_wrong_line_is_found(line: str) -> None:
    assert problems(line) != []


def test_the_guide_lists_the_features_of_the_crate() -> None:
    features = dict(MANIFESTS["tidegate-metrics"]["features"])
    default = features.pop("default")
    rows = re.findall(r"(?m)^\| `([a-z-]+)` \| (on|off) \| ", (ROOT / "docs/sdk.md").read_text())
    assert dict(rows) == {name: "on" if name in default else "off" for name in features}
