//! Text files with secrets, which may be replaced while we run (mounted Kubernetes secrets are).

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// A file is looked at again after this.
const LOOK: Duration = Duration::from_secs(1);

/// A file and what was in it.
#[derive(Debug)]
pub(super) struct Watched {
    path: PathBuf,
    known: Mutex<Option<Known>>,
}

#[derive(Clone, Debug)]
struct Known {
    text: Arc<str>,
    modified: Option<SystemTime>,
    looked: Instant,
}

impl Watched {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            known: Mutex::default(),
        }
    }

    /// What is in the file; what was in it last where it can't be read any more.
    pub(super) fn text(&self) -> Result<Arc<str>, String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some(fresh) = known.as_ref().filter(|known| now < known.looked + LOOK) {
            return Ok(fresh.text.clone());
        }
        let modified = std::fs::metadata(&self.path).and_then(|of| of.modified()).ok();
        if let Some(same) = known
            .as_mut()
            .filter(|known| modified.is_some() && known.modified == modified)
        {
            same.looked = now;
            return Ok(same.text.clone());
        }
        match (std::fs::read_to_string(&self.path), known.as_mut()) {
            (Ok(text), _) => {
                let text: Arc<str> = text.into();
                *known = Some(Known {
                    text: text.clone(),
                    modified,
                    looked: now,
                });
                Ok(text)
            }
            (Err(error), Some(last)) => {
                tracing::warn!(path = %self.path.display(), %error, "can't read it again; its last content is used");
                last.looked = now;
                Ok(last.text.clone())
            }
            (Err(error), None) => Err(format!("{}: {error}", self.path.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_is_read_again_and_a_missing_one_is_remembered() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let watched = Watched::new(&path);
        assert!(watched.text().unwrap_err().contains("token"));
        std::fs::write(&path, "one").unwrap();
        assert_eq!(&*watched.text().unwrap(), "one");
        let later = SystemTime::now() + Duration::from_secs(9);
        std::fs::write(&path, "two").unwrap();
        std::fs::File::options()
            .append(true)
            .open(&path)
            .unwrap()
            .set_modified(later)
            .unwrap();
        let look_again = |watched: &Watched| {
            let mut known = watched.known.lock().unwrap();
            let known = known.as_mut().unwrap();
            known.looked = known.looked.checked_sub(LOOK).unwrap();
        };
        assert_eq!(&*watched.text().unwrap(), "one", "not looked at at every request");
        look_again(&watched);
        assert_eq!(&*watched.text().unwrap(), "two");
        std::fs::remove_file(&path).unwrap();
        look_again(&watched);
        assert_eq!(&*watched.text().unwrap(), "two");
    }
}
