#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0

"""Builds the site of docs/ with Zensical: `docs/site.py DIRECTORY` writes it to DIRECTORY/VERSION.

The documents are written for GitHub. This program copies them to a temporary directory, with what the builder needs changed:
indentation of lists, and links to files outside docs/. `cargo xtask site` runs it.
"""

import json
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path, PurePosixPath
from typing import Callable, Iterator

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

# Documents of the root of the repository that are pages of the site, below `project/`.
PROJECT = ["ARCHITECTURE.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"]

# The parts of a link: before the file, the file, and the heading in it.
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")

ITEM = re.compile(r" *(?:[-*]|\d+\.) +")

INDEX = """<!doctype html>
<meta charset="utf-8">
<title>tidegate</title>
<meta http-equiv="refresh" content="0; url={version}/index.html">
<a href="{version}/index.html">tidegate {version}</a>
"""


def version() -> str:
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    return str(manifest["workspace"]["package"]["version"])


def uri_of(path: str) -> str:
    """The page or file of the site for a file of the repository."""
    if path in PROJECT:
        return f"project/{path}"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    # Browsers show a text; they would run or save a source.
    return f"source/{path}.txt"


class Site:
    """The pages in a directory, as the builder reads them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def add_all(self) -> None:
        for path in sorted(DOCS.rglob("*")):
            if path.suffix == ".md":
                self.add_page(path.relative_to(ROOT).as_posix())
            elif path.suffix in (".css", ".png", ".svg"):
                self.copy(path.relative_to(ROOT).as_posix())
        for name in PROJECT:
            self.add_page(name)

    def copy(self, path: str) -> None:
        to = self.directory / uri_of(path)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, to)

    def add_page(self, path: str) -> None:
        to = self.directory / uri_of(path)
        to.parent.mkdir(parents=True, exist_ok=True)
        lines = []
        is_code = False
        for line in indented((ROOT / path).read_text().splitlines()):
            is_code ^= line.lstrip().startswith("```")
            lines.append(line if is_code else adapted(line, lambda link: self.target(link, path)))
        to.write_text("\n".join(lines) + "\n")

    def target(self, link: str, document: str) -> str:
        """The file of a link of a document, as the site has it. Files outside docs/ come with the site."""
        path = posixpath.normpath((PurePosixPath(document).parent / link).as_posix())
        if path == "docs/decisions":
            path = first_decision()
        if (ROOT / path / "README.md").is_file():
            path = f"{path}/README.md"
        if (ROOT / path).is_dir():
            # A folder has no page. This one describes the folders.
            path = "ARCHITECTURE.md"
        if (ROOT / path).is_file() and path not in PROJECT and not path.startswith("docs/"):
            self.copy(path)
        return posixpath.relpath(uri_of(path), posixpath.dirname(uri_of(document)) or ".")


def first_decision() -> str:
    return min((DOCS / "decisions").glob("*.md")).relative_to(ROOT).as_posix()


def adapted(line: str, target: Callable[[str], str]) -> str:
    """The line with the files of its links replaced. `a[0](1)` in code is not a link, but the text of a link may be code."""

    def one(link: re.Match[str]) -> str:
        is_code = line[: link.start()].count("`") % 2 == 1
        return link[0] if is_code or ":" in link[2] else f"{link[1]}{target(link[2])}{link[3]}"

    return LINK.sub(one, line)


def indented(lines: list[str]) -> Iterator[str]:
    """Lists as Python-Markdown reads them: an empty line before a list, and four spaces for each level."""
    columns: list[int] = []
    is_code = False
    before = ""
    for line in lines:
        indent = len(line) - len(line.lstrip(" "))
        item = ITEM.match(line) if not is_code else None
        if item:
            if not columns and before.strip():
                yield ""
            while columns and columns[-1] > indent:
                columns.pop()
        elif line.strip() and indent == 0 and not before.strip() and not is_code:
            columns = []
        level = sum(1 for column in columns if column <= indent)
        if level and line.strip():
            yield " " * (4 * level + indent - columns[level - 1]) + line.lstrip(" ")
        else:
            yield line
        if item:
            columns.append(item.end())
        is_code ^= line.lstrip().startswith("```")
        before = line


def title(path: Path) -> str:
    """The first heading, without the class of a component."""
    heading = path.read_text().partition("\n")[0].removeprefix("# ")
    return re.sub(r" \(\w+\)$", "", heading)


def configuration() -> str:
    """The configuration, in the format of MkDocs. An entry of `nav` that names a folder becomes the pages of the folder."""
    lines = []
    for line in (DOCS / "site.yml").read_text().splitlines():
        folder = re.fullmatch(r"( *)- ([^:]+): (\S+)/", line)
        if folder is None:
            lines.append(line)
            continue
        indent, name, path = folder.groups()
        lines.append(f"{indent}- {name}:")
        pages = sorted((DOCS / path).glob("*.md"))
        lines += [f"{indent}    - {json.dumps(title(page))}: {path}/{page.name}" for page in pages]
    text = "\n".join(lines) + "\n"
    return text.replace("site_name: tidegate\n", f"site_name: tidegate {version()}\n")


def build(output: Path) -> Path:
    """Builds the site into a folder of its version, beside those of other versions.

    Zensical refuses a link to a page or a heading that does not exist.
    """
    output.mkdir(parents=True, exist_ok=True)
    site = output.resolve() / version()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        Site(directory / "pages").add_all()
        (directory / "mkdocs.yml").write_text(configuration())
        command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
        result = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise SystemExit(f"{result.stdout}{result.stderr}")
        shutil.rmtree(site, ignore_errors=True)
        shutil.copytree(directory / "site", site)
    versions = sorted(path.parent.name for path in output.glob("*/index.html"))
    listed = [{"version": name, "title": name, "aliases": []} for name in versions]
    (output / "versions.json").write_text(json.dumps(listed))
    (output / "index.html").write_text(INDEX.format(version=version()))
    return site


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: docs/site.py DIRECTORY")
    print(build(Path(sys.argv[1])))
