# SPDX-License-Identifier: Apache-2.0

"""The values of the chart that the guides show: the chart renders with them, and tidegate accepts its configurations.

The commands of Helm in all documents have options of Helm. Where they install a chart, it renders with the same arguments.
"""

import shutil
import sys
from pathlib import Path

import kit
import kubernetes_validate
import pytest

sys.path.append(str(kit.ROOT / "tests/docs"))
from blocks import DOCS, blocks, blocks_of
from commands import lines, words
from not_run import NOT_RUN

VALUES = {
    f"{path.stem}-{block.line}": block.text
    for path in sorted((DOCS / "guides").glob("*.md"))
    for block in blocks(f"guides/{path.name}")
    if block.text.startswith("# values.yaml\n")
}


@pytest.mark.parametrize("name", VALUES)
def test_the_chart_has_a_valid_configuration_with_the_values(name: str, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(VALUES[name])
    for found in kit.objects(values):
        if found["kind"] not in ("ServiceMonitor", "PrometheusRule", "ScaledObject"):
            kubernetes_validate.validate(found, "1.37", strict=True)
    for workload, files in kit.configurations(values):
        paths = [tmp_path / file for file in files]
        for path in paths:
            path.write_text(files[path.name])
        variables = {variable["name"]: "instance:key" for variable in kit.container(workload).get("env", [])}
        result = kit.validate(paths, variables)
        assert result.returncode == 0 and not result.stderr, result.stderr


def test_guides_show_values() -> None:
    assert len(VALUES) >= 2


def commands() -> dict[str, tuple[list[str], str]]:
    """The commands of Helm that no test runs, each with the values that the document shows before it."""
    found = {}
    for document in sorted({document for document, _ in NOT_RUN}):
        values = ""
        for block in blocks_of(kit.ROOT / document):
            values = block.text if block.text.startswith("# values.yaml\n") else values
            if block.entry(document, NOT_RUN) and block.language == "sh":
                each = [command for line in lines(block.text) for command in words(line) if command[0] == "helm"]
                found |= {f"{document}:{block.line}-{number}": (command, values) for number, command in enumerate(each)}
    return found


COMMANDS = commands()


def test_documents_show_commands_of_helm() -> None:
    assert {command[1] for command, _ in COMMANDS.values()} == {"get", "install", "template", "upgrade"}


@pytest.mark.parametrize("place", COMMANDS)
def test_helm_has_the_options_of_the_command(place: str) -> None:
    command, _ = COMMANDS[place]
    # `--help` keeps it from running.
    result = kit.run(kit.program("helm"), *command[1:], "--help")
    assert result.returncode == 0, result.stderr


# Options of commands that need a cluster.
WITHOUT_CLUSTER = ("--create-namespace", "--reset-then-reuse-values", "--reset-values", "--wait")


@pytest.mark.parametrize("place", [place for place, (command, _) in COMMANDS.items() if command[1] != "get"])
def test_the_chart_renders_with_the_arguments_of_the_command(place: str, tmp_path: Path) -> None:
    command, values = COMMANDS[place]
    (tmp_path / "deploy").symlink_to(kit.DEPLOY)
    (tmp_path / "values.yaml").write_text(values)
    shutil.copy(kit.COLLECTORS[0], tmp_path / "collector-values.yaml")
    arguments = [word for word in command[2:] if word not in WITHOUT_CLUSTER]
    result = kit.run(kit.program("helm"), "template", *arguments, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    shown = kit.documents(result.stdout)
    workloads = {found["kind"] for found in shown} & {"DaemonSet", "Deployment", "StatefulSet"}
    assert workloads or "--show-only" in command, shown


def test_an_option_that_helm_does_not_have_is_found() -> None:
    assert kit.run(kit.program("helm"), "install", "a", "b", "--value", "c", "--help").returncode != 0
