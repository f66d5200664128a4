// SPDX-License-Identifier: Apache-2.0

//! `file_storage`: a directory for component data that must survive the process.

mod config;

use std::sync::Arc;

use tidegate_wal::{Fsync, Quota, Rules, Storage};

use crate::component::services::Services;
use crate::component::{
    ComponentError, ConfigType, Context, ErrorDoc, Extension, ExtensionFactory, Factory, Lifecycle, Stability,
};
use config::{FileStorageConfig, FsyncMode};

/// The errors of `file_storage`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::logged(
        "The directory does not exist, or can't be used. The gateway does not start.",
        "make it, or set `create_directory: true`",
        "Make the directory for the user of the gateway, or set `create_directory: true`.",
    ),
    ErrorDoc::logged(
        "The disk fails, or is full.",
        "storage failed",
        "Free space in `directory`, or repair the disk. `operation` and `error` have the cause.",
    ),
    ErrorDoc::logged(
        "Stored records are damaged.",
        "stored records are damaged and lost",
        "Check the disk. `tidegate_storage_lost_records_total` counts them.",
    ),
    ErrorDoc::logged(
        "A snapshot is damaged.",
        "the snapshot is damaged: it is not used",
        "Check the disk. The state begins again, or comes from the records after the snapshot.",
    ),
];

/// The factory of `file_storage`.
pub static FACTORY: ExtensionFactory = Factory {
    kind: "file_storage",
    aliases: &[],
    stability: Stability::Beta,
    help: "stores queues and state in a directory, so that they survive a restart",
    errors: &[ERRORS],
    config: ConfigType::of::<FileStorageConfig>(),
    build: |settings, cx| {
        Ok(Arc::new(FileStorage::new(
            &settings.get::<FileStorageConfig>(),
            cx,
        )))
    },
};

struct FileStorage {
    base: Context,
    create: bool,
    storage: Arc<Storage>,
}

impl FileStorage {
    fn new(config: &FileStorageConfig, base: Context) -> Self {
        let fsync = match config.fsync {
            FsyncMode::Always => Fsync::Always,
            FsyncMode::Interval => Fsync::Every(config.fsync_interval),
            FsyncMode::Never => Fsync::Never,
        };
        let storage = Storage {
            directory: config.directory.clone().into(),
            rules: Rules {
                fsync,
                segment_bytes: config.segment_size.bytes(),
            },
            quota: Quota::new(config.max_size.bytes()),
        };
        Self {
            base,
            create: config.create_directory,
            storage: Arc::new(storage),
        }
    }
}

impl Extension for FileStorage {
    fn services(&self) -> Services {
        Services {
            storage: Some(self.storage.clone()),
            ..Services::default()
        }
    }
}

#[async_trait::async_trait]
impl Lifecycle for FileStorage {
    async fn start(&self) -> Result<(), ComponentError> {
        let directory = &self.storage.directory;
        if self.create {
            let made = std::fs::create_dir_all(directory);
            made.map_err(|error| self.wrong(format!("can't be made: {error}")))?;
        }
        match std::fs::metadata(directory) {
            Ok(found) if found.is_dir() => {
                tracing::info!(extension = %self.base.id, directory = %directory.display(), "keeping data");
                Ok(())
            }
            Ok(_) => Err(self.wrong("is not a directory".to_owned())),
            Err(error) => Err(self.wrong(format!(
                "can't be used: {error}; make it, or set `create_directory: true`"
            ))),
        }
    }
}

impl FileStorage {
    fn wrong(&self, what: String) -> ComponentError {
        let directory = self.storage.directory.display();
        self.base.error(format!("directory: `{directory}` {what}"))
    }
}
