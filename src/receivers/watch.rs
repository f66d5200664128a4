// SPDX-License-Identifier: Apache-2.0

//! The files of directories from globs. inotify watches the directories, and they are listed again after changes.

use std::collections::HashMap;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use glob::Pattern;
use rustix::fs::inotify;

use super::globs;

/// The interval of scans for a new file during `SETTLE`, because its header may be incomplete.
const SETTLE_SCAN: Duration = Duration::from_millis(5);
/// The time after a change of a directory in which new files may be incomplete.
const SETTLE: Duration = Duration::from_millis(500);
/// The interval of scans without inotify (no descriptors left, an unusual file system).
const BLIND_SCAN: Duration = Duration::from_millis(50);

/// Lists directories and notices their changes.
pub(super) struct Watch {
    globs: Vec<String>,
    /// Whether each of them matches no directory.
    missing: Vec<bool>,
    names: FileNames,
    scan_interval: Duration,
    inotify: Option<OwnedFd>,
    /// Directories that inotify watches. The watch follows the inode, so a directory that is made again is added again.
    watched: HashMap<PathBuf, i32>,
    next_scan: Instant,
    settled: Instant,
}

/// The pattern of file names.
pub(super) struct FileNames {
    include: Vec<Pattern>,
    exclude: Vec<Pattern>,
}

impl FileNames {
    pub(super) fn new(include: &[String], exclude: &[String]) -> Self {
        Self {
            include: globs::patterns(include),
            exclude: globs::patterns(exclude),
        }
    }

    fn wants(&self, name: &str) -> bool {
        let matches = |globs: &[Pattern]| globs.iter().any(|glob| glob.matches(name));
        !name.starts_with('.') && matches(&self.include) && !matches(&self.exclude)
    }
}

impl Watch {
    pub(super) fn new(globs: Vec<String>, names: FileNames, scan_interval: Duration) -> Self {
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        let inotify = inotify::init(flags)
            .inspect_err(
                |error| tracing::warn!(%error, "no inotify: directories are listed every 50 ms instead"),
            )
            .ok();
        let now = Instant::now();
        Self {
            missing: vec![false; globs.len()],
            globs,
            names,
            scan_interval,
            inotify,
            watched: HashMap::new(),
            next_scan: now,
            settled: now,
        }
    }

    /// The current files, if a scan is due.
    pub(super) fn scan(&mut self, now: Instant) -> Option<Vec<PathBuf>> {
        if self.changed() {
            self.settled = now + SETTLE;
            self.next_scan = now;
        }
        if now < self.next_scan {
            return None;
        }
        let interval = match (&self.inotify, now < self.settled) {
            (_, true) => SETTLE_SCAN,
            (None, _) => BLIND_SCAN,
            _ => self.scan_interval,
        };
        self.next_scan = now + interval.min(self.scan_interval);
        let directories = self.directories();
        self.follow(&directories);
        self.find_missing();
        Some(
            directories
                .iter()
                .flat_map(|directory| self.files(directory))
                .collect(),
        )
    }

    /// Whether the kernel reported anything. The kind of event does not matter: the receiver lists the directories
    /// anyway.
    fn changed(&mut self) -> bool {
        let Some(fd) = &self.inotify else { return false };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(fd, &mut buffer);
        let mut any = false;
        while reader.next().is_ok() {
            any = true;
        }
        any
    }

    /// Finds missing directories, names them in a notice, and logs those that exist now.
    fn find_missing(&mut self) {
        for (pattern, is_missing) in self.globs.iter().zip(&mut self.missing) {
            let mut paths = glob::glob(pattern).into_iter().flatten().flatten();
            let is_there = paths.any(|path| path.is_dir());
            if *is_missing == is_there {
                *is_missing = !is_there;
                if is_there {
                    tracing::info!(directory = pattern, "the directory is there now");
                }
            }
        }
    }

    /// The declared directories that are not there.
    pub(super) fn missing(&self) -> Vec<String> {
        let globs = self.globs.iter().zip(&self.missing);
        let missing = globs.filter(|(_, is_missing)| **is_missing);
        missing
            .map(|(pattern, _)| format!("the directory {pattern} does not exist; it is looked for again"))
            .collect()
    }

    fn directories(&self) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = Vec::new();
        for pattern in &self.globs {
            let matches = glob::glob(pattern).into_iter().flatten().flatten();
            found.extend(matches.filter(|path| path.is_dir()));
        }
        found.sort();
        found.dedup();
        found
    }

    fn follow(&mut self, directories: &[PathBuf]) {
        let Some(fd) = &self.inotify else { return };
        let events = inotify::WatchFlags::CREATE
            | inotify::WatchFlags::MOVED_TO
            | inotify::WatchFlags::MOVED_FROM
            | inotify::WatchFlags::DELETE
            | inotify::WatchFlags::ONLYDIR;
        for directory in directories {
            // Adding a watch twice is harmless, and shows whether the directory is still the same.
            if let Ok(watch) = inotify::add_watch(fd, directory, events) {
                self.watched.insert(directory.clone(), watch);
            }
        }
        self.watched.retain(|directory, watch| {
            let stays = directories.contains(directory);
            if !stays {
                // Fails when the directory is gone, and the watch with it.
                let _ = inotify::remove_watch(fd, *watch);
            }
            stays
        });
    }

    fn files(&self, directory: &Path) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(directory) else {
            return Vec::new();
        };
        let wanted = |entry: &fs::DirEntry| {
            let name = entry.file_name();
            name.to_str().is_some_and(|name| self.names.wants(name))
                && entry.file_type().is_ok_and(|kind| kind.is_file())
        };
        entries
            .flatten()
            .filter(wanted)
            .map(|entry| entry.path())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(directory: &Path) -> Watch {
        let names = FileNames::new(&["*".to_owned()], &["*.tmp".to_owned()]);
        Watch::new(
            vec![format!("{}/*", directory.display())],
            names,
            Duration::from_secs(3600),
        )
    }

    fn names(paths: Vec<PathBuf>) -> Vec<String> {
        let mut names: Vec<_> = paths
            .iter()
            .filter_map(|path| path.file_name())
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_seen_as_they_come_without_waiting_for_the_interval() {
        let root = tempfile::tempdir().unwrap();
        let rings = root.path().join("rings");
        fs::create_dir(&rings).unwrap();
        let mut watch = watch(root.path());
        assert_eq!(watch.scan(Instant::now()), Some(vec![]));
        assert_eq!(watch.scan(Instant::now()), None, "nothing changed");
        for name in ["agent", ".hidden", "a.tmp"] {
            fs::write(rings.join(name), "x").unwrap();
        }
        assert_eq!(
            watch.scan(Instant::now()).map(names),
            Some(vec!["agent".to_owned()])
        );
    }

    #[test]
    fn a_directory_that_is_made_again_is_watched_again() {
        let root = tempfile::tempdir().unwrap();
        let rings = root.path().join("rings");
        let mut watch = watch(root.path());
        for _ in 0..2 {
            fs::create_dir(&rings).unwrap();
            watch.next_scan = Instant::now();
            assert_eq!(watch.scan(Instant::now()), Some(vec![]));
            fs::write(rings.join("agent"), "x").unwrap();
            assert_eq!(
                watch.scan(Instant::now()).map(names),
                Some(vec!["agent".to_owned()])
            );
            fs::remove_dir_all(&rings).unwrap();
            watch.next_scan = Instant::now();
            assert_eq!(watch.scan(Instant::now()), Some(vec![]));
        }
    }

    #[test]
    fn a_directory_that_is_not_there_is_named_until_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("later");
        let names = FileNames::new(&["*".to_owned()], &[]);
        let mut watch = Watch::new(vec![path.display().to_string()], names, Duration::from_secs(1));
        let now = Instant::now();
        watch.scan(now);
        assert_eq!(
            watch.missing(),
            [format!(
                "the directory {} does not exist; it is looked for again",
                path.display()
            )]
        );
        fs::create_dir(&path).unwrap();
        watch.scan(now + Duration::from_secs(10));
        assert!(watch.missing().is_empty());
    }
}
