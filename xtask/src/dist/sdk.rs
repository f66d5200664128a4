// SPDX-License-Identifier: Apache-2.0

//! The tarball of the C and C++ SDK: what `cargo xtask capi` installs, with the guide, the examples and the licences.

use super::tree::Tree;
use super::{Release, archive, name_for_machine};
use crate::test::workspace;
use crate::{Outcome, capi};

pub(super) fn build(release: &Release) -> Outcome {
    const DOCUMENTS: &str = "share/doc/tidegate";
    let name = name_for_machine("tidegate-sdk");
    let tree = Tree::new(release.stage.join(&name))?;
    let mut arguments = vec!["--prefix".to_owned(), tree.root().display().to_string()];
    if release.is_debug {
        arguments.push("--debug".to_owned());
    }
    capi::install(&arguments)?;
    let package = workspace().join("crates/tidegate-capi");
    let examples = format!("{DOCUMENTS}/examples");
    tree.add_all(&examples, &package.join("examples"), &[".c", ".cpp"])?;
    tree.add(&format!("{DOCUMENTS}/c.md"), &workspace().join("docs/c.md"))?;
    tree.add(&format!("{DOCUMENTS}/LICENSE"), &workspace().join("LICENSE"))?;
    let notices = format!("{DOCUMENTS}/THIRD-PARTY-NOTICES.txt");
    tree.add(&notices, &release.notices)?;
    archive::pack(release, &tree, &name)
}
