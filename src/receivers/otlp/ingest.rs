//! From a request's body to the pipelines, the same for both protocols.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use prost::Message;

use super::failure::Failure;
use crate::batch::wire::{CheckError, Checked, MAX_ELEMENTS};
use crate::batch::{Batch, ClientMetadata, Signal, json, wire};
use crate::component::account::count_refusal;
use crate::component::worker::Slot;
use crate::component::{Entry, Held, NoRoom, ReceiverContext, Shared, Verdict};
use crate::net::auth::Door;
use crate::net::body::begin_body;

/// When to come back if the memory limiter is what refuses: it looks once a second by default.
pub(super) const MEMORY_RETRY: Duration = Duration::from_secs(1);

/// What weighs more when it is decoded, some 2,000 points, takes more than about a millisecond.
const LIGHT_BYTES: usize = 2 << 20;

/// Bodies up to this size are checked on the spot; larger ones would keep a runtime thread from its other work. A request
/// in protobuf is only counted: 0.4 ns a byte of usual points, 1 ms for a MiB of the smallest elements. Those of 8,000
/// points have half a MiB, and a hop to another thread would cost them more than their check.
const INLINE_MAX_BYTES: usize = 1 << 20;

/// The same of JSON, which is parsed and written anew, some 20 ns a byte.
const INLINE_MAX_JSON_BYTES: usize = 64 << 10;

/// How a body is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Protobuf,
    Json,
}

impl Encoding {
    fn inline_max_bytes(self) -> usize {
        match self {
            Self::Protobuf => INLINE_MAX_BYTES,
            Self::Json => INLINE_MAX_JSON_BYTES,
        }
    }
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

    /// The most memory that the gateway may use.
    pub(super) fn memory_limit(&self) -> usize {
        self.shared.memory.limit()
    }

    /// Where data of `signal` goes, if any pipeline wants it.
    pub(super) fn entry(&self, signal: Signal) -> Option<&Entry> {
        self.entries[signal as usize].as_ref()
    }

    /// The reservation of a request that may come in; refused before its body is read when we don't know its sender, or
    /// when memory is too short for what it promises.
    pub(super) async fn admit<B>(
        &self,
        request: &Request<B>,
        entry: &Entry,
        promised: Option<usize>,
    ) -> Result<Held, Failure> {
        let admitted = self.door.admit(request).await;
        let sender = admitted.map_err(Failure::unauthenticated)?;
        let mut held = Held::under(entry.ceiling(), self.shared.memory.clone()).of(sender);
        self.begin(&mut held, promised).await?;
        Ok(held)
    }

    /// Reserves the beginning of a body, where all of it has room.
    pub(super) async fn begin(&self, held: &mut Held, promised: Option<usize>) -> Result<(), Failure> {
        if let Some(bytes) = promised {
            fits_at_all(held, bytes)?;
        }
        let begun = begin_body(held, promised).await;
        begun.map_err(|no_room| Failure::no_room("admission", no_room.to_string()))
    }

    /// Counts a request that memory or processors were too short for.
    pub(super) fn note(&self, failure: &Failure) {
        if let Some(reason) = failure.short_of {
            count_refusal(&self.receiver, reason);
            metrics::counter!("tidegate_otlp_memory_refusals_total", "receiver" => self.receiver.clone())
                .increment(1);
        }
    }

    /// Checks a body and pushes it, in the slot that it was unpacked in, where it was. An empty request succeeds without a push (OTLP: "SHOULD respond with success").
    pub(super) async fn take(
        &self,
        entry: &Entry,
        encoding: Encoding,
        body: Bytes,
        client: Option<Arc<ClientMetadata>>,
        held: &mut Held,
        mut slot: Option<Slot>,
    ) -> Result<Verdict, Failure> {
        let signal = entry.signal();
        let checked = match body.len() <= encoding.inline_max_bytes() {
            true => check(signal, encoding, body, held),
            false => {
                let mut elsewhere = held.take();
                let checking = Slot::get_unless(&mut slot).await?.run_on(move || {
                    let checked = check(signal, encoding, body, &mut elsewhere);
                    (checked, elsewhere)
                });
                let ((checked, back), kept) = checking.await?;
                (*held, slot) = (back, Some(kept));
                checked
            }
        };
        let Checked { encoded, weight, cut } = checked.inspect_err(|_| entry.fail(1))?;
        entry.fail(cut);
        let mut verdict = Verdict {
            rejected_items: cut,
            message: match cut {
                0 => String::new(),
                _ => format!(
                    "a point, span or log record may have {MAX_ELEMENTS} attributes and other elements"
                ),
            },
        };
        if encoded.items() == 0 {
            return Ok(verdict);
        }
        let mut long = None;
        if weight > LIGHT_BYTES && entry.decodes() {
            fits_at_all(held, weight)?;
            long = Some(Slot::get_unless(&mut slot).await?);
            held.try_grow(weight)
                .map_err(|NoRoom| Failure::no_room("decoding", NoRoom.to_string()))?;
        }
        // What is not decoded is passed on by whoever brings it.
        drop(slot);
        let batch = Batch {
            client,
            ..Batch::new(encoded)
        };
        let taken = entry.send_held(batch, Some(held.take()), long).await?;
        verdict.rejected_items += taken.rejected_items;
        if verdict.message.is_empty() {
            verdict.message = taken.message;
        }
        Ok(verdict)
    }
}

/// Whether there could be room for so much if nothing else were held: if not, it makes no sense to send it again.
fn fits_at_all(held: &Held, bytes: usize) -> Result<(), Failure> {
    match held.could_ever_grow(bytes) {
        true => Ok(()),
        false => Err(Failure::never_fits(bytes, held.account().limit())),
    }
}

fn check(signal: Signal, encoding: Encoding, body: Bytes, held: &mut Held) -> Result<Checked, Failure> {
    let no_room = |NoRoom| Failure::no_room("decoding", NoRoom.to_string());
    let body = match encoding {
        Encoding::Protobuf => body,
        Encoding::Json => {
            // Numbers may take more room than their digits.
            held.try_grow(body.len().saturating_mul(2)).map_err(no_room)?;
            let body = json::to_protobuf(signal, &body)
                .map_err(|error| Failure::invalid_at(&error.path, error.to_string()))?;
            held.settle(body.len());
            body
        }
    };
    let before = held.bytes();
    let checked = wire::weigh(signal, body, |weight| held.try_grow(weight).is_ok());
    let grown = held.bytes() - before;
    held.shrink(grown);
    checked.map_err(|error| match error {
        CheckError::Wire(error) => Failure::invalid_at(&error.path, error.to_string()),
        CheckError::NoRoom(weight) => match fits_at_all(held, weight) {
            Ok(()) => no_room(NoRoom),
            Err(never) => never,
        },
    })
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
