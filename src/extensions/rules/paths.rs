// SPDX-License-Identifier: Apache-2.0

//! Finds rule files by globs. Links may lead back to a directory: `**` visits each directory once, and all visits are bounded.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use glob::Pattern;

use super::files::RuleFilesError;

/// The most files of all globs.
const MAX_FILES: usize = 1000;

/// The most entries of directories that one glob reads, also those that it does not match.
const MAX_ENTRIES: usize = 100_000;

/// The files of globs.
#[derive(Default)]
pub(super) struct Found {
    /// A path of each file.
    pub(super) paths: Vec<PathBuf>,
    /// Globs that match no file.
    pub(super) missing: Vec<String>,
}

/// Finds the files of these globs. A file that several paths lead to counts once, by the first glob and its shortest path.
///
/// # Errors
/// A text is not a glob, a directory can't be read, or there are too many files or entries.
pub(super) fn find(globs: &[String]) -> Result<Found, RuleFilesError> {
    let mut found = Found::default();
    let mut seen = BTreeSet::new();
    for glob in globs {
        let paths = paths_of(glob, MAX_ENTRIES)?;
        if paths.is_empty() {
            found.missing.push(glob.clone());
        }
        for path in paths {
            if seen.insert(canonical(&path)) {
                found.paths.push(path);
            }
            if found.paths.len() > MAX_FILES {
                return Err(RuleFilesError::TooMany);
            }
        }
    }
    Ok(found)
}

/// The paths that a glob matches. Those of fewer directories come first.
fn paths_of(glob: &str, max_entries: usize) -> Result<Vec<PathBuf>, RuleFilesError> {
    let failed = |error| RuleFilesError::Glob(glob.to_owned(), error);
    Pattern::new(glob).map_err(failed)?;
    let parts = glob.split('/').filter(|part| !part.is_empty() && *part != ".");
    let parts = parts.collect::<Vec<_>>();
    let root = if glob.starts_with('/') { "/" } else { "" };
    let mut walk = GlobSearch {
        glob,
        left: max_entries,
        paths: Vec::new(),
    };
    walk.add(PathBuf::from(root), &parts)?;
    let mut paths = walk.paths;
    paths.sort_by_cached_key(|path| (path.components().count(), path.clone()));
    Ok(paths)
}

/// The path of a file or directory without links.
fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// A path under which a directory can be read. The working directory has an empty path here.
fn readable(directory: &Path) -> &Path {
    if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    }
}

/// A search for the paths of a glob.
struct GlobSearch<'a> {
    glob: &'a str,
    /// The entries that it may still read.
    left: usize,
    paths: Vec<PathBuf>,
}

impl GlobSearch<'_> {
    /// Adds the paths below `base` that the parts of the glob match.
    fn add(&mut self, base: PathBuf, parts: &[&str]) -> Result<(), RuleFilesError> {
        let Some((&part, rest)) = parts.split_first() else {
            self.paths.push(base);
            return Ok(());
        };
        if part == "**" {
            for directory in self.directories(base)? {
                self.add(directory, rest)?;
            }
        } else if part.contains(['*', '?', '[']) {
            let failed = |error| RuleFilesError::Glob(self.glob.to_owned(), error);
            let pattern = Pattern::new(part).map_err(failed)?;
            for name in self.names(&base)? {
                if name.to_str().is_some_and(|name| pattern.matches(name)) {
                    self.add(base.join(name), rest)?;
                }
            }
        } else {
            let path = base.join(part);
            if path.exists() {
                self.add(path, rest)?;
            }
        }
        Ok(())
    }

    /// A directory and all below it, also behind links. Each has one path.
    fn directories(&mut self, base: PathBuf) -> Result<Vec<PathBuf>, RuleFilesError> {
        let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
        let mut waiting = VecDeque::from([base]);
        while let Some(directory) = waiting.pop_front() {
            let path = readable(&directory);
            if !path.is_dir() || !seen.insert(canonical(path)) {
                continue;
            }
            let names = self.names(&directory)?;
            waiting.extend(names.into_iter().map(|name| directory.join(name)));
            found.push(directory);
        }
        Ok(found)
    }

    /// The names in a directory; none if it is something else.
    fn names(&mut self, directory: &Path) -> Result<Vec<OsString>, RuleFilesError> {
        let directory = readable(directory);
        if !directory.is_dir() {
            return Ok(Vec::new());
        }
        let failed = |error| RuleFilesError::Read(directory.display().to_string(), error);
        let mut names = Vec::new();
        for entry in directory.read_dir().map_err(failed)? {
            let Some(left) = self.left.checked_sub(1) else {
                return Err(RuleFilesError::TooManyEntries(self.glob.to_owned()));
            };
            self.left = left;
            names.push(entry.map_err(failed)?.file_name());
        }
        names.sort();
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// The paths below a directory that a glob matches.
    fn matched(directory: &Path, glob: &str) -> Vec<String> {
        let glob = format!("{}/{glob}", directory.display());
        let paths = find(&[glob]).unwrap().paths.into_iter();
        let paths = paths.map(|path| path.strip_prefix(directory).unwrap().display().to_string());
        paths.collect()
    }

    #[test]
    fn globs_match_as_in_a_shell() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("team/deep[1]")).unwrap();
        for name in ["b.yaml", "a.yaml", "a.txt", "team/c.yaml", "team/deep[1]/d.yaml"] {
            fs::write(root.join(name), "").unwrap();
        }
        let table: [(&str, &[&str]); 11] = [
            ("*.yaml", &["a.yaml", "b.yaml"]),
            ("./[!b].yaml", &["a.yaml"]),
            ("a.*", &["a.txt", "a.yaml"]),
            ("a.yaml", &["a.yaml"]),
            ("a.yaml/*", &[]),
            ("none/*", &[]),
            ("*/?.yaml", &["team/c.yaml"]),
            ("t*/deep[[]1]/d.yaml", &["team/deep[1]/d.yaml"]),
            (
                "**/*.yaml",
                &["a.yaml", "b.yaml", "team/c.yaml", "team/deep[1]/d.yaml"],
            ),
            ("**/**/deep*/*", &["team/deep[1]/d.yaml"]),
            ("team/**", &["team", "team/deep[1]"]),
        ];
        for (glob, expected) in table {
            assert_eq!(matched(root, glob), expected, "{glob}");
        }
        let none = format!("{}/none", root.display());
        assert_eq!(find(std::slice::from_ref(&none)).unwrap().missing, [none]);
        assert!(find(&["a**".to_owned()]).is_err());
    }

    #[test]
    fn a_relative_glob_gives_relative_paths() {
        // Tests run in the directory of the crate.
        let paths = find(&["./src/ma?n.rs".to_owned(), "src/**/main.rs".to_owned()]);
        assert_eq!(paths.unwrap().paths, [Path::new("src/main.rs")]);
        let manifests = find(&["Cargo.tom?".to_owned()]);
        assert_eq!(manifests.unwrap().paths, [Path::new("Cargo.toml")]);
    }

    #[test]
    fn links_that_lead_back_do_not_multiply_directories() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir(root.join("sub")).unwrap();
        fs::write(root.join("sub/a.yaml"), "").unwrap();
        for (link, target) in [("l1", "."), ("l2", "."), ("sub/up", "..")] {
            symlink(target, root.join(link)).unwrap();
        }
        assert_eq!(matched(root, "**/*.yaml"), ["sub/a.yaml"]);
        assert_eq!(matched(root, "**/*.none"), [""; 0]);
    }

    #[test]
    fn a_mounted_config_map_has_each_file_once() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir(root.join("..2026")).unwrap();
        fs::write(root.join("..2026/a.yaml"), "").unwrap();
        symlink("..2026", root.join("..data")).unwrap();
        symlink("..data/a.yaml", root.join("a.yaml")).unwrap();
        assert_eq!(matched(root, "**/*.yaml"), ["a.yaml"]);
        assert_eq!(matched(root, "*/a.yaml"), ["..2026/a.yaml"]);
    }

    #[test]
    fn a_glob_that_reads_too_many_entries_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for link in ["l1", "l2", "l3"] {
            symlink(".", root.join(link)).unwrap();
        }
        // 3, 9, 27 and 81 entries.
        let glob = format!("{}/*/*/*/*.yaml", root.display());
        assert!(paths_of(&glob, 200).unwrap().is_empty());
        let error = paths_of(&glob, 100).unwrap_err().to_string();
        assert!(error.contains(&glob) && error.starts_with("files: "), "{error}");
    }

    #[test]
    fn too_many_files_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        for number in 0..=MAX_FILES {
            fs::write(directory.path().join(number.to_string()), "").unwrap();
        }
        let glob = format!("{}/*", directory.path().display());
        assert!(matches!(find(&[glob]), Err(RuleFilesError::TooMany)));
    }
}
