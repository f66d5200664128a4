// SPDX-License-Identifier: Apache-2.0

//! The tarball of the C and C++ SDK: what `cargo xtask capi` installs, with the guide, the examples and the licences.

use std::fs;

use super::documents::PackageFiles;
use super::tree::Tree;
use super::{Release, archive, name_for_machine};
use crate::{Outcome, capi};

const GUIDE: &str = "docs/c.md";

/// The last line of the guide.
const REST: &str = "\nThe files in `docs/` are in the tarball of the gateway.\n";

pub(super) fn build(release: &Release) -> Outcome {
    const DOCUMENTS: &str = "share/doc/tidegate";
    let name = name_for_machine("tidegate-sdk");
    let tree = Tree::new(release.stage.join(&name))?;
    let mut arguments = vec!["--prefix".to_owned(), tree.root().display().to_string()];
    if release.is_debug {
        arguments.push("--debug".to_owned());
    }
    capi::install(&arguments)?;
    let mut files = PackageFiles::default();
    files.add("LICENSE", "LICENSE");
    files.add(GUIDE, "c.md");
    files.add_all("crates/tidegate-capi/examples", "examples", &[".c", ".cpp"])?;
    files.copy(&tree, DOCUMENTS)?;
    let guide = tree.root().join(DOCUMENTS).join("c.md");
    let text = fs::read_to_string(&guide).map_err(|error| format!("{}: {error}", guide.display()))?;
    tree.write(&format!("{DOCUMENTS}/c.md"), &format!("{text}{REST}"))?;
    let notices = format!("{DOCUMENTS}/THIRD-PARTY-NOTICES.txt");
    tree.add(&notices, &release.notices)?;
    archive::pack(release, &tree, &name)
}
