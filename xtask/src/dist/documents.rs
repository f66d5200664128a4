// SPDX-License-Identifier: Apache-2.0

//! The documents of a package. Their links lead only to files that the package has.

use std::collections::BTreeMap;
use std::fs;

use super::tree::{Tree, files};
use crate::Outcome;
use crate::test::workspace;

/// Paths of the repository that documents write in text and commands, with those in a package.
const PATHS: &[(&str, &str)] = &[
    ("config/", "examples/"),
    ("crates/tidegate-plugin/include", "include"),
];

/// The files that documents of a package may link to: their paths in the repository, with those in the package.
#[derive(Default)]
pub(super) struct PackageFiles(BTreeMap<String, String>);

/// What a link of a document becomes.
#[derive(Debug, Eq, PartialEq)]
enum PackageLink {
    /// A link with this target.
    To(String),
    /// The name of a file that the package does not have: its path in the repository.
    Name(String),
}

impl PackageFiles {
    pub(super) fn add(&mut self, path: &str, to: &str) {
        self.0.insert(path.to_owned(), to.to_owned());
    }

    /// Adds the files of a folder, and of those in it, whose names end with one of `ends`.
    ///
    /// # Errors
    /// A folder that can't be read.
    pub(super) fn add_all(&mut self, folder: &str, to: &str, ends: &[&str]) -> Outcome {
        for file in files(&workspace().join(folder), ends)? {
            self.add(&format!("{folder}/{file}"), &format!("{to}/{file}"));
        }
        Ok(())
    }

    /// Copies all files into a directory of the tree.
    ///
    /// # Errors
    /// A file that can't be read or written.
    pub(super) fn copy(&self, tree: &Tree, directory: &str) -> Outcome {
        for (path, to) in &self.0 {
            let (file, to) = (workspace().join(path), format!("{directory}/{to}"));
            if path.ends_with(".md") {
                let text =
                    fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
                tree.write(&to, &self.adapted(path, &text))?;
            } else {
                tree.add(&to, &file)?;
            }
        }
        Ok(())
    }

    /// The text of a document with the links and paths of the package.
    pub(super) fn adapted(&self, document: &str, text: &str) -> String {
        let text = with_links(text, |target| self.link(document, target));
        let is_for_users = document == "README.md" || document.starts_with("docs/");
        if is_for_users { with_paths(&text) } else { text }
    }

    /// What a link of a document to a file becomes.
    fn link(&self, document: &str, target: &str) -> PackageLink {
        let file = target.split('#').next().unwrap_or(target);
        let path = resolved(document, file);
        match (self.0.get(document), self.packed(&path)) {
            (Some(from), Some(to)) => {
                PackageLink::To(format!("{}{}", relative(from, to), &target[file.len()..]))
            }
            _ => PackageLink::Name(path),
        }
    }

    /// Where the package has a file or a folder of the repository.
    fn packed(&self, path: &str) -> Option<&str> {
        if let Some(to) = self.0.get(path) {
            return Some(to);
        }
        self.0.iter().find_map(|(file, to)| {
            let inner = file.strip_prefix(path)?;
            to.strip_suffix(inner).filter(|_| inner.starts_with('/'))
        })
    }
}

/// The text of a document, with its links as `link` changes their targets. Blocks of code have no links.
fn with_links(text: &str, link: impl Fn(&str) -> PackageLink) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_code = false;
    for line in text.split_inclusive('\n') {
        is_code ^= line.trim_start().starts_with("```");
        let mut done = 0;
        let targets = if is_code { Vec::new() } else { targets(line) };
        for (at, target) in targets {
            out.push_str(&line[done..at]);
            done = at + "](".len() + target.len() + ")".len();
            match link(target) {
                PackageLink::To(target) => out.push_str(&format!("]({target})")),
                PackageLink::Name(path) => name_file(&mut out, &path),
            }
        }
        out.push_str(&line[done..]);
    }
    out
}

/// The targets of a line's links to files, each with the position of the bracket that ends the link's text.
fn targets(line: &str) -> Vec<(usize, &str)> {
    let found = line.match_indices("](").filter_map(|(at, sign)| {
        // An odd number of quotes stands before code: `calls[0](1)` is not a link.
        let is_text = line[..at].matches('`').count().is_multiple_of(2);
        let (target, _) = line[at + sign.len()..].split_once(')')?;
        let is_file =
            !target.is_empty() && !target.starts_with('#') && !target.contains([':', ' ', '[', ']']);
        (is_text && is_file).then_some((at, target))
    });
    found.collect()
}

/// Ends a link whose text is the end of `out`: the name of the file stands there instead.
fn name_file(out: &mut String, path: &str) {
    let Some(start) = opening(out) else {
        return;
    };
    let text = out.split_off(start).split_off("[".len());
    let before = path.strip_suffix(text.trim_matches('`'));
    if before.is_some_and(|before| before.is_empty() || before.ends_with('/')) {
        out.push_str(&format!("`{path}`"));
    } else {
        out.push_str(&format!("{text} (`{path}`)"));
    }
}

/// The bracket that begins the text at the end of `out`.
fn opening(out: &str) -> Option<usize> {
    let mut closed = 0;
    out.rmatch_indices(['[', ']'])
        .find(|(_, bracket)| match *bracket {
            "]" => {
                closed += 1;
                false
            }
            _ if closed > 0 => {
                closed -= 1;
                false
            }
            _ => true,
        })
        .map(|(at, _)| at)
}

/// The text with the paths of a package.
fn with_paths(text: &str) -> String {
    let mut text = text.to_owned();
    for (path, to) in PATHS {
        let mut out = String::with_capacity(text.len());
        let mut done = 0;
        for (at, _) in text.match_indices(path) {
            let before = text[..at].chars().next_back();
            let is_whole = before.is_none_or(|c| !c.is_alphanumeric() && !"/-_.".contains(c));
            if is_whole {
                out.push_str(&text[done..at]);
                out.push_str(to);
                done = at + path.len();
            }
        }
        out.push_str(&text[done..]);
        text = out;
    }
    text
}

/// The path in the repository of a file that a document links to.
fn resolved(document: &str, target: &str) -> String {
    let mut parts = folder(document);
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// The path of a file from the folder of a document.
fn relative(document: &str, file: &str) -> String {
    let (folder, file) = (folder(document), file.split('/').collect::<Vec<_>>());
    let shared = folder
        .iter()
        .zip(&file)
        .take_while(|(one, other)| one == other)
        .count();
    let mut parts = vec![".."; folder.len() - shared];
    parts.extend(&file[shared..]);
    parts.join("/")
}

/// The folders that a file is in, the outermost first.
fn folder(file: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package() -> PackageFiles {
        let mut files = PackageFiles::default();
        for (path, to) in [
            ("README.md", "README.md"),
            ("config/a.yaml", "examples/a.yaml"),
            ("docs/a.md", "docs/a.md"),
            ("docs/guides/b.md", "docs/guides/b.md"),
        ] {
            files.add(path, to);
        }
        files
    }

    #[test]
    fn links_lead_to_where_the_package_has_the_file() {
        let files = package();
        let table = [
            ("README.md", "docs/a.md#b", "docs/a.md#b"),
            ("README.md", "config", "examples"),
            ("docs/a.md", "../config/a.yaml", "../examples/a.yaml"),
            ("docs/guides/b.md", "../a.md", "../a.md"),
            ("docs/guides/b.md", "../../README.md", "../../README.md"),
        ];
        for (document, target, expected) in table {
            assert_eq!(
                files.link(document, target),
                PackageLink::To(expected.to_owned()),
                "{target}"
            );
        }
        let missing = files.link("docs/a.md", "../src/main.rs#L1");
        assert_eq!(missing, PackageLink::Name("src/main.rs".to_owned()));
        // The name of a folder is not the beginning of another.
        assert_eq!(
            files.link("README.md", "conf"),
            PackageLink::Name("conf".to_owned())
        );
    }

    #[test]
    fn a_link_to_no_file_of_the_package_becomes_its_name() {
        let table = [
            ("[b.md](b.md)", "`docs/b.md`"),
            ("[`docs/b.md`](b.md)", "`docs/b.md`"),
            ("[d](b.md)", "d (`docs/b.md`)"),
            ("a [of\nb](b.md#c).", "a of\nb (`docs/b.md`)."),
            ("[b [1]](b.md)", "b [1] (`docs/b.md`)"),
            ("[a](guides/b.md), [b](b.md)", "[a](guides/b.md), b (`docs/b.md`)"),
            (
                "[a](https://d.example/e.md) [b](#c)",
                "[a](https://d.example/e.md) [b](#c)",
            ),
            (
                "`calls[0](1)` and [&](const a &b) {}",
                "`calls[0](1)` and [&](const a &b) {}",
            ),
            (
                "```c\na[0](1)\n```\n[b](b.md)",
                "```c\na[0](1)\n```\nb (`docs/b.md`)",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(package().adapted("docs/a.md", text), expected, "{text}");
        }
    }

    #[test]
    fn users_read_the_paths_of_the_package() {
        let text = "`config/a.yaml` and --config config/b.yaml, but crates/c/config/ and tidegate-config/\n";
        let expected =
            "`examples/a.yaml` and --config examples/b.yaml, but crates/c/config/ and tidegate-config/\n";
        assert_eq!(package().adapted("docs/a.md", text), expected);
        assert_eq!(package().adapted("CONTRIBUTING.md", text), text);
    }
}
