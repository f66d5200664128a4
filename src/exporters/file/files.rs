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
        let shared = self.log_of(&about);
        let known = match &shared {
            // The file that this process wrote was moved, or is empty.
            _ if about.len() == 0 => None,
            Some(log) => Some(log.lock().written()),
            None => self.0.lock().get(&path).map(|known| known.written.clone()),
        };
        let written = known.unwrap_or_default();
        if written.get().is_some_and(|form| *form != Form::of(config)) {
            let why = "this run has written it in another format or compression: choose another path, or \
                       move the file";
            return Err(io::Error::other(why));
        }
        let log = if let Some(log) = shared {
            log
        } else {
            // Nobody chooses the file of `/dev/stdout` for one process.
            if !is_inherited(&config.path) {
                lock(&file)?;
            }
            Arc::new(Mutex::new(Log::of_file(config, header, file, &about)))
        };
        log.lock().go_on(config, header, written.clone());
        let known = Known {
            log: Arc::downgrade(&log),
            written,
        };
        self.0.lock().insert(path, known);
        Ok(log)
    }

    /// The log of a file that an exporter of this process has open.
    fn log_of(&self, about: &Metadata) -> Option<Arc<Mutex<Log>>> {
        // A slow write of one exporter must not make the others wait for the map.
        let open: Vec<_> = self
            .0
            .lock()
            .values()
            .filter_map(|known| known.log.upgrade())
            .collect();
        open.into_iter().find(|log| log.lock().is(id_of(about)))
    }
}
