# SPDX-License-Identifier: Apache-2.0

"""Each option of the reference shows a value, and the program accepts the type of each value."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from blocks import DOCS, blocks_of

sys.path.append(str(DOCS))
values = importlib.import_module("example_values")

REFERENCE = DOCS / "reference"
BINARY = os.environ["TIDEGATE_BINARY"]

ROW = re.compile(r"(?m)^\| `([^`]+)` \| ([^|]+) \| ([^|]*) \| (.*) \|$")

# The defaults that show no value. The cell of a map of other options is empty: they have the defaults.
WITHOUT_VALUE = ("unset", "required", "`{}`", "`[]`")

PAGES = sorted(path for path in REFERENCE.rglob("*.md") if "\n## Options\n" in path.read_text())

DESCRIBED = json.loads(subprocess.run([BINARY, "components", "--json"], capture_output=True, text=True, check=True).stdout)
COMPONENTS = {f"{component['class']}s/{component['type']}": component for component in DESCRIBED["components"]}
COMPONENTS["service"] = DESCRIBED["service"] | {"example": ""}

Row = dict[str, Any]


def rows_without_value(page: Path) -> list[str]:
    """The options of a page that show no value, neither in their row nor in the example of the page."""
    table = page.read_text().partition("\n## Options\n")[2].partition("\n## ")[0]
    example = next((block.text for block in blocks_of(page) if block.language == "yaml"), "")
    found = []
    for path, _, default, meaning in ROW.findall(table):
        name = path.split("::")[-1].removesuffix("[]")
        in_row = re.search(r"Example: `|for example `|without effect", meaning)
        if default in WITHOUT_VALUE and not in_row and not re.search(rf"(?<![\w-]){re.escape(name)}:", example):
            found.append(path)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(REFERENCE).as_posix())
def test_each_option_shows_a_value(page: Path) -> None:
    assert rows_without_value(page) == [], "add a value to docs/example_values.py, and run `cargo xtask reference`"


def test_there_are_pages_with_options() -> None:
    assert len(PAGES) > 40


def test_a_row_without_value_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    example = "\n```yaml\na: {c: 1}\n```\n"
    texts = {"b": "unset | T.", "c": "required | T.", "d": "unset | Example: `e`.", "e": "`5s` | T."}
    rows = [f"| `{name}` | path | {text} |\n" for name, text in texts.items()]
    page.write_text(f"{example}\n## Options\n\n{''.join(rows)}\n## More\n\n| `f` | path | unset | T. |\n")
    assert rows_without_value(page) == ["b"]


def shown(component: Row) -> dict[str, str]:
    """The values in the rows of a component, by the paths of their options."""
    options = [option for option in component["options"] if not option["is_without_effect"]]
    found = ((option["path"], values.example_of(option, options, component["example"])) for option in options)
    return {path: value for path, value in found if value is not None}


def put(tree: Any, path: str, value: Any) -> None:
    """Sets an option of a configuration. Each list has one item."""
    *names, last = re.sub(r"\[\]", "::[]", path).split("::")
    for name, after in zip(names, [*names[1:], last]):
        empty: Any = [] if after == "[]" else {}
        if name == "[]":
            tree[:] = tree or [empty]
            tree = tree[0]
        else:
            tree = tree.setdefault(name, empty)
    tree[last] = value


def type_problems(section: str, of_component: dict[str, str]) -> list[str]:
    """What the program says of the types of values, and of names that it does not know."""
    # An option and those inside it can't be in one file.
    outer = {path for path in of_component if any(re.match(rf"{re.escape(path)}(?:\[\]|::)", other) for other in of_component)}
    inner = {path: value for path, value in of_component.items() if path not in outer}
    problems = []
    for chosen in [inner, *({path: of_component[path]} for path in sorted(outer))]:
        tree: dict[str, Any] = {}
        for path, value in chosen.items():
            put(tree, path, yaml.safe_load(value))
        kind, _, name = section.partition("/")
        text = json.dumps({kind: {name: tree} if name else tree})
        variables = dict.fromkeys(re.findall(r"\$\{env:(\w+)", text), "value")
        command = [BINARY, "validate", "--config", f"yaml:{text}"]
        result = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
        problems += re.findall(r"error: (.*: expected .*, found .*|.*unknown key.*)", result.stderr)
    return problems


@pytest.mark.parametrize("section", COMPONENTS)
def test_the_program_accepts_the_types_of_values(section: str) -> None:
    assert type_problems(section, shown(COMPONENTS[section])) == []


def test_a_value_of_another_type_is_found() -> None:
    assert type_problems("receivers/uds", {"stream::path": "a", "stream::allowed_uids": "[1000]"}) == []
    (problem,) = type_problems("receivers/uds", {"stream::path": "a", "stream::allowed_uids": "many"})
    assert "expected a list of non-negative integers" in problem
    (problem,) = type_problems("receivers/uds", {"stream": "{paths: a}"})
    assert "unknown key" in problem


def test_each_value_of_the_table_is_used() -> None:
    used = {value for component in COMPONENTS.values() for option in component["options"] if (value := values.by_end(option))}
    assert set(values.BY_END.values()) - used == set()
