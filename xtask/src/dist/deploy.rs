// SPDX-License-Identifier: Apache-2.0

//! The archive of `deploy/`: the chart, the base for Kustomize, dashboards, alerts and examples. It is the same for all
//! processors.

use super::tree::Tree;
use super::{Release, VERSION, archive};
use crate::Outcome;
use crate::test::workspace;

/// The folders of `deploy/` that users need. The others make the image, the packages and the dashboards.
const FOLDERS: &[&str] = &[
    "alerts",
    "compose",
    "grafana",
    "helm",
    "keda",
    "kustomize",
    "systemd",
];

pub(super) fn build(release: &Release) -> Outcome {
    let name = format!("tidegate-{VERSION}-deploy");
    let tree = Tree::new(release.stage.join(&name))?;
    for folder in FOLDERS {
        let folder = format!("deploy/{folder}");
        tree.add_all(&folder, &workspace().join(&folder), &[""])?;
    }
    tree.add("LICENSE", &workspace().join("LICENSE"))?;
    archive::pack(release, &tree, &name)
}
