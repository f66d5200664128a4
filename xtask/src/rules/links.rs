// SPDX-License-Identifier: Apache-2.0

//! Links: documents name only files that exist.

use std::path::Path;

use super::{Breach, files};

/// Documents, and directories with documents.
const DOCUMENTS: &[&str] = &[
    ".github",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "bench",
    "crates",
    "docs",
    "python",
    "tests",
];

/// Checks the relative links of all documents. It does not check web addresses and headings.
///
/// # Errors
/// A document that cannot be read.
pub(super) fn check(root: &Path) -> Result<Vec<Breach>, String> {
    let mut breaches = Vec::new();
    for place in DOCUMENTS {
        for (path, text) in files(root, place, "md")? {
            let folder = Path::new(&path).parent().unwrap_or(root);
            let exists = |target: &str| root.join(folder).join(target).exists();
            breaches.extend(of_document(&path, &text, exists));
        }
    }
    Ok(breaches)
}

fn of_document(path: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<Breach> {
    let links = links(text).into_iter();
    let missing = links.filter(|(_, target)| !exists(target));
    let breach = |(line, target): (usize, &str)| Breach {
        at: format!("{path}:{line}"),
        message: format!("`{target}` does not exist: write the path from the folder of this document"),
    };
    missing.map(breach).collect()
}

/// The files that the links of a document name, each with its line. Blocks of code have no links.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    let mut is_code = false;
    for (at, line) in text.lines().enumerate() {
        is_code ^= line.trim_start().starts_with("```");
        if !is_code {
            links.extend(targets(line).map(|target| (at + 1, target)));
        }
    }
    links
}

/// The files that the links of a line name.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, sign)| {
        // An odd number of quotes stands before code: `calls[0](1)` is not a link.
        let is_text = line[..at].matches('`').count().is_multiple_of(2);
        let (target, _) = line[at + sign.len()..].split_once(')')?;
        let file = target.split_once('#').map_or(target, |(file, _)| file);
        (is_text && !file.is_empty() && !file.contains(':')).then_some(file)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_name_files_except_in_code_and_on_the_web() {
        let table: [(&str, &[(usize, &str)]); 7] = [
            ("a [b](c.md), [`d`](../e/f.rs)", &[(1, "c.md"), (1, "../e/f.rs")]),
            ("\n![a](b.svg)", &[(2, "b.svg")]),
            ("[a](b.md#c)", &[(1, "b.md")]),
            ("[a](#b) [c](https://d.example/e.md)", &[]),
            ("`calls[0](1)` [a](b.md)", &[(1, "b.md")]),
            ("```rust\ncalls[0](1)\n```\n[a](b.md)", &[(4, "b.md")]),
            ("[a](b", &[]),
        ];
        for (text, expected) in table {
            assert_eq!(links(text), expected, "{text}");
        }
    }

    #[test]
    fn a_link_to_a_missing_file_is_a_breach() {
        let text = "[a](there.md)\n[b](gone.md#c)";
        let breaches = of_document("docs/a.md", text, |target| target == "there.md");
        let places: Vec<_> = breaches.iter().map(|breach| breach.at.as_str()).collect();
        assert_eq!(places, ["docs/a.md:2"]);
        assert!(breaches[0].message.contains("`gone.md`"));
    }
}
