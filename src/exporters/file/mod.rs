// SPDX-License-Identifier: Apache-2.0

//! `file`: writes OTLP as JSON lines or framed protobuf, or raw events as CSV. It rotates, and survives a full
//! disk.
//!
//! The destination has the queue, the joining for `flush_interval` and the retries. So a full disk is an outage
//! like any other: counted, retried, and never a torn line. Data that is not written yet counts as held.
//!
//! A start only opens and locks the file. The first write of the process truncates it, so that a start or a reload that
//! fails changes nothing. A reload goes on with the open file.

pub mod config;
mod encode;
mod files;
mod log;

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::batch::Signal;
use crate::component::{ConfigType, ErrorDoc, ExporterFactory, Factory, Reason, Shared, Stability};
use crate::delivery::errors::DELIVERY_ERRORS;
use crate::delivery::{Attempt, Destination, EncodingPermit, ExportRequest, Loss, Outcome};
use config::{FileExporterConfig, FileFormat};
use files::Files;
use log::Log;

/// The errors of `file`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::logged(
        "The file can't be opened. The gateway does not start.",
        "can't write",
        "Check the directory, its permissions and its free space.",
    ),
    ErrorDoc::logged(
        "Another gateway has the file open. The gateway does not start.",
        "another process writes this file",
        "Choose another `path`, or stop the other gateway.",
    ),
    ErrorDoc::logged(
        "A reload changes `format` or `compression` of a file with content of this run. The old configuration runs on.",
        "this run has written it in another format or compression",
        "Choose another `path`, or move the file.",
    ),
];

/// The factory of `file`.
pub static FACTORY: ExporterFactory = Factory {
    kind: "file",
    aliases: &[],
    stability: &[
        (Signal::Metrics, Stability::Beta),
        (Signal::Traces, Stability::Beta),
        (Signal::Logs, Stability::Beta),
    ],
    help: "writes OTLP (JSON lines, protobuf) or raw events (CSV) to a file",
    errors: &[ERRORS, DELIVERY_ERRORS],
    config: ConfigType::of::<FileExporterConfig>(),
    build: |settings, cx| {
        let config = settings.get::<FileExporterConfig>();
        let others = [Signal::Traces, Signal::Logs]
            .iter()
            .any(|signal| cx.ledger(*signal).is_some());
        if config.format == FileFormat::Csv && others {
            return Err(cx.base.error("format `csv` is for metrics pipelines only"));
        }
        let delivery = config.delivery();
        let writer = FileWriter {
            files: cx.base.shared.parts.get(Files::default),
            shared: cx.base.shared.clone(),
            config,
            log: OnceLock::new(),
        };
        Ok(Arc::new(Destination::new(cx, &delivery, writer)))
    },
};

struct FileWriter {
    files: Arc<Files>,
    shared: Arc<Shared>,
    config: Arc<FileExporterConfig>,
    /// The open file. It stays open after the stop, because a successor goes on with it.
    log: OnceLock<Arc<Mutex<Log>>>,
}

#[async_trait]
impl Attempt for FileWriter {
    fn may_overlap(&self) -> bool {
        false
    }

    async fn open(&self) -> Result<(), String> {
        let config = self.config.clone();
        let header = if config.format == FileFormat::Csv {
            encode::CSV_HEADER
        } else {
            ""
        };
        let path = config.path.display().to_string();
        let files = self.files.clone();
        let opened = tokio::task::spawn_blocking(move || files.open(&config, header)).await;
        let opened = opened.map_err(|error| error.to_string())?;
        let log = opened.map_err(|error| format!("can't write {path}: {error}"))?;
        // An exporter starts once.
        let _ = self.log.set(log);
        tracing::info!(%path, "writing the file");
        Ok(())
    }

    async fn send(&self, export: ExportRequest) -> Outcome {
        let config = self.config.clone();
        let weigh = {
            let config = config.clone();
            move |export: &ExportRequest| encode::bytes(&config, export)
        };
        let (export, bytes) = match export.weighed(weigh).await {
            Ok(weighed) => weighed,
            Err(why) => return Outcome::retry(why),
        };
        let permit = EncodingPermit::reserve(&self.shared, bytes).await;
        let Some(log) = self.log.get().cloned() else {
            return Outcome::permanent("the file is not open");
        };
        let written = tokio::task::spawn_blocking(move || -> Result<usize, Outcome> {
            let encoded = encode::encode(&config, &export).map_err(|why| Outcome::Permanent { why })?;
            let _held = permit.finish();
            log.lock()
                .write(&encoded.bytes)
                .map_err(|error| Outcome::retry(error.to_string()))?;
            Ok(encoded.unsupported)
        });
        match written.await {
            Ok(Ok(0)) => Outcome::Done,
            Ok(Ok(items)) => Outcome::Partly(Loss {
                items,
                reason: Reason::Unsupported,
                why: "only events and numbers have a form in CSV".to_owned(),
            }),
            Ok(Err(outcome)) => outcome,
            Err(error) => Outcome::retry(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
