// SPDX-License-Identifier: Apache-2.0

//! The programs and packages that the whole-gateway tests need beyond cargo. `cargo xtask setup` installs them under
//! `target/testenv/`, and builds Helm in the user's cache. It changes nothing on the system, except that [`kafka`] installs Java
//! and Maven if they are missing.
//!
//! Each part is a directory of its own with a stamp that says what it was made from. A part is
//! made beside its place and then renamed, under a lock, so a run that dies or overlaps another
//! leaves nothing half done.

mod parts;
mod sources;

use crate::progress::LongTask;
use crate::{Outcome, deploy, kafka, process};
use parts::{COLLECTOR, PARTS, Part};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Says where the parts are: set for the tests, and by users who want them elsewhere (several checkouts can share one).
pub(crate) const VARIABLE: &str = "TIDEGATE_TESTENV";

const STAMP: &str = ".stamp";

/// Builds the Collector if it is missing or out of date.
pub(crate) fn collector() -> Outcome {
    let root = directory();
    let _lock = lock(&root)?;
    COLLECTOR.ensure(&root)
}

/// Installs one part if it is missing or out of date.
pub(crate) fn setup_part(name: &str) -> Outcome {
    let root = directory();
    let _lock = lock(&root)?;
    let part = PARTS.iter().find(|part| part.name == name);
    part.expect("callers name parts of the table").ensure(&root)
}

/// Installs every part that is missing or out of date, all at a time.
pub(crate) fn setup(_arguments: &[String]) -> Outcome {
    let root = directory();
    let _lock = lock(&root)?;
    let ready = Arc::new(AtomicUsize::new(0));
    let counted = ready.clone();
    let _progress = LongTask::new("setup").begin(move || {
        let ready = counted.load(Ordering::Relaxed);
        format!("{ready} of {} parts are ready", PARTS.len() + 2)
    });
    let count = |outcome: Outcome| {
        ready.fetch_add(1, Ordering::Relaxed);
        outcome
    };
    thread::scope(|scope| {
        let installs: Vec<_> = PARTS
            .iter()
            .map(|part| scope.spawn(|| count(part.ensure(&root))))
            .collect();
        let kafka = scope.spawn(|| count(kafka::setup()));
        let helm = scope.spawn(|| count(deploy::setup()));
        let failures: Vec<String> = installs
            .into_iter()
            .chain([kafka, helm])
            .filter_map(|install| install.join().expect("an install doesn't panic").err())
            .collect();
        if failures.is_empty() {
            Ok(())
        } else {
            Err(failures.join("\n"))
        }
    })
}

/// Where the parts are: [`VARIABLE`], or `testenv` in the target directory we were built in.
pub(crate) fn directory() -> PathBuf {
    if let Some(directory) = std::env::var_os(VARIABLE) {
        return directory.into();
    }
    process::target().join("testenv")
}

/// The directory of a part, or a path below it.
pub(crate) fn part(path: &str) -> PathBuf {
    directory().join(path)
}

/// Held while parts are made; another setup waits for it.
pub(crate) fn lock(root: &Path) -> Result<File, String> {
    let describe = |error| format!("{}: {error}", root.display());
    fs::create_dir_all(root).map_err(describe)?;
    let lock = File::create(root.join(".lock")).map_err(describe)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            eprintln!("waiting for another setup in {}", root.display());
            lock.lock().map_err(describe)?;
        }
        Err(TryLockError::Error(error)) => return Err(describe(error)),
    }
    Ok(lock)
}

impl Part {
    fn ensure(&self, root: &Path) -> Outcome {
        let what = format!("installing {}", self.name);
        ensure(root, self.name, &self.source.stamp(), |scratch| {
            eprintln!("{what} in {}", root.display());
            process::retry(&what, process::PAUSE, || {
                clear(scratch)?;
                self.source.fetch(scratch)?;
                let mut checks = self.checks.iter();
                checks.try_for_each(|check| self.source.verify(check, scratch))
            })
        })
    }
}

/// Has `make` fill `root/name` unless the stamp there says that it is made from the same.
pub(crate) fn ensure(root: &Path, name: &str, stamp: &str, make: impl FnOnce(&Path) -> Outcome) -> Outcome {
    let place = root.join(name);
    if fs::read_to_string(place.join(STAMP)).is_ok_and(|found| found == stamp) {
        return Ok(());
    }
    let scratch = root.join(format!(".{name}.partial"));
    clear(&scratch)?;
    make(&scratch)?;
    let finish = || {
        fs::write(scratch.join(STAMP), stamp)?;
        if place.exists() {
            fs::remove_dir_all(&place)?;
        }
        fs::rename(&scratch, &place)
    };
    finish().map_err(|error| format!("{}: {error}", place.display()))
}

/// Leaves `directory` there and empty.
pub(crate) fn clear(directory: &Path) -> Outcome {
    if directory.exists() {
        fs::remove_dir_all(directory)
    } else {
        Ok(())
    }
    .and_then(|()| fs::create_dir_all(directory))
    .map_err(|error| format!("{}: {error}", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A directory of this test's own, gone afterwards.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let directory = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
            clear(&directory).expect("a temporary directory");
            Self(directory)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_part_is_made_once_and_again_when_what_it_is_made_from_changes() {
        let root = Scratch::new("once");
        let made = Cell::new(0);
        let make = |directory: &Path| {
            made.set(made.get() + 1);
            fs::write(directory.join("count"), made.get().to_string()).map_err(|e| e.to_string())
        };
        for (stamp, count) in [("a==1", 1), ("a==1", 1), ("a==2", 2), ("a==2", 2)] {
            ensure(&root.0, "part", stamp, make).expect("it is made");
            let found = fs::read_to_string(root.0.join("part/count")).expect("its file");
            assert_eq!((made.get(), found), (count, count.to_string()), "{stamp}");
        }
    }

    #[test]
    fn a_part_that_fails_leaves_the_old_one_and_is_made_at_the_next_run() {
        let root = Scratch::new("fails");
        let fill =
            |directory: &Path| fs::write(directory.join("file"), "old").map_err(|error| error.to_string());
        ensure(&root.0, "part", "a==1", fill).expect("it is made");
        let broken = ensure(&root.0, "part", "a==2", |_| Err("no network".to_owned()));
        assert_eq!(broken, Err("no network".to_owned()));
        let old = fs::read_to_string(root.0.join("part/file"));
        assert_eq!(old.expect("the old one"), "old");
        ensure(&root.0, "part", "a==2", |_| Ok(())).expect("it is made");
        assert!(!root.0.join("part/file").exists(), "the old one is gone");
    }
}
