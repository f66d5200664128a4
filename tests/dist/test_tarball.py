# SPDX-License-Identifier: Apache-2.0

"""The tarball: its first examples, as docs/install.md shows them."""

import os
import re
import tarfile
from pathlib import Path

import kit
import pytest

NAME = "tidegate-[0-9]*-linux.tar.gz"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kit.unpack(NAME, tmp_path_factory.mktemp("tarball"))


def commands() -> list[str]:
    """The commands of the documented first minutes with the tarball."""
    text = (kit.ROOT / "docs/install.md").read_text()
    section = text.split("\n## Tarball\n")[1].split("\n## ")[0]
    return re.findall(r"^\./tidegate ([^#\n]+?) *(?:#.*)?$", section, re.MULTILINE)


def test_the_documented_commands_run(folder: Path) -> None:
    quickstart, query, test, run = commands()
    # `test_first_minutes.py` asks for the number.
    assert quickstart == "quickstart" and query.startswith("query ")
    kit.output("./tidegate", "quickstart", "--seconds", "1", cwd=folder)
    kit.output("./tidegate", *test.split(), cwd=folder)
    # The ports of the documented command may be in use here.
    ports = {name: kit.free_port() for name in ("PROMETHEUS", "HEALTH", "OWN_METRICS")}
    moved = {f"{name}_ENDPOINT": f"127.0.0.1:{port}" for name, port in ports.items()}
    with kit.running("./tidegate", *run.split(), cwd=folder, env=os.environ | moved) as gateway:
        kit.wait_for(gateway, f"http://127.0.0.1:{ports['PROMETHEUS']}/metrics", "")


def test_it_says_which_build_it_is(folder: Path) -> None:
    lines = kit.output("./tidegate", "version", cwd=folder).splitlines()
    assert lines[0] == f"tidegate {kit.VERSION}"
    assert re.fullmatch(r"commit: ([0-9a-f]{12}|unknown), (\d{4}-\d\d-\d\d|unknown)", lines[1]), lines
    assert lines[2].startswith("features: ") and re.fullmatch(r"rustc: \d+\.\d+\.\d+\S*", lines[3]), lines


def test_it_has_all_that_belongs_to_the_program(folder: Path) -> None:
    for name in ("LICENSE", "README.md", "THIRD-PARTY-NOTICES.txt", "man/tidegate.1", "docs/install.md", "systemd/tidegate.service"):
        assert (folder / name).stat().st_size > 0, name
    examples = {path.name for path in (kit.ROOT / "config").glob("*.yaml")}
    assert {path.name for path in (folder / "examples").iterdir()} == examples | {"plugins", "rules"}
    assert len(list((folder / "completions").iterdir())) == 3


def test_the_documents_link_only_to_files_of_the_tarball(folder: Path) -> None:
    assert kit.broken_links(folder) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("[a](a.md#b) [b](b.md) `c[0](1)` [d](../d.md) [e](https://e.example)\n```sh\n[f](f.md)\n```\n")
    (tmp_path.parent / "d.md").touch()
    assert kit.broken_links(tmp_path) == ["a.md: b.md", "a.md: ../d.md"]


def test_the_documents_name_paths_of_the_tarball(folder: Path) -> None:
    documents = [folder / "README.md", *(folder / "docs").rglob("*.md")]
    text = "".join(document.read_text() for document in documents)
    named = set(re.findall(r"(?<![\w./-])(?:config|examples)/[\w./-]+\.(?:yaml|c|cpp|rs)\b", text))
    assert len(named) >= 10
    assert [path for path in sorted(named) if "NAME" not in path and not (folder / path).is_file()] == []
    # A plugin is built with the header of the tarball.
    assert "-I include -o" in text and (folder / "include/tidegate_plugin.h").is_file()


def test_entries_are_sorted_and_belong_to_root() -> None:
    with tarfile.open(kit.package(NAME)) as archive:
        entries = archive.getmembers()
    names = [entry.name for entry in entries]
    assert names == sorted(names, key=lambda name: name.split("/"))
    assert {(entry.uid, entry.gid) for entry in entries} == {(0, 0)} and len({entry.mtime for entry in entries}) == 1
    modes = {(entry.isdir(), entry.mode) for entry in entries}
    assert modes == {(True, 0o755), (False, 0o755), (False, 0o644)}
