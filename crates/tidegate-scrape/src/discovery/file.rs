// SPDX-License-Identifier: Apache-2.0

//! `file_sd_configs`: files of targets, read when they change.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::group::{self, Language, ListError, Listed, Room};
use super::{META_FILE, Reporter};
use crate::config::discovery::FileSdConfig;
use crate::labels::Labels;
use tidegate_pipeline::component::files;
use tidegate_pipeline::component::{Account, Held};

/// The interval of checks. A check costs a system call for each file, and only changed files are read.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct FileDiscovery {
    patterns: Vec<String>,
    refresh_interval: Duration,
    files: BTreeMap<PathBuf, File>,
    read: Option<Instant>,
}

/// A file as it was read last.
struct File {
    /// `None`: the file could not be checked.
    version: Option<Version>,
    /// `None`: it was never read.
    listed: Option<Listed>,
}

impl File {
    fn labels(&self) -> &[Labels] {
        self.listed.as_ref().map_or(&[], |listed| &listed.labels)
    }
}

/// Values that differ after a write or a replacement.
type Version = (u64, u64, i64, i64);

fn version(metadata: &Metadata) -> Version {
    (
        metadata.ino(),
        metadata.size(),
        metadata.mtime(),
        metadata.mtime_nsec(),
    )
}

/// The result of a check.
struct CheckOutcome {
    discovery: FileDiscovery,
    changed: bool,
    errors: Vec<String>,
}

impl FileDiscovery {
    pub(super) fn new(config: &FileSdConfig) -> Self {
        Self {
            patterns: config.files.clone(),
            refresh_interval: config.refresh_interval.0,
            files: BTreeMap::new(),
            read: None,
        }
    }

    pub(super) async fn run(mut self, to: Reporter) {
        let mut is_first = true;
        loop {
            let memory = to.memory.clone();
            let Ok(look) = tokio::task::spawn_blocking(move || self.look(&memory)).await else {
                return; // The gateway stops.
            };
            for error in &look.errors {
                to.failed("file", error);
            }
            self = look.discovery;
            if look.changed || is_first {
                let targets = self.files.values().flat_map(|file| file.labels().iter().cloned());
                let listed = self.files.values().filter_map(|file| file.listed.as_ref());
                let rooms: Vec<Room> = listed.map(|listed| listed.room.clone()).collect();
                if !to.report_with(targets, rooms).await {
                    return;
                }
            }
            is_first = false;
            tokio::time::sleep(LOOK_INTERVAL.min(self.refresh_interval)).await;
        }
    }

    /// Lists the files and reads those that have changed; all of them when it is time.
    fn look(mut self, memory: &Arc<Account>) -> CheckOutcome {
        let now = Instant::now();
        let all = self.read.is_none_or(|read| now >= read + self.refresh_interval);
        if all {
            self.read = Some(now);
        }
        let (mut changed, mut errors) = (false, Vec::new());
        let mut before = std::mem::take(&mut self.files);
        for path in self.list() {
            let now = std::fs::metadata(&path).ok().map(|metadata| version(&metadata));
            let known = before.remove(&path);
            let file = match known {
                Some(file) if !all && file.version == now => file,
                known => {
                    let file = match read(&path, memory) {
                        Ok(listed) => File {
                            version: now,
                            listed: Some(listed),
                        },
                        Err(error) => {
                            errors.push(format!("{}: {error}", path.display()));
                            let file = File {
                                // A lack of room passes without a change of the file.
                                version: now.filter(|_| !matches!(error, ListError::NoRoom(_))),
                                listed: known.and_then(|file| file.listed),
                            };
                            self.files.insert(path, file);
                            continue;
                        }
                    };
                    changed |= known.is_none_or(|known| known.labels() != file.labels());
                    file
                }
            };
            self.files.insert(path, file);
        }
        changed |= !before.is_empty();
        CheckOutcome {
            discovery: self,
            changed,
            errors,
        }
    }

    fn list(&self) -> Vec<PathBuf> {
        let found = self
            .patterns
            .iter()
            .filter_map(|pattern| glob::glob(pattern).ok());
        let mut paths: Vec<_> = found.flatten().flatten().collect();
        paths.sort();
        paths.dedup();
        paths
    }
}

pub(super) fn read(path: &Path, memory: &Arc<Account>) -> Result<Listed, ListError> {
    let text = files::read(path, group::MAX_LIST_BYTES);
    let text = text.map_err(|error| ListError::Wrong(error.to_string()))?;
    let name = path.to_string_lossy();
    let language = if name.to_ascii_lowercase().ends_with(".json") {
        Language::Json
    } else {
        Language::Yaml
    };
    let held = Held::new(memory.clone());
    Listed::read((&name, &text), language, &[(META_FILE, &*name)], held)
}
