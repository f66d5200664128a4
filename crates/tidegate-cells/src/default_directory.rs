// SPDX-License-Identifier: Apache-2.0

//! The default directory of cells: one rule for all writers and readers.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// The environment variable for the directory, for each writer and reader without an explicit one.
pub const DIRECTORY_VARIABLE: &str = "TIDEGATE_CELLS_DIR";

/// The directory of cells of this user: what [`DIRECTORY_VARIABLE`] says, or else `tidegate/cells` in
/// `$XDG_RUNTIME_DIR`, or else `/dev/shm/tidegate-UID/cells`. It need not be there.
///
/// # Errors
/// [`Error::Foreign`]: every user may create files in shared memory, also with our name.
pub fn default_directory() -> Result<PathBuf, Error> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    of(variable(DIRECTORY_VARIABLE), variable("XDG_RUNTIME_DIR"))
}

fn of(told: Option<OsString>, runtime: Option<OsString>) -> Result<PathBuf, Error> {
    if let Some(told) = told {
        return Ok(told.into());
    }
    let user = tidegate_shm::user_id();
    let base = match runtime {
        Some(runtime) => Path::new(&runtime).join("tidegate"),
        None => PathBuf::from(format!("/dev/shm/tidegate-{user}")),
    };
    match std::fs::symlink_metadata(&base) {
        Ok(found) if !found.is_dir() || found.uid() != user => Err(Error::Foreign { path: base }),
        _ => Ok(base.join("cells")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_the_users_own() {
        let temporary = tempfile::tempdir().unwrap();
        let runtime = temporary.path().as_os_str().to_owned();
        let place = |told: &str, runtime: Option<&OsString>| {
            let told = (!told.is_empty()).then(|| told.into());
            of(told, runtime.cloned())
        };
        let own = place("", Some(&runtime)).unwrap();
        assert_eq!(own, temporary.path().join("tidegate/cells"));
        assert_eq!(place("/a/b", Some(&runtime)).unwrap(), Path::new("/a/b"));
        std::os::unix::fs::symlink("/", temporary.path().join("tidegate")).unwrap();
        let foreign = place("", Some(&runtime)).unwrap_err();
        assert!(foreign.to_string().contains("another user"), "{foreign}");
        let user = tidegate_shm::user_id();
        let shared = PathBuf::from(format!("/dev/shm/tidegate-{user}/cells"));
        assert_eq!(place("", None).unwrap(), shared);
    }
}
