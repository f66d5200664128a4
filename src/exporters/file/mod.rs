// SPDX-License-Identifier: Apache-2.0

//! `file`: writes OTLP as JSON lines or framed protobuf, or raw events as CSV. It rotates, and survives a full
//! disk.
//!
//! The destination has the queue, the joining for `flush_interval` and the retries. So a full disk is an outage
//! like any other: counted, retried, and never a torn line. Data that is not written yet counts as held.

pub mod config;
mod encode;
mod log;

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::batch::Signal;
use crate::component::{ConfigType, ErrorDoc, ExporterFactory, Factory, Reason, Shared, Stability};
use crate::delivery::errors::DELIVERY_ERRORS;
use crate::delivery::{Attempt, Destination, EncodingPermit, ExportRequest, Loss, Outcome};
use config::{FileExporterConfig, FileFormat};
use log::Log;

/// The errors of `file`.
const ERRORS: &[ErrorDoc] = &[ErrorDoc::logged(
    "The file can't be opened. The gateway does not start.",
    "can't write",
    "Check the directory, its permissions and its free space.",
)];

/// The factory of `file`.
pub static FACTORY: ExporterFactory = Factory {
    kind: "file",
    aliases: &[],
    signals: &[
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
            shared: cx.base.shared.clone(),
            config,
            file: Arc::default(),
        };
        Ok(Arc::new(Destination::new(cx, &delivery, writer)))
    },
};

struct FileWriter {
    shared: Arc<Shared>,
    config: Arc<FileExporterConfig>,
    file: Arc<Mutex<Option<Log>>>,
}

impl FileWriter {
    /// Runs blocking work on the open file.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Option<Log>) -> T + Send + 'static,
    ) -> Result<T, String> {
        let file = self.file.clone();
        let done = tokio::task::spawn_blocking(move || work(&mut file.lock()));
        done.await.map_err(|error| error.to_string())
    }
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
        let opened = self
            .with(move |file| Log::open(&config, header).map(|log| *file = Some(log)))
            .await?;
        opened.map_err(|error| format!("can't write {path}: {error}"))?;
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
        let written = self.with(move |file| {
            let encoded = encode::encode(&config, &export).map_err(|why| Outcome::Permanent { why })?;
            let _held = permit.finish();
            let Some(log) = file else {
                return Err(Outcome::permanent("the file is not open"));
            };
            log.write(&encoded.bytes)
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
            Err(why) => Outcome::retry(why),
        }
    }
}

#[cfg(test)]
mod tests;
