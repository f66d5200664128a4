// SPDX-License-Identifier: Apache-2.0

//! The package for distributions with RPM, packed by rpmbuild
//! (docs/decisions/0046-packages-come-from-the-distributions-tools.md).

use std::fs;
use std::path::Path;

use super::gateway::Gateway;
use super::tree::Tree;
use super::{Release, sortable_version};
use crate::test::workspace;
use crate::{Outcome, process, testenv};

pub(super) fn build(release: &Release, gateway: &Gateway) -> Outcome {
    let tree = Tree::new(release.stage.join("rpm"))?;
    gateway.install(release, &tree, "usr/share/zsh/site-functions")?;
    tree.set_modes()?;
    let work = Tree::new(release.stage.join("rpmbuild"))?;
    let template = workspace().join("deploy/packages/rpm/tidegate.spec");
    let spec = fs::read_to_string(&template).map_err(|error| format!("{}: {error}", template.display()))?;
    let spec = spec
        .replace("@VERSION@", &sortable_version())
        .replace("@GLIBC@", &format!("(GLIBC_{})(64bit)", gateway.glibc));
    work.write("tidegate.spec", &spec)?;
    testenv::setup_part("packaging")?;
    let part = testenv::part("packaging");
    let arch = std::env::consts::ARCH;
    let mut rpmbuild = release.command(part.join("usr/bin/rpmbuild"));
    rpmbuild
        .env("RPM_CONFIGDIR", part.join("usr/lib/rpm"))
        .env("LD_LIBRARY_PATH", part.join(format!("usr/lib/{arch}-linux-gnu")))
        .args(["-bb", "--quiet", "--target"])
        .arg(format!("{arch}-linux"))
        .arg("--buildroot")
        .arg(tree.root());
    for definition in definitions(release, work.root()) {
        rpmbuild.args(["--define", &definition]);
    }
    process::run(rpmbuild.arg(work.root().join("tidegate.spec")))
}

/// Macros of rpmbuild that differ from those of a distribution.
fn definitions(release: &Release, work: &Path) -> Vec<String> {
    let payload = if release.is_debug { "w1.gzdio" } else { "w6.xzdio" };
    let (work, output) = (work.display(), release.output.display());
    vec![
        format!("_topdir {work}"),
        format!("_dbpath {work}/db"),
        format!("_rpmdir {output}"),
        "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm".to_owned(),
        format!("_binary_payload {payload}"),
        // The binary stays as it is: the profiler reads its symbols.
        "__os_install_post %{nil}".to_owned(),
        "debug_package %{nil}".to_owned(),
        "_build_id_links none".to_owned(),
        "_buildhost localhost".to_owned(),
        "use_source_date_epoch_as_buildtime 1".to_owned(),
        "clamp_mtime_to_source_date_epoch 1".to_owned(),
    ]
}
