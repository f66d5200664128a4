// SPDX-License-Identifier: Apache-2.0

//! `prometheusremotewrite`: writes metrics to Prometheus and other remote write receivers, 1.0 and 2.0.
//!
//! Requests go in parallel, but the samples of a series stay in order. The queue hands out one batch at a time,
//! and its series are assigned to shards that share none (`docs/decisions/0015-concurrent-requests-share-no-series.md`).

mod config;
mod progress;
mod response;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, USER_AGENT as USER_AGENT_HEADER};
use http::{HeaderMap, Uri};
use tidegate_runtime::USER_AGENT;
use tokio::task::JoinSet;

use crate::batch::{ClientMetadata, Signal};
use crate::component::collisions::Alternating;
use crate::component::{
    ComponentError, ConfigType, Context, ExporterFactory, Factory, Held, Reason, Shared, Stability,
};
use crate::delivery::errors::DELIVERY_ERRORS;
use crate::delivery::http::{Connections, HttpClient, HttpOptions};
use crate::delivery::machine::Load;
use crate::delivery::response::{address, quote};
use crate::delivery::{
    Attempt, Destination, EncodingPermit, ExportRequest, Left, Outcome, Parts, RetryConfig, apart,
};
use crate::net::headers;
use crate::prom::remote::translate::Translator;
use crate::prom::remote::{VERSION_HEADER, Version, count_evicted, write};
use config::RemoteWriteExporterConfig;
use progress::{Chunk, Progress};
use response::{Sent, WriteOutcome};

/// The factory of `prometheusremotewrite`.
pub static FACTORY: ExporterFactory = Factory {
    kind: "prometheusremotewrite",
    aliases: &["prometheus_remote_write"],
    stability: &[(Signal::Metrics, Stability::Beta)],
    help: "writes metrics by Prometheus remote write, 1.0 and 2.0",
    errors: &[DELIVERY_ERRORS],
    config: ConfigType::of::<RemoteWriteExporterConfig>(),
    build: |settings, cx| {
        let config = settings.get::<RemoteWriteExporterConfig>();
        let writer = RemoteWriter(Arc::new(SharedWriter::new(&config, &cx.base)?));
        let destination = Destination::new(cx, &config.delivery(), writer);
        Ok(Arc::new(destination.only_leader(config.only_leader.as_deref())?))
    },
};

/// The most points that are translated inline. More would keep a runtime thread from other work.
const INLINE_ITEMS: usize = 1_000;

struct RemoteWriter(Arc<SharedWriter>);

struct SharedWriter {
    shared: Arc<Shared>,
    id: Arc<str>,
    http: HttpClient,
    url: Uri,
    /// The socket of the URL, if it names one.
    unix: Option<PathBuf>,
    retry: RetryConfig,
    /// By message.
    headers: [HeaderMap; 2],
    translator: Translator,
    alternating: Alternating,
    timeout: Option<Duration>,
    shards: usize,
    max_bytes: usize,
    metadata: bool,
    isolates: bool,
    falls_back: bool,
    dialect: AtomicU8,
}

/// The protocol version of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Dialect {
    /// Requests use 1.0.
    One,
    /// Requests use 2.0, but the receiver has not confirmed it yet.
    Two,
    /// The receiver understands 2.0, or the options allow nothing else.
    Proven,
}

impl SharedWriter {
    fn new(config: &RemoteWriteExporterConfig, cx: &Context) -> Result<Self, ComponentError> {
        let options = HttpOptions {
            endpoint: Some(&config.endpoint),
            tls: &config.tls,
            auth: config.auth.as_ref(),
            max_idle_conns: config.max_idle_conns,
            idle_conn_timeout: config.idle_conn_timeout,
            connections: Connections {
                proxy: config.proxy_url.as_ref(),
                max: config.max_conns_per_host,
                are_kept: !config.disable_keep_alives,
                http2: config.force_attempt_http2,
                ping_interval: config.http2_read_idle_timeout,
                ping_timeout: config.http2_ping_timeout,
            },
        };
        let (version, falls_back) = config.version();
        let dialect = match version {
            Version::One => Dialect::One,
            Version::Two if falls_back => Dialect::Two,
            Version::Two => Dialect::Proven,
        };
        Ok(Self {
            shared: cx.shared.clone(),
            id: cx.id.clone(),
            http: HttpClient::new(options, cx)?,
            url: config.endpoint.exact(),
            unix: config.endpoint.unix_path(),
            retry: config.retry_on_failure.clone(),
            headers: [Version::One, Version::Two].map(|version| request_headers(config, version)),
            translator: Translator::new(config.settings()).within(cx.shared.memory.clone()),
            alternating: Alternating::new(("exporter", cx.id.to_string())),
            timeout: Some(config.timeout).filter(|timeout| !timeout.is_zero()),
            shards: config.shards(),
            max_bytes: config.max_batch_size_bytes.as_usize(),
            metadata: config.send_metadata,
            isolates: config.isolates(),
            falls_back,
            dialect: AtomicU8::new(dialect as u8),
        })
    }

    fn dialect(&self) -> Dialect {
        match self.dialect.load(Relaxed) {
            0 => Dialect::One,
            1 => Dialect::Two,
            _ => Dialect::Proven,
        }
    }

    /// Writes the chunks of a shard one after another. An error: the rest of them has to come again.
    async fn write_shard(
        self: Arc<Self>,
        progress: Arc<Progress>,
        shard: usize,
        client: Option<Arc<ClientMetadata>>,
    ) -> Result<(), Left> {
        while let Some(chunk) = progress.next(shard) {
            let outcome = self.write(&chunk, client.as_deref()).await;
            match outcome {
                WriteOutcome::Taken => progress.taken(shard),
                WriteOutcome::Lost { items, reason, why } => progress.lost(shard, items, reason, why),
                WriteOutcome::Halve { why, searches } => {
                    progress.halve(shard, searches, self.isolates || !searches, why);
                }
                WriteOutcome::Again { after, why } => return Err(Left { items: 0, after, why }),
                WriteOutcome::Denied { retries, after, why } => {
                    progress.deny(&why);
                    if retries {
                        return Err(Left { items: 0, after, why });
                    }
                    progress.lost(shard, chunk.points(), Reason::Rejected, why);
                }
                // The next requests use another version.
                WriteOutcome::Strange { why } if self.falls_back => {
                    if self.dialect.swap(Dialect::One as u8, Relaxed) != Dialect::One as u8 {
                        tracing::info!(answer = %why, "the receiver does not support remote write 2.0: the exporter sends 1.0");
                    }
                }
                WriteOutcome::Strange { why } => {
                    progress.lost(shard, chunk.points(), Reason::Rejected, why);
                }
            }
        }
        Ok(())
    }

    async fn write(&self, chunk: &Arc<Chunk>, client: Option<&ClientMetadata>) -> WriteOutcome {
        let dialect = self.dialect();
        let version = match dialect {
            Dialect::One => Version::One,
            Dialect::Two | Dialect::Proven => Version::Two,
        };
        let (body, _held) = match self.body(version, chunk).await {
            Ok(made) => made,
            Err(why) => {
                return WriteOutcome::Lost {
                    items: chunk.points(),
                    reason: Reason::Limit,
                    why,
                };
            }
        };
        let headers = &self.headers[version as usize];
        let posting = self.http.post(&self.url, headers.clone(), body, client);
        let answer = match self.timeout {
            None => posting.await,
            Some(timeout) => match tokio::time::timeout(timeout, posting).await {
                Ok(answer) => answer,
                Err(_) => Err(Outcome::retry(format!("no answer within {timeout:?}"))),
            },
        };
        let outcome = match answer {
            Ok(answer) => {
                let outcome = response::outcome(&answer, version, dialect, &Sent::of(chunk));
                let outcome = if self.retry.has_http(answer.status) {
                    outcome.tried_again()
                } else {
                    outcome
                };
                outcome.reworded(|why| quote(why, &self.http.with_credentials(headers, client)))
            }
            Err(Outcome::Retry { after, why }) => WriteOutcome::Again { after, why },
            Err(other) => WriteOutcome::Lost {
                items: chunk.points(),
                reason: Reason::Rejected,
                why: other.error().unwrap_or_default().to_owned(),
            },
        };
        if version == Version::Two && matches!(outcome, WriteOutcome::Taken) {
            let (from, to) = (Dialect::Two as u8, Dialect::Proven as u8);
            // A writer that has found out otherwise in between is right.
            let _ = self.dialect.compare_exchange(from, to, Relaxed, Relaxed);
        }
        outcome
    }

    /// The body of a chunk, and the room that it takes.
    async fn body(&self, version: Version, chunk: &Arc<Chunk>) -> Result<(Bytes, Held), String> {
        // The size of the request, twice: uncompressed and compressed.
        let permit = EncodingPermit::reserve(&self.shared, 2 * chunk.bytes()).await;
        let (chunk, metadata) = (chunk.clone(), self.metadata);
        let make = move || {
            let request = write::encode(version, chunk.series(), metadata);
            write::compress(&request).map_err(|error| format!("compressing: {error}"))
        };
        let (body, mut held) = permit.make(make).await?;
        let body = Bytes::from(body?);
        held.keep(body.len());
        Ok((body, held))
    }
}

fn request_headers(config: &RemoteWriteExporterConfig, version: Version) -> HeaderMap {
    let mut all = headers::build(&config.headers);
    all.insert(USER_AGENT_HEADER, HeaderValue::from_static(USER_AGENT));
    all.insert(CONTENT_TYPE, HeaderValue::from_static(version.content_type()));
    all.insert(CONTENT_ENCODING, HeaderValue::from_static("snappy"));
    all.insert(VERSION_HEADER, HeaderValue::from_static(version.header()));
    all
}

impl RemoteWriter {
    /// The progress that an earlier attempt left on the export request, or a new one.
    async fn progress(&self, export: &ExportRequest) -> Result<Arc<Progress>, String> {
        if let Some(progress) = export.attempt_state().get::<Progress>() {
            return Ok(progress);
        }
        let inner = self.0.clone();
        let batches = export.batches().to_vec();
        let (export, bytes) = export.clone().weighed(ExportRequest::decoded_bytes).await?;
        let permit = EncodingPermit::reserve(&inner.shared, bytes).await;
        let translate = move || {
            let translation = inner.translator.translate(&batches);
            for metric in &translation.colliding {
                inner.alternating.note(metric);
            }
            count_evicted("exporter", &inner.id, translation.evicted);
            Progress::new(translation, inner.shards, inner.max_bytes, permit)
        };
        let progress = Arc::new(apart(export.items() > INLINE_ITEMS, translate).await?);
        export.attempt_state().set(progress.clone());
        Ok(progress)
    }
}

#[async_trait]
impl Attempt for RemoteWriter {
    fn endpoint(&self) -> String {
        match self.0.unix.as_deref() {
            Some(path) => format!("unix:{}", path.display()),
            None => address(&self.0.url),
        }
    }

    async fn send(&self, export: ExportRequest) -> Outcome {
        let progress = match self.progress(&export).await {
            Ok(progress) => progress,
            Err(why) => return Outcome::Permanent { why },
        };
        let client = export.batches().first().and_then(|batch| batch.client.clone());
        let mut shards = JoinSet::new();
        for shard in progress.open() {
            shards.spawn(
                self.0
                    .clone()
                    .write_shard(progress.clone(), shard, client.clone()),
            );
        }
        let mut left: Option<Left> = None;
        while let Some(ended) = shards.join_next().await {
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(failed)) => {
                    let after = left
                        .as_ref()
                        .map_or(failed.after, |left| left.after.max(failed.after));
                    left = Some(Left { after, ..failed });
                }
                Err(_) => return Outcome::permanent("the attempt was broken off (a bug)"),
            }
        }
        Outcome::Parts(Parts {
            denied: progress.take_denied(),
            losses: progress.take_losses(),
            left: left.map(|left| Left {
                items: progress.points_left(),
                ..left
            }),
        })
    }
}
