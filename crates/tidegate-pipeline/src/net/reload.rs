// SPDX-License-Identifier: Apache-2.0

//! Values from files that may change at run time, such as mounted Kubernetes secrets and certificates.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex};

use crate::component::files;

/// The shortest interval between two checks of files.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// A value from files, rebuilt when one of them changes. Separate threads check the files, so that a hanging file
/// system delays no request and no other file.
pub struct Reloading<T, E>(Arc<Files<T, E>>);

struct Files<T, E> {
    files: Vec<PathBuf>,
    load: Box<dyn Fn() -> Result<T, E> + Send + Sync>,
    known: Mutex<Option<LoadedValue<T>>>,
    /// Whether a thread checks the files now.
    is_checking: AtomicBool,
}

struct LoadedValue<T> {
    value: T,
    modified: Vec<Option<SystemTime>>,
}

impl<T, E> Reloading<T, E>
where
    T: Clone + Send + 'static,
    E: Display + 'static,
{
    /// Creates the value without reading files. They are checked after each interval; `None`: never again.
    pub fn new(
        files: impl IntoIterator<Item = PathBuf>,
        interval: Option<Duration>,
        load: impl Fn() -> Result<T, E> + Send + Sync + 'static,
    ) -> Self {
        let files = Arc::new(Files {
            files: files.into_iter().collect(),
            load: Box::new(load),
            known: Mutex::default(),
            is_checking: AtomicBool::new(false),
        });
        if let Some(interval) = interval.filter(|_| !files.files.is_empty()) {
            let weak: Weak<Files<T, E>> = Arc::downgrade(&files);
            Watcher::get().add(weak, interval.max(MIN_INTERVAL));
        }
        Self(files)
    }

    /// The value from the last check. If the files were unusable, the last usable value stays.
    ///
    /// # Errors
    /// There is no value yet, and the first one can't be built.
    pub fn current(&self) -> Result<T, E> {
        if let Some(known) = &*self.0.known.lock() {
            return Ok(known.value.clone());
        }
        let modified = self.0.modified();
        let value = (self.0.load)()?;
        *self.0.known.lock() = Some(LoadedValue {
            value: value.clone(),
            modified,
        });
        Ok(value)
    }
}

impl<T, E> Files<T, E> {
    fn modified(&self) -> Vec<Option<SystemTime>> {
        let of = |file: &PathBuf| std::fs::metadata(file).and_then(|of| of.modified()).ok();
        self.files.iter().map(of).collect()
    }
}

/// Files to check, independent of their value.
trait FileCheck: Send + Sync {
    /// Rebuilds the value if the files have changed.
    fn check(&self);

    /// Whether a check is in progress.
    fn is_checking(&self) -> &AtomicBool;
}

impl<T: Send, E: Display> FileCheck for Files<T, E> {
    fn check(&self) {
        // The lock is never held while a file is read. The first user reads a value that is not used yet.
        let Some(before) = self.known.lock().as_ref().map(|known| known.modified.clone()) else {
            return;
        };
        let modified = self.modified();
        if modified == before {
            return;
        }
        let made = (self.load)();
        if let Err(error) = &made {
            // Logged once for each change.
            tracing::warn!(%error, "can't use the changed files; the previous content stays in use");
        }
        if let Some(known) = &mut *self.known.lock() {
            known.modified = modified;
            if let Ok(value) = made {
                known.value = value;
            }
        }
    }

    fn is_checking(&self) -> &AtomicBool {
        &self.is_checking
    }
}

/// The thread that starts the checks. It touches no file itself.
#[derive(Default)]
struct Watcher {
    all: Mutex<Vec<Watched>>,
    added: Condvar,
}

/// Files that are checked while they are in use.
struct Watched {
    files: Weak<dyn FileCheck>,
    interval: Duration,
    due: Instant,
}

impl Watcher {
    /// The watcher of this process.
    fn get() -> &'static Self {
        static WATCHER: OnceLock<Watcher> = OnceLock::new();
        static STARTED: OnceLock<()> = OnceLock::new();
        let watcher = WATCHER.get_or_init(Self::default);
        STARTED.get_or_init(|| start("file watcher", move || watcher.run()));
        watcher
    }

    fn add(&self, files: Weak<dyn FileCheck>, interval: Duration) {
        self.all.lock().push(Watched {
            files,
            interval,
            due: Instant::now() + interval,
        });
        self.added.notify_one();
    }

    fn run(&self) {
        let mut all = self.all.lock();
        loop {
            let now = Instant::now();
            all.retain_mut(|watched| watched.check_if_due(now));
            match all.iter().map(|watched| watched.due).min() {
                Some(next) => drop(self.added.wait_until(&mut all, next)),
                None => self.added.wait(&mut all),
            }
        }
    }
}

/// A check in progress. Its drop ends the check, even if no thread could be started.
struct Looking(Arc<dyn FileCheck>);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.is_checking().store(false, Ordering::Release);
    }
}

impl Watched {
    /// Starts a check if it is due and the last one has ended. Returns whether the files are in use.
    fn check_if_due(&mut self, now: Instant) -> bool {
        let Some(files) = self.files.upgrade() else {
            return false;
        };
        if now < self.due {
            return true;
        }
        self.due = now + self.interval;
        if !files.is_checking().swap(true, Ordering::AcqRel) {
            let looking = Looking(files);
            start("file check", move || looking.0.check());
        }
        true
    }
}

/// Starts a thread. If the system refuses, the files count as unchanged.
fn start(name: &str, work: impl FnOnce() + Send + 'static) {
    let started = thread::Builder::new().name(name.to_owned()).spawn(work);
    if let Err(error) = started {
        tracing::warn!(%error, "can't start the thread that reads changed files");
    }
}

impl Reloading<Arc<str>, String> {
    /// The text of a file.
    pub fn text(path: &Path, interval: Duration) -> Self {
        let file = path.to_owned();
        Self::new([path.to_owned()], Some(interval), move || {
            let text = files::read_text(&file);
            text.map(Arc::from)
                .map_err(|error| format!("{}: {error}", file.display()))
        })
    }
}

impl<T, E> std::fmt::Debug for Reloading<T, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reloading")
            .field("files", &self.0.files)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const SHORT: Duration = Duration::from_millis(10);

    /// Writes a file with an explicit time, because clocks of file systems are coarse.
    fn write(path: &Path, text: &str, at: u64) {
        std::fs::write(path, text).unwrap();
        let file = std::fs::File::options().append(true).open(path).unwrap();
        let later = SystemTime::now() + Duration::from_secs(at);
        file.set_modified(later).unwrap();
    }

    fn wait_until(what: &str, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
            thread::sleep(SHORT);
        }
    }

    #[test]
    fn a_replaced_file_is_read_again_and_a_missing_one_is_remembered() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let watched = Reloading::text(&path, SHORT);
        assert!(watched.current().unwrap_err().contains("token"));
        write(&path, "one", 1);
        assert_eq!(&*watched.current().unwrap(), "one");
        write(&path, "two", 9);
        wait_until("it is read again", || &*watched.current().unwrap() == "two");
        std::fs::remove_file(&path).unwrap();
        wait_until("it is seen to be missing", || {
            watched.0.known.lock().as_ref().unwrap().modified == [None]
        });
        assert_eq!(&*watched.current().unwrap(), "two");
        write(&path, "three", 18);
        wait_until("it is there again", || &*watched.current().unwrap() == "three");
    }

    #[test]
    fn files_without_an_interval_are_read_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        write(&path, "one", 1);
        let file = path.clone();
        let once = Reloading::new([path.clone()], None, move || std::fs::read_to_string(&file));
        let often = Reloading::text(&path, SHORT);
        assert_eq!(
            (&*once.current().unwrap(), &*often.current().unwrap()),
            ("one", "one")
        );
        write(&path, "two", 9);
        wait_until("the other reads it again", || &*often.current().unwrap() == "two");
        assert_eq!(once.current().unwrap(), "one");
    }

    #[test]
    fn a_file_that_hangs_holds_up_neither_its_users_nor_other_files() {
        let directory = tempfile::tempdir().unwrap();
        let [hung, sound] = ["hung", "sound"].map(|name| directory.path().join(name));
        let (go_on, hangs) = mpsc::sync_channel(16);
        let (begun, begins) = mpsc::sync_channel(16);
        let hangs = Mutex::new(hangs);
        write(&hung, "", 1);
        let hanging = Reloading::new([hung.clone()], Some(SHORT), move || {
            begun.send(()).unwrap();
            hangs.lock().recv().map_err(|error| error.to_string())
        });
        go_on.send(1).unwrap();
        assert_eq!(hanging.current(), Ok(1));
        begins.recv().unwrap();
        write(&hung, "", 9);
        begins.recv().unwrap();

        write(&sound, "one", 1);
        let other = Reloading::text(&sound, SHORT);
        assert_eq!(&*other.current().unwrap(), "one");
        write(&sound, "two", 9);
        wait_until("the other is read", || &*other.current().unwrap() == "two");
        assert_eq!(hanging.current(), Ok(1), "it hangs and has its value");
        assert!(begins.try_recv().is_err(), "one look at a time");
        go_on.send(2).unwrap();
        wait_until("it goes on", || hanging.current() == Ok(2));
    }
}
