//! `file`: writes OTLP as JSON lines or framed protobuf, or raw events as CSV; rotates; survives a full disk.
//!
//! Queue and retries are the destination's, so a disk that is full is an outage like any other: counted, retried, and
//! never a torn line.

pub mod config;
mod encode;
mod log;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinHandle;

use crate::batch::Signal;
use crate::component::{ConfigType, ExporterFactory, Factory, Reason, Stability};
use crate::delivery::{Attempt, Delivery, Destination, Loss, Outcome, Parcel};
use config::{Config, Format};
use log::Log;

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
    config: ConfigType::of::<Config>(),
    build: |settings, cx| {
        let config = settings.get::<Config>();
        let others = [Signal::Traces, Signal::Logs]
            .iter()
            .any(|signal| cx.ledger(*signal).is_some());
        if config.format == Format::Csv && others {
            return Err(cx.base.error("format `csv` is for metrics pipelines only"));
        }
        let delivery = Delivery {
            queue: config.sending_queue.clone(),
            retry: config.retry_on_failure.clone(),
            timeout: None,
        };
        let writer = Writer {
            config,
            file: Arc::default(),
            flushing: Mutex::default(),
        };
        Ok(Arc::new(Destination::new(cx, &delivery, writer)))
    },
};

/// Data is handed to the system at least this often, also with a `flush_interval` of 0.
const MIN_FLUSH_INTERVAL: Duration = Duration::from_millis(10);

struct Writer {
    config: Arc<Config>,
    file: Arc<Mutex<Option<Log>>>,
    flushing: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    /// Runs blocking work on the open file.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Option<Log>) -> T + Send + 'static,
    ) -> Result<T, String> {
        let file = self.file.clone();
        let done = tokio::task::spawn_blocking(move || {
            work(&mut file.lock().unwrap_or_else(PoisonError::into_inner))
        });
        done.await.map_err(|error| error.to_string())
    }
}

#[async_trait]
impl Attempt for Writer {
    async fn open(&self) -> Result<(), String> {
        let config = self.config.clone();
        let header = if config.format == Format::Csv {
            encode::CSV_HEADER
        } else {
            ""
        };
        let path = config.path.display().to_string();
        let opened = self
            .with(move |file| Log::open(&config, header).map(|log| *file = Some(log)))
            .await?;
        opened.map_err(|error| format!("can't write {path}: {error}"))?;
        let flushing = tokio::spawn(flush_at_intervals(self.file.clone(), self.config.flush_interval));
        *self.flushing.lock().unwrap_or_else(PoisonError::into_inner) = Some(flushing);
        Ok(())
    }

    async fn send(&self, parcel: Parcel) -> Outcome {
        let config = self.config.clone();
        let written = self.with(move |file| {
            let encoded = encode::encode(&config, &parcel).map_err(|why| Outcome::Permanent { why })?;
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

    async fn close(&self) {
        let flushing = self
            .flushing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(flushing) = flushing {
            flushing.abort();
        }
        let flushed = self
            .with(|file| file.take().map_or(Ok(()), |mut log| log.flush()))
            .await;
        if let Ok(Err(error)) = flushed {
            tracing::error!(path = %self.config.path.display(), %error, "the last data could not be written");
        }
    }
}

/// What was written last must not wait for what is written next.
async fn flush_at_intervals(file: Arc<Mutex<Option<Log>>>, interval: Duration) {
    loop {
        tokio::time::sleep(interval.max(MIN_FLUSH_INTERVAL)).await;
        let file = file.clone();
        let flush = move || {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            file.as_mut().map_or(Ok(()), Log::flush)
        };
        if let Ok(Err(error)) = tokio::task::spawn_blocking(flush).await {
            tracing::warn!(%error, "can't write; it is tried again");
        }
    }
}

#[cfg(test)]
mod tests;
