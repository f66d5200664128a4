// SPDX-License-Identifier: Apache-2.0

//! Passes request bodies to the pipelines, for both protocols.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use prost::Message;

use super::config::OtlpReceiverConfig;
use super::failure::Failure;
use crate::batch::json::{self, Unread};
use crate::batch::wire::{CheckError, Checked, MAX_NAME_BYTES};
use crate::batch::{Signal, wire};
use crate::component::worker::Slot;
use crate::component::{Ceiling, Entry, Held, NoRoom, PushOutcome, ReceiverContext, Shared};
use crate::net::auth::AuthGate;
use crate::net::body::begin_body;
use crate::net::metadata::Origin;
use crate::net::refused::{Of, Why};

/// The retry delay for refusals of the memory limiter, which measures once a second by default.
pub(super) const MEMORY_RETRY: Duration = Duration::from_secs(1);

/// The largest decoded size for inline work, in bytes. It is about 2,000 points, which take about a millisecond.
const LIGHT_BYTES: usize = 2 << 20;

/// Bodies up to this size are checked on the spot; larger ones would keep a runtime thread from its other work. A request
/// in protobuf is only counted: 0.4 ns a byte of usual points, 1 ms for a MiB of the smallest elements. Those of 8,000
/// points have half a MiB, and a hop to another thread would cost them more than their check.
const INLINE_MAX_BYTES: usize = 1 << 20;

/// The same for JSON, which is parsed and encoded again, about 20 ns a byte.
const INLINE_MAX_JSON_BYTES: usize = 64 << 10;

/// The encoding of a body.
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
    auth_gate: AuthGate,
    max_elements: usize,
}

impl Ingest {
    pub(super) fn new(config: &OtlpReceiverConfig, cx: &ReceiverContext) -> Self {
        Self {
            max_elements: config.max_elements_per_item.get(),
            entries: cx.entries.clone(),
            shared: cx.base.shared.clone(),
            receiver: cx.base.id.clone(),
            auth_gate: AuthGate::default(),
        }
    }

    /// Returns an ingest for one transport, with separate counts and a check of senders.
    pub(super) fn over(&self, transport: &'static str, auth_gate: AuthGate) -> Self {
        Self {
            entries: self
                .entries
                .each_ref()
                .map(|entry| entry.as_ref().map(|entry| entry.over(transport))),
            shared: self.shared.clone(),
            receiver: self.receiver.clone(),
            auth_gate,
            max_elements: self.max_elements,
        }
    }

    /// The most memory that the gateway may use.
    pub(super) fn memory_limit(&self) -> usize {
        self.shared.memory.limit()
    }

    /// The memory limit for request heads: the highest limit for the data of any signal. The signal of the request
    /// is not known yet.
    pub(super) fn ceiling(&self) -> Ceiling {
        let mut ceilings = self.entries.iter().flatten().map(Entry::ceiling);
        if ceilings.any(|ceiling| ceiling == Ceiling::Hard) {
            Ceiling::Hard
        } else {
            Ceiling::Soft
        }
    }

    /// The entry of `signal`, or `None` if no pipeline takes it.
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
        let admitted = self.auth_gate.admit(request).await;
        let sender = admitted.map_err(Failure::unauthenticated)?;
        let mut held = Held::under(entry.ceiling(), self.shared.memory.clone()).of(sender);
        self.begin(&mut held, promised).await?;
        Ok(held)
    }

    /// Reserves memory for the beginning of a body, if the whole body would fit.
    pub(super) async fn begin(&self, held: &mut Held, promised: Option<usize>) -> Result<(), Failure> {
        if let Some(bytes) = promised {
            fits_at_all(held, bytes)?;
        }
        let begun = begin_body(held, promised).await;
        begun.map_err(|no_room| Failure::no_room(Of::Admission, no_room.to_string()))
    }

    /// Counts a request that memory or processors were too short for without its reason, as older builds did.
    pub(super) fn note(&self, failure: &Failure) {
        if let Some(Why::Short(_)) = failure.why {
            metrics::counter!("tidegate_otlp_memory_refusals_total", "receiver" => self.receiver.clone())
                .increment(1);
        }
    }

    /// Checks a body and pushes it, in the slot of its decompression if there is one. An empty request succeeds
    /// without a push (OTLP: "SHOULD respond with success").
    pub(super) async fn take(
        &self,
        entry: &Entry,
        encoding: Encoding,
        body: Bytes,
        origin: Origin,
        held: &mut Held,
        mut slot: Option<Slot>,
    ) -> Result<PushOutcome, Failure> {
        let checker = Checker {
            signal: entry.signal(),
            encoding,
            max_elements: self.max_elements,
        };
        let in_place = if body.len() <= encoding.inline_max_bytes() {
            checker.check_in_place(body, held)
        } else {
            Err(body)
        };
        let checked = match in_place {
            Ok(checked) => checked,
            Err(body) => {
                let mut elsewhere = held.take();
                let checking = Slot::get_unless(&mut slot, held).await?.run_on(move || {
                    let checked = checker.check(body, &mut elsewhere);
                    (checked, elsewhere)
                });
                let ((checked, back), kept) = checking.await?;
                (*held, slot) = (back, Some(kept));
                checked
            }
        };
        let Checked { encoded, weight, cut } = checked.inspect_err(|failure| {
            // A request that only lacked memory is retried, and counted with that reason.
            if failure.why.is_none() {
                entry.fail(1);
            }
        })?;
        let rejected_items = cut.unwrap_or(0);
        let mut outcome = PushOutcome {
            rejected_items,
            message: cut.map_or_else(String::new, |_| self.limits()),
        };
        if encoded.items() == 0 {
            entry.fail(rejected_items);
            return Ok(outcome);
        }
        let mut long = None;
        if weight > LIGHT_BYTES && entry.decodes() {
            fits_at_all(held, weight)?;
            long = Some(Slot::get_unless(&mut slot, held).await?);
            held.try_grow(weight)
                .map_err(|NoRoom| Failure::no_room(Of::Decoding, NoRoom.to_string()))?;
        }
        // The caller passes on a request that is not decoded.
        drop(slot);
        let batch = origin.batch(encoded);
        let taken = entry.send_held(batch, Some(held.take()), long).await?;
        // A request that is refused as a whole is sent again.
        entry.fail(rejected_items);
        outcome.rejected_items += taken.rejected_items;
        if outcome.message.is_empty() {
            outcome.message = taken.message;
        }
        Ok(outcome)
    }
}

impl Ingest {
    /// For those of whose requests something was cut out.
    fn limits(&self) -> String {
        format!(
            "a point, span, log record, resource, scope or metadata of a metric may have {} attributes and other \
             elements (`max_elements_per_item`), a metric's name, description and unit {} KiB",
            self.max_elements,
            MAX_NAME_BYTES >> 10
        )
    }
}

/// Fails if this would not fit even into an idle gateway, so that a retry makes no sense.
fn fits_at_all(held: &Held, bytes: usize) -> Result<(), Failure> {
    if held.could_ever_grow(bytes) {
        Ok(())
    } else {
        Err(Failure::never_fits(bytes, held.account().limit()))
    }
}

/// Checks the bodies of one kind.
#[derive(Clone, Copy)]
struct Checker {
    signal: Signal,
    encoding: Encoding,
    max_elements: usize,
}

impl Checker {
    /// Checks a short body if the check is cheap. Returns the body if it must be decoded or copied, which takes
    /// longer.
    fn check_in_place(self, body: Bytes, held: &mut Held) -> Result<Result<Checked, Failure>, Bytes> {
        let request = match self.protobuf(body.clone(), held) {
            Ok(request) => request,
            Err(failure) => return Ok(Err(failure)),
        };
        match wire::weigh(self.signal, request, self.max_elements, |_| false) {
            Err(CheckError::NoRoom(_)) => {
                held.keep(body.len());
                Err(body)
            }
            Err(CheckError::Wire(error)) => Ok(Err(Failure::invalid_at(&error.path, error.to_string()))),
            Ok(checked) => Ok(Ok(checked)),
        }
    }

    fn check(self, body: Bytes, held: &mut Held) -> Result<Checked, Failure> {
        let body = self.protobuf(body, held)?;
        let before = held.bytes();
        let checked = wire::weigh(self.signal, body, self.max_elements, |weight| {
            held.try_grow(weight).is_ok()
        });
        let grown = held.bytes() - before;
        held.shrink(grown);
        checked.map_err(|error| match error {
            CheckError::Wire(error) => Failure::invalid_at(&error.path, error.to_string()),
            CheckError::NoRoom(weight) => no_room_for(held, weight),
        })
    }

    /// The bytes of a request, which take the place of its text.
    fn protobuf(self, body: Bytes, held: &mut Held) -> Result<Bytes, Failure> {
        if self.encoding == Encoding::Protobuf {
            return Ok(body);
        }
        let read = json::to_protobuf_within(self.signal, &body, &mut |bytes| held.try_grow(bytes).is_ok());
        let read = read.map_err(|unread| match unread {
            Unread::Wrong(error) => Failure::invalid_at(&error.path, error.to_string()),
            Unread::NoRoom(bytes) => no_room_for(held, bytes),
        })?;
        drop(body);
        held.keep(read.len());
        Ok(read)
    }
}

/// The failure to reserve `bytes` more bytes: temporary or permanent.
fn no_room_for(held: &Held, bytes: usize) -> Failure {
    match fits_at_all(held, bytes) {
        Ok(()) => Failure::no_room(Of::Decoding, NoRoom.to_string()),
        Err(never) => never,
    }
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
    /// The reason. Without rejected items it is a warning.
    #[prost(string, tag = "2")]
    pub(super) error_message: String,
}

impl From<PushOutcome> for ExportResponse {
    fn from(outcome: PushOutcome) -> Self {
        let mut error_message = outcome.message;
        error_message.truncate(error_message.floor_char_boundary(super::failure::MAX_MESSAGE_BYTES));
        let rejected = i64::try_from(outcome.rejected_items).unwrap_or(i64::MAX);
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
    /// ProtoJSON, which encodes 64-bit integers as strings.
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
