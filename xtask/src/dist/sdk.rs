// SPDX-License-Identifier: Apache-2.0

//! The tarball of the C and C++ SDK: what `cargo xtask capi` installs, with the guide, the examples and the licences.

use std::fs;

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
    let guide = workspace().join("docs/c.md");
    let guide = fs::read_to_string(&guide).map_err(|error| format!("{}: {error}", guide.display()))?;
    tree.write(&format!("{DOCUMENTS}/c.md"), &alone(&guide))?;
    tree.add(&format!("{DOCUMENTS}/LICENSE"), &workspace().join("LICENSE"))?;
    let notices = format!("{DOCUMENTS}/THIRD-PARTY-NOTICES.txt");
    tree.add(&notices, &release.notices)?;
    archive::pack(release, &tree, &name)
}

/// The last line of the guide.
const REST: &str = "\nThe files in `docs/` are in the tarball of the gateway.\n";

/// The guide without links to files that are not in the tarball: it has the names of these files instead.
fn alone(guide: &str) -> String {
    let guide = guide.replace("](../crates/tidegate-capi/examples/", "](examples/");
    let mut out = String::with_capacity(guide.len());
    let mut rest = guide.as_str();
    while let Some((before, after)) = rest.split_once("](") {
        let link = after.split_once(')').filter(|(target, _)| is_document(target));
        let text = before.rsplit_once('[');
        if let (Some((target, after)), Some((before, text))) = (link, text) {
            let file = target.split('#').next().unwrap_or(target);
            out.push_str(before);
            if text == file {
                out.push_str(&format!("`docs/{file}`"));
            } else {
                out.push_str(&format!("{text} (`docs/{file}`)"));
            }
            rest = after;
        } else {
            out.push_str(before);
            out.push_str("](");
            rest = after;
        }
    }
    out + rest + REST
}

/// Whether the target of a link is another document of the repository.
fn is_document(target: &str) -> bool {
    let file = target.split('#').next().unwrap_or(target);
    file.ends_with(".md") && !file.contains("://")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_files_of_the_tarball_only() {
        let guide = "a [b](guides/sdk.md#c), [c.md](c.md)\n[`d`](../crates/tidegate-capi/examples/d.c) and [&](const a &b) {}\n";
        let expected =
            "a b (`docs/guides/sdk.md`), `docs/c.md`\n[`d`](examples/d.c) and [&](const a &b) {}\n"
                .to_owned();
        assert_eq!(alone(guide), expected + REST);
    }
}
