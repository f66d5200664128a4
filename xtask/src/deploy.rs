// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask deploy`: the files of `deploy/`, read by the programs that will read them: Helm, hadolint, promtool,
//! Prometheus, systemd and tidegate itself. `cargo xtask dashboards` writes those that have a source in `deploy/monitoring`.

use std::path::PathBuf;

use crate::test::workspace;
use crate::testenv::{self, part};
use crate::{Outcome, golang, process, pytest};

/// Renders the chart.
pub(crate) const HELM: golang::GoTool = golang::GoTool {
    name: "helm",
    package: "helm.sh/helm/v4/cmd/helm",
    version: "4.3.1",
};

/// The part of the test environment with the Python packages that read the files of `deploy/`.
const TOOLS: &str = "deploy-tools";

/// Builds Helm unless the cache has it.
///
/// # Errors
/// The build fails, or the user has no cache directory.
pub(crate) fn setup() -> Outcome {
    HELM.installed().map(drop)
}

/// Installs what is missing and runs the tests; arguments go to pytest.
pub(crate) fn test_alone(arguments: &[String]) -> Outcome {
    testenv::setup(&[])?;
    test(arguments)
}

/// Writes dashboards, alerts and runbooks from their sources in `deploy/monitoring`, and prints the files that changed.
pub(crate) fn dashboards(arguments: &[String]) -> Outcome {
    if !arguments.is_empty() {
        return Err("usage: cargo xtask dashboards".into());
    }
    testenv::setup_part(TOOLS)?;
    process::stream(pytest::python(&[part(TOOLS)])?.arg(workspace().join("deploy/monitoring/generate.py")))
}

/// Runs `tests/deploy`. It takes half a minute when Helm and the gateway are built.
pub(crate) fn test(arguments: &[String]) -> Outcome {
    pytest(&["tests/deploy", "--quiet"], &[], &[], arguments)
}

/// Runs pytest with Helm, the gateway and what reads the files of `deploy/`. `paths` are further folders of modules.
pub(crate) fn pytest(
    what: &[&str],
    paths: &[&str],
    others: &[(&str, PathBuf)],
    arguments: &[String],
) -> Outcome {
    let programs = [
        ("TIDEGATE_HELM", HELM.installed()?),
        ("TIDEGATE_SYSTEMD", part("systemd")),
        ("TIDEGATE_HADOLINT", part("deploy-tools/bin/hadolint")),
        ("TIDEGATE_PROMTOOL", part("debian-unstable/usr/bin/promtool")),
        ("TIDEGATE_PROMETHEUS", part("debian-unstable/usr/bin/prometheus")),
        ("TIDEGATE_DYNAMO", part("dynamo")),
    ];
    let programs: Vec<(&str, PathBuf)> = programs.into_iter().chain(others.iter().cloned()).collect();
    // `python` has the client of gRPC.
    let mut folders = vec![part(TOOLS), part("python-tools"), part("python")];
    folders.extend(paths.iter().map(|path| workspace().join(path)));
    pytest::run(what, &folders, &programs, arguments)
}
