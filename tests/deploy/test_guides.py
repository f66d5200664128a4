# SPDX-License-Identifier: Apache-2.0

"""The values of the chart that the guides show: the chart renders with them, and tidegate accepts its configurations."""

import sys
from pathlib import Path

import kit
import kubernetes_validate
import pytest

sys.path.append(str(kit.ROOT / "tests/docs"))
from blocks import DOCS, blocks

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
