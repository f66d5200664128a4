// SPDX-License-Identifier: Apache-2.0

//! The tarball: the binary with all that belongs to it, for machines without packages.

use super::gateway::{Gateway, add_documents};
use super::tree::Tree;
use super::{Release, archive, name_for_machine};
use crate::Outcome;
use crate::test::workspace;

pub(super) fn build(release: &Release, gateway: &Gateway) -> Outcome {
    let name = name_for_machine("tidegate");
    let tree = Tree::new(release.stage.join(&name))?;
    tree.add_program("tidegate", &gateway.binary)?;
    tree.write("man/tidegate.1", &gateway.manual)?;
    tree.write("completions/tidegate.bash", &gateway.completions.bash)?;
    tree.write("completions/_tidegate", &gateway.completions.zsh)?;
    tree.write("completions/tidegate.fish", &gateway.completions.fish)?;
    tree.add_all("systemd", &workspace().join("deploy/systemd"), &[""])?;
    add_documents(release, &tree, ".")?;
    archive::pack(release, &tree, &name)
}
