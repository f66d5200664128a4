// SPDX-License-Identifier: Apache-2.0

//! The file with the alerts of all groups, in the directory of a storage extension.
//!
//! | bytes | |
//! | --- | --- |
//! | 8 | magic `tiderul`, version 1 |
//! | | for each group: 4 bytes of length, little endian, and its alerts |

use std::fs::{File, OpenOptions, create_dir_all, rename};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_rules::{MAX_STATE_BYTES, SavedAlerts};
use tidegate_wal::{Fsync, Share, Storage};

use crate::component::files;

const MAGIC: &[u8; 8] = b"tiderul\x01";

/// The name of the file.
const NAME: &str = "alerts";

/// The reason why alerts are not kept.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotKept {
    /// The storage is full.
    #[error("the storage has no room for {0} bytes: raise `max_size` of the storage extension")]
    Full(usize),
    /// The state is larger than it may be.
    #[error("the alerts need {0} bytes, and the limit is 64 MiB: write rules that fire fewer alerts")]
    TooLarge(usize),
    /// The file can't be written.
    #[error("{0}: {1}; check the disk")]
    Io(String, io::Error),
}

/// The file.
pub(super) struct AlertsFile {
    directory: PathBuf,
    storage: Arc<Storage>,
    /// The part of the quota that the file has.
    share: Mutex<Option<Share>>,
}

impl AlertsFile {
    /// The file of a component.
    pub(super) fn of(storage: Arc<Storage>, owner: &str) -> Self {
        Self {
            directory: storage.directory_of(owner),
            storage,
            share: Mutex::default(),
        }
    }

    /// The alerts of each group that an earlier run left. Damaged ones are reported and left out.
    ///
    /// # Errors
    /// The file can't be read.
    pub(super) fn read(&self) -> Result<Vec<SavedAlerts>, NotKept> {
        let path = self.directory.join(NAME);
        let bytes = match files::read(&path, MAX_STATE_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(NotKept::Io(path.display().to_string(), error)),
        };
        let (parts, is_whole) = split(&bytes);
        let mut damaged = usize::from(!is_whole);
        let mut saved = Vec::new();
        for part in parts {
            match SavedAlerts::decode(part) {
                Ok(alerts) => saved.push(alerts),
                Err(_) => damaged += 1,
            }
        }
        if damaged > 0 {
            tracing::warn!(file = %path.display(), damaged, "kept alerts are damaged: their `for` begins again");
        }
        Ok(saved)
    }

    /// Replaces the file by one with the alerts of these groups.
    ///
    /// # Errors
    /// There is no room, or the file can't be written. The old file stays.
    pub(super) fn write(&self, groups: &[Arc<[u8]>]) -> Result<(), NotKept> {
        let bytes = joined(groups);
        if bytes.len() > MAX_STATE_BYTES {
            return Err(NotKept::TooLarge(bytes.len()));
        }
        // The old file and the new one are there together for a moment.
        let share = self.storage.quota.reserve(bytes.len() as u64);
        let share = share.ok_or(NotKept::Full(bytes.len()))?;
        self.replace(&bytes)
            .map_err(|error| NotKept::Io(self.directory.display().to_string(), error))?;
        *self.share.lock() = Some(share);
        Ok(())
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        create_dir_all(&self.directory)?;
        let (path, new) = (self.directory.join(NAME), self.directory.join("alerts.new"));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = files::open_as(&mut options, &new)?;
        file.write_all(bytes)?;
        let syncs = self.storage.rules.fsync != Fsync::Never;
        if syncs {
            file.sync_all()?;
        }
        rename(&new, &path)?;
        if syncs {
            File::open(&self.directory)?.sync_all()?;
        }
        Ok(())
    }
}

fn joined(groups: &[Arc<[u8]>]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for group in groups {
        let Ok(length) = u32::try_from(group.len()) else {
            continue;
        };
        bytes.extend(length.to_le_bytes());
        bytes.extend_from_slice(group);
    }
    bytes
}

/// The parts of a file, and whether it is whole.
fn split(bytes: &[u8]) -> (Vec<&[u8]>, bool) {
    let Some(mut rest) = bytes.strip_prefix(MAGIC) else {
        return (Vec::new(), false);
    };
    let mut parts = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let Some((part, after)) = after.split_at_checked(length) else {
            return (parts, false);
        };
        parts.push(part);
        rest = after;
    }
    (parts, rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_file_are_found_again_and_damage_is_noticed() {
        let groups: [Arc<[u8]>; 3] = [
            Arc::from(&b"one"[..]),
            Arc::from(&b""[..]),
            Arc::from(&b"three"[..]),
        ];
        let bytes = joined(&groups);
        let (parts, is_whole) = split(&bytes);
        assert!(is_whole);
        assert_eq!(parts, [&b"one"[..], b"", b"three"]);
        for cut in 0..bytes.len() {
            // Cuts behind a whole part can't be seen.
            let (parts, is_whole) = split(&bytes[..cut]);
            assert!(parts.len() < 3, "{cut}");
            assert_eq!(is_whole, [8, 15, 19].contains(&cut), "{cut}");
        }
        assert!(!split(b"something else").1);
    }
}
