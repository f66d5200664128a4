// SPDX-License-Identifier: Apache-2.0

//! Names of types: few files declare a type of the same name, so that readers and searches find the right one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::source::{SourceFile, test_modules};
use super::{Breach, rust_files};

/// The folders of the members of the workspace.
const DIRECTORIES: &[&str] = &["crates", "examples", "python", "src", "xtask"];

/// The most production files that declare a type of one name.
const MAX_FILES: usize = 4;

/// Checks the types that production files of the workspace declare.
///
/// # Errors
/// A file that cannot be read.
pub(super) fn check(root: &Path) -> Result<Vec<Breach>, String> {
    let mut sources = Vec::new();
    for directory in DIRECTORIES {
        let files = rust_files(root, directory)?;
        sources.extend(files.iter().map(|(path, text)| SourceFile::new(path, text)));
    }
    Ok(breaches(&sources))
}

fn breaches(sources: &[SourceFile]) -> Vec<Breach> {
    let tests = test_modules(sources);
    let is_test = |source: &SourceFile| is_test_path(&source.path) || source.is_in(&tests);
    let mut files: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !is_test(source)) {
        for name in &source.types {
            files.entry(name).or_default().insert(&source.path);
        }
    }
    let names = files.iter();
    names.filter_map(|(name, files)| breach(name, files)).collect()
}

/// Whether the path says that only tests, benches or examples have the file.
fn is_test_path(path: &str) -> bool {
    const FOLDERS: [&str; 3] = ["benches", "examples", "tests"];
    let mut below_top = path.trim_end_matches(".rs").split('/').skip(1);
    below_top.any(|part| FOLDERS.contains(&part) || part.ends_with("_tests"))
}

fn breach(name: &str, files: &BTreeSet<&str>) -> Option<Breach> {
    let (count, at) = (files.len(), files.first()?);
    let all: Vec<_> = files.iter().copied().collect();
    (count > MAX_FILES).then(|| Breach {
        at: (*at).to_owned(),
        message: format!(
            "{count} files declare a type `{name}`, and {MAX_FILES} is the most: rename one of them. The files are {}",
            all.join(", ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [&str; 4] = [
        "crates/a/src/lib.rs",
        "python/src/b.rs",
        "src/c.rs",
        "xtask/src/d.rs",
    ];

    /// The breaches if each of [`FILES`] and of `more` declares the type `State`.
    fn found(more: &[&str]) -> Vec<String> {
        let paths = FILES.iter().chain(more);
        let sources: Vec<_> = paths.map(|path| SourceFile::new(path, "struct State;")).collect();
        breaches(&sources).iter().map(Breach::to_string).collect()
    }

    #[test]
    fn a_breach_lists_all_files_that_declare_the_type() {
        assert_eq!(found(&[]), Vec::<String>::new());
        assert_eq!(
            found(&["src/e/mod.rs"]),
            [
                "crates/a/src/lib.rs: 5 files declare a type `State`, and 4 is the most: rename one of them. \
                 The files are crates/a/src/lib.rs, python/src/b.rs, src/c.rs, src/e/mod.rs, xtask/src/d.rs"
            ]
        );
    }

    #[test]
    fn a_file_that_declares_a_name_twice_counts_once() {
        let twice = "mod a { struct State; }\nmod b { struct State; }";
        let sources = FILES.map(|path| SourceFile::new(path, twice));
        assert_eq!(breaches(&sources), Vec::<Breach>::new());
    }

    #[test]
    fn files_of_tests_benches_and_examples_do_not_count() {
        for path in [
            "crates/a/tests/it/kit.rs",
            "crates/a/benches/e.rs",
            "crates/a/examples/e.rs",
            "src/e/tests.rs",
            "src/e_tests.rs",
        ] {
            assert_eq!(found(&[path]), Vec::<String>::new(), "{path}");
        }
        assert_eq!(found(&["examples/plugins/e/src/lib.rs"]).len(), 1);
    }

    #[test]
    fn modules_that_only_tests_have_do_not_count() {
        let mut sources = Vec::from(FILES.map(|path| SourceFile::new(path, "enum State {}")));
        sources.push(SourceFile::new("src/e/testing.rs", "enum State {}"));
        assert_eq!(breaches(&sources).len(), 1);
        sources.push(SourceFile::new("src/e/mod.rs", "#[cfg(test)]\nmod testing;"));
        assert_eq!(breaches(&sources), Vec::<Breach>::new());
    }
}
