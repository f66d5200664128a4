# SPDX-License-Identifier: Apache-2.0

"""The blocks of code of all documents are sound, also where they show only a part: `test_pages.py` runs some pages whole.

A part of a configuration must have valid options. Components and variables that it names may be elsewhere.
"""

import ast
import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from blocks import BASE, DOCS, Block, blocks

BINARY = os.environ["TIDEGATE_BINARY"]

SECTIONS = ("receivers", "processors", "exporters", "connectors", "extensions", "service")

# Errors of a part that a complete configuration would not have.
MISSING_PARTS = (
    "is not an extension that the gateway starts",
    "which is not configured",
    "configuration specified in config",
    "needs the `admin` extension",
)

# Keys of other files, such as the values of the Helm chart, that are also types of components.
OTHER_KEYS = ("cluster", "rules")

# Programs that other tests build and run: the languages, and the pages that they read.
PROGRAMS = {
    "rust": ("plugins.md", "sdk.md"),
    "c": ("c.md", "plugins.md"),
    "cpp": ("c.md", "plugins.md"),
    "cmake": ("install.md",),
}

PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if "reference" not in path.parts)


def kinds() -> dict[str, str]:
    """The section of each component type that has one section only."""
    listed = subprocess.run([BINARY, "components", "--json"], capture_output=True, text=True, check=True)
    found: dict[str, list[str]] = {}
    for component in json.loads(listed.stdout)["components"]:
        found.setdefault(component["type"], []).append(f"{component['class']}s")
    return {kind: sections[0] for kind, sections in found.items() if len(sections) == 1}


KINDS = kinds()


def indented(text: str, indent: int) -> str:
    return "".join(f"{' ' * indent}{line}\n" for line in text.splitlines())


def configuration(text: str) -> str | None:
    """The block as sections of a configuration; nothing if it is something else."""
    begin = re.search(r"(?m)^([a-z_]+)(?:/\S+)?:", text)
    if begin is None:
        return None
    key = begin[1]
    if key in SECTIONS:
        return text
    if key in KINDS and key not in OTHER_KEYS:
        return f"{KINDS[key]}:\n{indented(text, 2)}"
    if key == "scrape_configs":
        return f"receivers:\n  prometheus:\n    config:\n{indented(text, 6)}"
    return None


def problems(text: str, tmp_path: Path) -> list[str]:
    names = re.findall(r"\$\{env:(\w+)", text)
    (tmp_path / "part.yaml").write_text(text)
    (tmp_path / "base.yaml").write_text(BASE)
    files = ["part.yaml"] if "pipelines:" in text else ["base.yaml", "part.yaml"]
    command = [BINARY, "validate", *[word for file in files for word in ("--config", file)]]
    environment = {**os.environ, **{name: "user:value" for name in names}}
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    found = re.findall(r"(?m)^\S*:\d+:\d+: error: .*|^error: .*", result.stderr)
    if result.returncode != 0 and not found:
        return [result.stderr]
    return [error for error in found if not any(part in error for part in MISSING_PARTS)]


def compile_c(text: str) -> None:
    """Checks statements that include a header."""
    lines = text.splitlines(keepends=True)
    includes = [line for line in lines if line.startswith("#include")]
    statements = [line for line in lines if line not in includes]
    program = "".join([*includes, "int main(void) {\n", *statements, "return 0;\n}\n"])
    header = DOCS.parent / "crates/tidegate-page/c"
    command = ["cc", "-std=c11", "-fsyntax-only", "-I", str(header), "-x", "c", "-"]
    subprocess.run(command, input=program, text=True, check=True)


def check(page: str, block: Block, tmp_path: Path) -> list[str]:
    match block.language:
        case "yaml":
            part = configuration(block.text)
            list(yaml.safe_load_all(block.text))
            # A file of tests stands beside its configuration. Its page runs it.
            return problems(part, tmp_path) if part and not block.text.startswith("# gateway.test") else []
        case "sh":
            subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)
        case "json":
            json.loads(block.text)
        case "toml":
            tomllib.loads(block.text)
        case "python":
            compile(block.text, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        case "text":
            pass
        case "c" if page == "page.md":
            compile_c(block.text)
        case language:
            assert page in PROGRAMS.get(language, ()), f"no test builds blocks of `{language}` in docs/{page}"
    return []


@pytest.mark.parametrize("page", PAGES)
def test_blocks_of_code_are_sound(page: str, tmp_path: Path) -> None:
    found = []
    for block in blocks(page):
        found += [f"docs/{page}:{block.line}: {problem}" for problem in check(page, block, tmp_path)]
    assert found == []


def test_a_wrong_option_in_a_part_is_found(tmp_path: Path) -> None:
    assert problems("exporters: {otlphttp: {endpoint: 'http://a:1', sending_queue: {storage: disk}}}\n", tmp_path) == []
    (problem,) = problems("exporters: {otlphttp: {endpoint: 'http://a:1', compress: gzip}}\n", tmp_path)
    assert "unknown key" in problem
