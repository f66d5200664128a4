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
from typing import Any

import pytest
import yaml
from blocks import BASE, DOCS, Block, blocks_of, code_without_language
from commands import inline, inline_problems, script_problems
from guides import check_object, check_values, declared
from not_run import NOT_RUN, NOT_VALIDATED

ROOT = DOCS.parent

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

# Documents with parts of the values of the Helm chart, and its keys.
CHART = ("docs/cluster.md", "docs/deploy.md")
VALUES = json.loads((ROOT / "deploy/helm/tidegate/values.schema.json").read_text())["properties"].keys() - set(SECTIONS)

# Programs that other tests build and run: the language, the document, and the test that reads it.
PROGRAMS = {
    ("rust", "docs/plugins.md"): "crates/tidegate-plugin/src/lib.rs",
    ("rust", "docs/sdk.md"): "crates/tidegate-metrics/tests/examples.rs",
    ("c", "docs/c.md"): "crates/tidegate-capi/tests/programs.rs",
    ("cpp", "docs/c.md"): "crates/tidegate-capi/tests/programs.rs",
    ("c", "docs/plugins.md"): "crates/tidegate-plugin/tests/loading.rs",
    ("cmake", "docs/install.md"): "tests/dist/test_sdk.py",
}

# The file with the examples of the READMEs of crates and with parts of programs, which `cargo test` compiles.
EXAMPLES = "tests/it/readmes.rs"

# Statements in C that are compiled here: the documents, the folders of their headers, and the headers that they do not show.
STATEMENTS = {
    "docs/page.md": ("crates/tidegate-page/c", []),
    "crates/tidegate-capi/README.md": ("crates/tidegate-capi/include", ["stdio.h", "tidegate.h"]),
}

# `cargo xtask reference` writes the reference, and the changelog describes earlier versions too.
WITHOUT_CHECK = ("docs/reference/", "CHANGELOG.md")

FOLDERS = ("*.md", "bench/*.md", "crates/*/README.md", "docs/**/*.md", "python/*.md")
DOCUMENTS = sorted(
    name
    for folder in FOLDERS
    for name in (path.relative_to(ROOT).as_posix() for path in ROOT.glob(folder))
    if not name.startswith(WITHOUT_CHECK)
)


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


def yaml_problems(document: str, block: Block, tmp_path: Path) -> list[str]:
    """Checks a configuration, a part of one, or what another program reads. `NOT_VALIDATED` has the rest."""
    text, at = block.text, f"{document}:{block.line}"
    found = list(yaml.safe_load_all(text))
    # A file of tests stands beside its configuration. Its page runs it.
    if block.entry(document, NOT_VALIDATED) or re.match(r"# [\w.-]+\.test\.yaml\b", text):
        return []
    if text.startswith("# values.yaml") or (isinstance(found[0], dict) and document in CHART and found[0].keys() & VALUES):
        for values in found:
            check_values(at, values)
        return []
    if part := configuration(text):
        return problems(part, tmp_path)
    if wrapped := scrape_configs(found[0]):
        return problems(wrapped, tmp_path)
    for shown in found:
        check_object(at, kubernetes_object(shown), declared(os.path.relpath(ROOT / document, DOCS)))
    return []


def scrape_configs(found: object) -> str | None:
    """Scrape jobs, or the targets of one, as a part of a configuration."""
    if not isinstance(found, list):
        return None
    jobs = found if "job_name" in found[0] else [{"job_name": "shown", "static_configs": found}]
    return yaml.safe_dump({"receivers": {"prometheus": {"config": {"scrape_configs": jobs}}}})


def kubernetes_object(shown: Any) -> dict[str, Any]:
    """An object around the part of one that a document shows."""
    if "kind" in shown:
        return shown  # type: ignore[no-any-return]
    metadata = {"name": "shown"}
    if "triggers" in shown:
        return {"kind": "ScaledObject", "metadata": metadata, "spec": shown}
    if "rules" in shown:
        return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata, **shown}
    volumes = shown.pop("volumes")
    containers = [{"name": "engine", "image": "engine", **shown}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, "volumes": volumes}}


def query_problems(text: str, tmp_path: Path) -> list[str]:
    """Checks each line of queries as the rule of a file: the gateway parses it."""
    queries = [line for line in text.splitlines() if line.split("#")[0].strip()]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    extensions = {"admin": None, "rules": {"files": ["rules.yaml"]}}
    return problems(yaml.safe_dump({"extensions": extensions, "service": {"extensions": list(extensions)}}), tmp_path)


def commands_of(text: str) -> str:
    """The commands of a block that also has their output: the lines after a dollar."""
    return "".join(f"{line[2:]}\n" for line in text.splitlines() if line.startswith("$ "))


def shell_problems(text: str) -> list[str]:
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    return script_problems(text)


def compile_c(text: str, folder: str, headers: list[str]) -> None:
    """Checks statements. They may include headers."""
    lines = text.splitlines(keepends=True)
    includes = [line for line in lines if line.startswith("#include")]
    statements = [line for line in lines if line not in includes]
    hidden = [f"#include <{header}>\n" for header in headers]
    program = "".join([*hidden, *includes, "int main(void) {\n", *statements, "return 0;\n}\n"])
    command = ["cc", "-std=c11", "-fsyntax-only", "-I", str(ROOT / folder), "-x", "c", "-"]
    subprocess.run(command, input=program, text=True, check=True)


def unspaced(code: str) -> str:
    """The code without what rustfmt adds and removes where the lines of a longer file end."""
    return re.sub(r",(?=[\])}])", "", re.sub(r"\s", "", code))


def example_problems(document: str, text: str) -> list[str]:
    """The example of a README of a crate must stand in the file of examples, after the name of the document."""
    _, begin, rest = (ROOT / EXAMPLES).read_text().partition(f"// {document}\n")
    example = re.split(r"(?m)^// [\w/-]+\.md$", rest)[0]
    return [] if begin and unspaced(text) in unspaced(example) else [f"{EXAMPLES} has no such example of {document}"]


def check(document: str, block: Block, tmp_path: Path) -> list[str]:
    if block.language == "rust" and block.entry(document, NOT_RUN):
        return []
    match block.language:
        case "yaml":
            return yaml_problems(document, block, tmp_path)
        case "sh":
            return shell_problems(block.text)
        case "console":
            commands = commands_of(block.text)
            return shell_problems(commands) if commands else ["no line begins with a dollar and a command"]
        case "promql":
            return query_problems(block.text, tmp_path)
        case "json":
            json.loads(block.text)
        case "toml":
            tomllib.loads(block.text)
        case "python":
            compile(block.text, document, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        case "text":
            pass
        case "rust" if document.startswith("crates/") or (document == "docs/sdk.md" and "fn main" not in block.text):
            return example_problems(document, block.text)
        case "c" if document in STATEMENTS:
            compile_c(block.text, *STATEMENTS[document])
        case language:
            test = PROGRAMS.get((language, document))
            assert test, f"no test builds blocks of `{language}` in {document}"
            assert document.removeprefix("docs/") in (ROOT / test).read_text(), f"{test} does not read {document}"
    return []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_blocks_of_code_are_sound(document: str, tmp_path: Path) -> None:
    found = [f"{document}:{line}: write a block with a language" for line in code_without_language(ROOT / document)]
    for block in blocks_of(ROOT / document):
        found += [f"{document}:{block.line}: {problem}" for problem in check(document, block, tmp_path)]
    assert found == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_in_sentences_exist(document: str) -> None:
    commands = inline((ROOT / document).read_text())
    assert [f"{document}:{line}: {problem}" for line, text in commands for problem in inline_problems(text)] == []


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("tidegate run --configs a.yaml", "`tidegate run` has no option `--configs`"),
        ("tidegate --config a.yaml --set a.b=c", None),
        ("tidegate start --config a.yaml", "`tidegate` has no command `start`"),
        ("tidegate query", "`tidegate query` needs an argument"),
        ("tidegate query up down", "`tidegate query` takes 1 arguments, not 2"),
        ("tidegate query 'sum(up) | x' --range", "`tidegate query --range` needs a value"),
        ("a=1 ./tidegate ring ls \\\n  --jsonl rings && true", "`tidegate ring ls` has no option `--jsonl`"),
        ("echo $(tidegate version --short) | cat", "`tidegate version` has no option `--short`"),
        ("cargo run --release -- quickstart --secs 1", "`tidegate quickstart` has no option `--secs`"),
        ("cargo xtask tests", "`cargo xtask tests`: no such command"),
        ("curl --silently http://127.0.0.1 # tidegate start", None),
    ],
)
def test_a_wrong_command_line_is_found(script: str, problem: str | None) -> None:
    assert script_problems(script) == ([problem] if problem else [])


def test_code_without_a_language_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Text\n\n    code\n\n- point\n\n    text of the point\n\n```\nblock\n```\n\n```sh\nls\n\n    ls\n```\n")
    assert code_without_language(page) == [3, 9]


def test_an_example_that_nothing_compiles_is_found() -> None:
    document = "crates/tidegate-ring/README.md"
    (block,) = blocks_of(ROOT / document)
    assert example_problems(document, block.text) == []
    assert example_problems(document, block.text.replace("commit", "confirm")) != []
    assert example_problems("crates/tidegate-wal/README.md", block.text) != []


def test_a_wrong_query_is_found(tmp_path: Path) -> None:
    assert query_problems("rate(hits_total[5m]) > 0   # more\nsum by (a) (up)\n", tmp_path) == []
    assert "unclosed left parenthesis" in query_problems("sum(rate(hits_total[5m])\n", tmp_path)[-1]


def test_a_wrong_option_in_a_part_is_found(tmp_path: Path) -> None:
    assert problems("exporters: {otlphttp: {endpoint: 'http://a:1', sending_queue: {storage: disk}}}\n", tmp_path) == []
    (problem,) = problems("exporters: {otlphttp: {endpoint: 'http://a:1', compress: gzip}}\n", tmp_path)
    assert "unknown key" in problem
