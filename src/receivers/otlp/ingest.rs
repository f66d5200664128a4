//! From a request's body to the pipelines, the same for both protocols.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use prost::Message;

use super::failure::Failure;
use crate::batch::{Batch, ClientMetadata, Signal, json, wire};
use crate::component::{Entry, ReceiverContext, Shared, Verdict};
use crate::net::Held;
use crate::net::auth::Door;

/// When to come back if the memory limiter is what refuses: it looks once a second by default.
const MEMORY_RETRY: Duration = Duration::from_secs(1);

/// Bodies up to this size are checked on the spot; larger ones would keep a runtime thread from its other work.
const INLINE_MAX_BYTES: usize = 1 << 20;

/// How a body is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Protobuf,
    Json,
}

/// The way in for all signals.
pub(super) struct Ingest {
    entries: [Option<Entry>; 3],
    shared: Arc<Shared>,
    receiver: Arc<str>,
    door: Door,
}

impl Ingest {
    pub(super) fn new(cx: &ReceiverContext) -> Self {
        Self {
            entries: cx.entries.clone(),
            shared: cx.base.shared.clone(),
            receiver: cx.base.id.clone(),
            door: Door::default(),
        }
    }

    /// The same for one transport, whose data is counted apart and whose senders are checked.
    pub(super) fn over(&self, transport: &'static str, door: Door) -> Self {
        Self {
            entries: self
                .entries
                .each_ref()
                .map(|entry| entry.as_ref().map(|entry| entry.over(transport))),
            shared: self.shared.clone(),
            receiver: self.receiver.clone(),
            door,
        }
    }

    /// Where data of `signal` goes, if any pipeline wants it.
    pub(super) fn entry(&self, signal: Signal) -> Option<&Entry> {
        self.entries[signal as usize].as_ref()
    }

    /// The account of a request that may come in; refused before its body is read when we don't know its sender, or
    /// when memory is short.
    pub(super) async fn admit(&self, headers: &HeaderMap) -> Result<Held, Failure> {
        self.door.admit(headers).await.map_err(Failure::unauthenticated)?;
        let held = Held::new(self.shared.clone());
        self.check_memory(&held)?;
        Ok(held)
    }

    /// Refuses a request that memory is too short for.
    pub(super) fn check_memory(&self, held: &Held) -> Result<(), Failure> {
        if held.is_too_much() {
            metrics::counter!("tidegate_otlp_memory_refusals_total", "receiver" => self.receiver.clone())
                .increment(1);
            return Err(Failure::busy(
                "the gateway is over its memory limit",
                MEMORY_RETRY,
            ));
        }
        Ok(())
    }

    /// Checks a body and pushes it. An empty request succeeds without a push (OTLP: "SHOULD respond with success").
    pub(super) async fn take(
        &self,
        entry: &Entry,
        encoding: Encoding,
        body: Bytes,
        client: Option<Arc<ClientMetadata>>,
    ) -> Result<Verdict, Failure> {
        let signal = entry.signal();
        let checked = match body.len() <= INLINE_MAX_BYTES {
            true => check(signal, encoding, body),
            false => tokio::task::spawn_blocking(move || check(signal, encoding, body))
                .await
                .unwrap_or_else(|_| Err(Failure::busy("the gateway is stopping", MEMORY_RETRY))),
        };
        let encoded = checked.inspect_err(|_| entry.fail(1))?;
        match encoded.items() {
            0 => Ok(Verdict::default()),
            _ => {
                let batch = Batch {
                    client,
                    ..Batch::new(encoded)
                };
                Ok(entry.send(batch).await?)
            }
        }
    }
}

fn check(signal: Signal, encoding: Encoding, body: Bytes) -> Result<crate::batch::Encoded, Failure> {
    let body = match encoding {
        Encoding::Protobuf => body,
        Encoding::Json => json::to_protobuf(signal, &body)
            .map_err(|error| Failure::invalid_at(&error.path, error.to_string()))?,
    };
    wire::check(signal, body).map_err(|error| Failure::invalid_at(&error.path, error.to_string()))
}

/// `ExportMetricsServiceResponse` and its siblings, which differ in names only.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportResponse {
    /// Unset on full success.
    #[prost(message, optional, tag = "1")]
    pub(super) partial_success: Option<PartialSuccess>,
}

/// `ExportMetricsPartialSuccess` and its siblings.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PartialSuccess {
    /// Data points, spans or log records.
    #[prost(int64, tag = "1")]
    pub(super) rejected: i64,
    /// Why; alone it is a warning.
    #[prost(string, tag = "2")]
    pub(super) error_message: String,
}

impl From<Verdict> for ExportResponse {
    fn from(verdict: Verdict) -> Self {
        let mut error_message = verdict.message;
        error_message.truncate(error_message.floor_char_boundary(super::failure::MAX_MESSAGE_BYTES));
        let rejected = i64::try_from(verdict.rejected_items).unwrap_or(i64::MAX);
        let is_full_success = rejected == 0 && error_message.is_empty();
        Self {
            partial_success: (!is_full_success).then_some(PartialSuccess {
                rejected,
                error_message,
            }),
        }
    }
}

impl ExportResponse {
    /// ProtoJSON, where 64-bit integers are strings.
    pub(super) fn json(&self, signal: Signal) -> serde_json::Value {
        let rejected_name = match signal {
            Signal::Metrics => "rejectedDataPoints",
            Signal::Traces => "rejectedSpans",
            Signal::Logs => "rejectedLogRecords",
        };
        match &self.partial_success {
            None => serde_json::json!({}),
            Some(partial) => serde_json::json!({"partialSuccess": {
                rejected_name: partial.rejected.to_string(),
                "errorMessage": partial.error_message,
            }}),
        }
    }
}
