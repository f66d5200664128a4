// SPDX-License-Identifier: Apache-2.0

//! The files of a gateway: a reload goes on with them, and another process is refused.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tidegate_runtime::files::is_inherited;

use super::config::FileExporterConfig;
use super::log::{Form, Log, Opening, Written, id_of, lock};

/// The regular files that exporters have opened since the start of the process, by path without links.
#[derive(Default)]
pub(super) struct Files(Mutex<HashMap<PathBuf, Known>>);

#[derive(Clone, Default)]
struct Known {
    /// The open file, while an exporter has it.
    log: Weak<Mutex<Log>>,
    written: Written,
}

impl Files {
    /// Opens the file of an exporter, and changes nothing in it. The exporter shares a file with its predecessor, whose
    /// lock and state it needs, and with others that write the same file.
    pub(super) fn open(
        &self,
        config: &FileExporterConfig,
        header: &'static str,
    ) -> io::Result<Arc<Mutex<Log>>> {
        let file = Opening::of(config).open(&config.path)?;
        let about = file.metadata()?;
        if !about.is_file() {
            let log = Log::new(config, header, Box::new(file), about.len());
            return Ok(Arc::new(Mutex::new(log)));
        }
        // `/dev/stdout` can be a file that has no name any more.
        let path = fs::canonicalize(&config.path).unwrap_or_else(|_| config.path.clone());
        // The predecessor has the lock. A rename or a link may have given its file another path.
        let mut known = self.holder_of(&about).unwrap_or_else(|| {
            let at_path = self.0.lock().get(&path).cloned();
            at_path.unwrap_or_default()
        });
        if about.len() == 0 {
            // The file that this process wrote was moved, or is empty.
            known.written = Written::default();
        }
        let form = known.written.get();
        if form.is_some_and(|form| *form != Form::of(config)) {
            let why = "this run has written it in another format or compression: choose another path, or \
                       move the file";
            return Err(io::Error::other(why));
        }
        let shared = known.log.upgrade().filter(|log| {
            let mut log = log.lock();
            let is_same = log.is(id_of(&about));
            if is_same {
                log.go_on(config, header, known.written.clone());
            }
            is_same
        });
        let log = if let Some(log) = shared {
            log
        } else {
            // Nobody chooses the file of `/dev/stdout` for one process.
            if !is_inherited(&config.path) {
                lock(&file)?;
            }
            let log = Log::of_file(config, header, file, &about, known.written.clone());
            Arc::new(Mutex::new(log))
        };
        known.log = Arc::downgrade(&log);
        self.0.lock().insert(path, known);
        Ok(log)
    }

    /// What is known of a file that an exporter of this process has open.
    fn holder_of(&self, about: &Metadata) -> Option<Known> {
        // A slow write of one exporter must not make the others wait for the map.
        let all: Vec<Known> = self.0.lock().values().cloned().collect();
        let has_it = |known: &Known| {
            let log = known.log.upgrade();
            log.is_some_and(|log| log.lock().is(id_of(about)))
        };
        all.into_iter().find(has_it)
    }
}
