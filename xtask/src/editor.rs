// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask editor`: the JSON Schema of the configuration in a real language server for YAML.

use crate::{Outcome, node, pytest, testenv};

/// Installs what is missing and runs the tests; arguments go to pytest.
pub(crate) fn test_alone(arguments: &[String]) -> Outcome {
    testenv::setup(&[])?;
    test(arguments)
}

/// Runs `tests/editor`. It takes ten seconds when the gateway is built.
pub(crate) fn test(arguments: &[String]) -> Outcome {
    let server = "yaml-language-server/node_modules/yaml-language-server/bin/yaml-language-server";
    let programs = [
        ("TIDEGATE_NODE", node::find()?),
        ("TIDEGATE_YAML_SERVER", testenv::part(server)),
    ];
    pytest::run(
        &["tests/editor", "--quiet"],
        &[testenv::part("python-tools")],
        &programs,
        arguments,
    )
}
