// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask deploy`: the files of `deploy/`, read by the programs that will read them: Helm, hadolint, promtool,
//! systemd and tidegate itself.

use std::path::PathBuf;

use crate::test::workspace;
use crate::{Outcome, golang, pytest, testenv};

const HELM: golang::GoTool = golang::GoTool {
    name: "helm",
    package: "helm.sh/helm/v4/cmd/helm",
    version: "4.3.1",
};

/// Installs what is missing and runs the tests; arguments go to pytest.
pub(crate) fn test_alone(arguments: &[String]) -> Outcome {
    testenv::setup(&[])?;
    test(arguments)
}

/// Runs `tests/deploy`. It takes a quarter of a minute when Helm and the gateway are built.
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
    ];
    let programs: Vec<(&str, PathBuf)> = programs.into_iter().chain(others.iter().cloned()).collect();
    let mut folders = vec![part("deploy-tools"), part("python-tools")];
    folders.extend(paths.iter().map(|path| workspace().join(path)));
    pytest::run(what, &folders, &programs, arguments)
}

fn part(path: &str) -> PathBuf {
    testenv::directory().join(path)
}
