# SPDX-License-Identifier: Apache-2.0

"""The tests of the examples in config/: `tests/it/testcmd.rs` runs them, and this file reads what they expect."""

from pathlib import Path

import pytest
import yaml
from blocks import DOCS
from guides import composites

EXAMPLES = [path for path in sorted((DOCS.parent / "config").glob("*.yaml")) if not path.name.endswith(".test.yaml")]

# Those of processors. `tidegate test` has no cluster, so the composites of a `partials` receiver have no values there.
DECLARED = {path: found for path in EXAMPLES if (found := composites(yaml.safe_load(path.read_text()).get("processors")))}


@pytest.mark.parametrize("example", DECLARED, ids=lambda path: path.stem)
def test_each_composite_of_an_example_is_expected_in_its_test(example: Path) -> None:
    tests = yaml.safe_load(example.with_suffix(".test.yaml").read_text())["tests"]
    expected = {check["composite"] for test in tests for check in test["expect"] if "composite" in check}
    assert expected == DECLARED[example]


def test_examples_have_composites() -> None:
    assert len(DECLARED) == 5 and len(DECLARED[DOCS.parent / "config/whole-node.yaml"]) == 10
