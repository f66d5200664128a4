// SPDX-License-Identifier: Apache-2.0

//! The paths that the patterns of a receiver lead to.

use std::path::{Component, Path, PathBuf};

/// A path that may be a directory of cells.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Listed {
    pub(super) path: PathBuf,
    /// A glob has found it. The configuration does not name it, so a user who may make a link there must not choose the
    /// directory.
    pub(super) is_found: bool,
    /// Why it is not read.
    pub(super) refusal: Option<&'static str>,
}

const LINK: &str = "a glob leads through a symbolic link: name the directory in `directories`";
const NAME: &str = "its name is not UTF-8";

/// All that a pattern leads to.
pub(super) fn list(pattern: &str) -> Vec<Listed> {
    let named = named_part(pattern);
    let found = glob::glob(pattern).into_iter().flatten().flatten();
    let found = found.map(|path| Listed {
        is_found: named.is_some(),
        refusal: named
            .as_ref()
            .is_some_and(|named| has_link(&path, named))
            .then_some(LINK),
        path,
    });
    let unnamed = unreadable_names(pattern).into_iter().map(|path| Listed {
        path,
        is_found: true,
        refusal: Some(NAME),
    });
    found.chain(unnamed).collect()
}

fn has_glob(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// The directories that a pattern names before its first glob. `None`: it has no glob.
fn named_part(pattern: &str) -> Option<PathBuf> {
    let is_glob = |part: &Component<'_>| has_glob(&part.as_os_str().to_string_lossy());
    // The paths that are found do not begin with `./`.
    let parts = Path::new(pattern).components();
    let parts: Vec<_> = parts.filter(|part| *part != Component::CurDir).collect();
    let first = parts.iter().position(is_glob)?;
    Some(parts.iter().take(first).collect())
}

/// Whether the part of a path that a glob has found has a symbolic link. Links that the configuration names are followed.
fn has_link(path: &Path, named: &Path) -> bool {
    let found = path.ancestors().take_while(|part| *part != named);
    found
        .filter_map(|part| part.symlink_metadata().ok())
        .any(|found| found.file_type().is_symlink())
}

/// Directories that the last glob of a pattern leaves out because of their names.
fn unreadable_names(pattern: &str) -> Vec<PathBuf> {
    let pattern = Path::new(pattern);
    let above = pattern.parent().and_then(Path::to_str);
    let is_glob = pattern
        .file_name()
        .is_some_and(|name| has_glob(&name.to_string_lossy()));
    let Some(above) = above.filter(|_| is_glob) else {
        return Vec::new();
    };
    let above = if above.is_empty() { "." } else { above };
    let above = glob::glob(above).into_iter().flatten().flatten();
    let entries = above.flat_map(|path| std::fs::read_dir(path).into_iter().flatten().flatten());
    let unreadable = entries.filter(|entry| {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        is_directory && entry.file_name().to_str().is_none()
    });
    unreadable.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_glob_follows_no_link_and_a_named_path_may_be_one() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        std::fs::create_dir_all(at("real/cells")).unwrap();
        symlink("real", at("link")).unwrap();
        let listed = |pattern: &str| {
            let all = list(at(pattern).to_str().unwrap()).into_iter();
            let relative = all.map(|listed| {
                let path = listed.path.strip_prefix(root.path()).unwrap();
                (path.to_str().unwrap().to_owned(), listed.is_found, listed.refusal)
            });
            relative.collect::<Vec<_>>()
        };
        let found = |path: &str, refusal| (path.to_owned(), true, refusal);
        assert_eq!(listed("*"), [found("link", Some(LINK)), found("real", None)]);
        assert_eq!(
            listed("*/cells"),
            [found("link/cells", Some(LINK)), found("real/cells", None)]
        );
        assert_eq!(listed("link/*"), [found("link/cells", None)]);
        assert_eq!(listed("link"), [("link".to_owned(), false, None)]);
        for (pattern, named) in [("./link/*", "link"), ("link/*", "link"), ("./*", "")] {
            assert_eq!(named_part(pattern), Some(PathBuf::from(named)));
        }
    }

    #[test]
    fn a_directory_whose_name_no_pattern_fits_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(OsStr::from_bytes(b"a\xff"));
        std::fs::create_dir(&path).unwrap();
        std::fs::write(root.path().join(OsStr::from_bytes(b"file\xff")), b"").unwrap();
        let pattern = format!("{}/*", root.path().display());
        let expected = Listed {
            path,
            is_found: true,
            refusal: Some(NAME),
        };
        assert_eq!(list(&pattern), [expected]);
        assert_eq!(list(&root.path().display().to_string()).len(), 1);
    }
}
