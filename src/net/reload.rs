//! What is made of files that may be replaced while we run, as mounted Kubernetes secrets and certificates are.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::files;

/// A value made of files; made again when one of them has changed.
pub struct Reloading<T, E> {
    files: Vec<PathBuf>,
    /// How long a look at the files is good for; `None`: for ever.
    interval: Option<Duration>,
    load: Box<dyn Fn() -> Result<T, E> + Send + Sync>,
    known: Mutex<Option<Known<T>>>,
}

struct Known<T> {
    value: T,
    modified: Vec<Option<SystemTime>>,
    looked: Instant,
}

impl<T: Clone, E: Display> Reloading<T, E> {
    /// Nothing is read yet.
    pub fn new(
        files: impl IntoIterator<Item = PathBuf>,
        interval: Option<Duration>,
        load: impl Fn() -> Result<T, E> + Send + Sync + 'static,
    ) -> Self {
        Self {
            files: files.into_iter().collect(),
            interval,
            load: Box::new(load),
            known: Mutex::default(),
        }
    }

    /// The value of the files as they are; where they can't be used any more, the last one of those that could.
    ///
    /// # Errors
    /// The first value can't be made.
    pub fn current(&self) -> Result<T, E> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let is_fresh = |known: &&mut Known<T>| {
            let interval = self.interval.filter(|_| !self.files.is_empty());
            interval.is_none_or(|interval| now < known.looked + interval)
        };
        if let Some(fresh) = known.as_mut().filter(is_fresh) {
            return Ok(fresh.value.clone());
        }
        let modified = self.modified();
        if let Some(same) = known.as_mut().filter(|known| known.modified == modified) {
            same.looked = now;
            return Ok(same.value.clone());
        }
        match ((self.load)(), known.as_mut()) {
            (Ok(value), _) => {
                *known = Some(Known {
                    value: value.clone(),
                    modified,
                    looked: now,
                });
                Ok(value)
            }
            (Err(error), Some(last)) => {
                tracing::warn!(%error, "changed files can't be used; what was read before stays in force");
                // Said once for each change.
                (last.looked, last.modified) = (now, modified);
                Ok(last.value.clone())
            }
            (Err(error), None) => Err(error),
        }
    }

    fn modified(&self) -> Vec<Option<SystemTime>> {
        let of = |file: &PathBuf| std::fs::metadata(file).and_then(|of| of.modified()).ok();
        self.files.iter().map(of).collect()
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
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    /// Makes the next `current` look at the files.
    fn look_again(watched: &Reloading<Arc<str>, String>) {
        let mut known = watched.known.lock().unwrap();
        let known = known.as_mut().unwrap();
        known.looked = known.looked.checked_sub(LONG).unwrap();
    }

    #[test]
    fn a_replaced_file_is_read_again_and_a_missing_one_is_remembered() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let watched = Reloading::text(&path, LONG);
        assert!(watched.current().unwrap_err().contains("token"));
        std::fs::write(&path, "one").unwrap();
        assert_eq!(&*watched.current().unwrap(), "one");
        std::fs::write(&path, "two").unwrap();
        let later = SystemTime::now() + Duration::from_secs(9);
        let file = std::fs::File::options().append(true).open(&path).unwrap();
        file.set_modified(later).unwrap();
        assert_eq!(
            &*watched.current().unwrap(),
            "one",
            "not looked at at every request"
        );
        look_again(&watched);
        assert_eq!(&*watched.current().unwrap(), "two");
        std::fs::remove_file(&path).unwrap();
        look_again(&watched);
        assert_eq!(&*watched.current().unwrap(), "two");
    }
}
