// SPDX-License-Identifier: Apache-2.0

//! Whether bytes are an export request, and how many items it holds: one pass over tags and lengths.
//!
//! Every later component can decode a request that passes this check. So a wrong request affects its sender only, and
//! no other batch. The check does not look at two things: whether strings are UTF-8 (they are read lossily, see
//! [`super::text`]) and what unknown fields hold. Stricter than protobuf in two points: groups, which no OTLP message
//! has ever had, are refused, and messages nest one level less than prost's limit (it counts unknown fields as a level
//! of their own).
//!
//! Protobuf lets a message be written in several pieces, which are merged, and of a `oneof` the last member counts. No
//! SDK does so. The check rewrites such a request, so later code need not handle it.

mod found;
mod plain;

use bytes::Bytes;

use super::edit::Editor;
use super::proto::Fields;
use super::walk::{HEADER, Header, Item, ItemKind, Visitor, edit};
use super::{WireError, text};
use crate::schema::{self, Message};
use crate::{Encoded, Signal};
use found::CheckFindings;

/// The most elements of a point, span, log record, resource or scope, and of the metadata of a metric, unless the
/// configuration says otherwise. An element is an attribute, or takes as much memory as one. SDKs stop at 128 attributes.
pub const MAX_ELEMENTS: usize = 64 << 10;

/// The most bytes of the name, the description and the unit of a metric, each.
pub const MAX_NAME_BYTES: usize = 64 << 10;

/// A request that passed the check.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The request, without the items that were cut out of it.
    pub encoded: Encoded,
    /// The approximate memory of its decoded form, in bytes.
    pub weight: usize,
    /// Items that were cut out of it: they, their resource, scope or metric had too many elements or too long a name.
    /// `None`: nothing was.
    pub cut: Option<usize>,
}

/// Why a request is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// It is not a request.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The check has to decode or copy it, and `has_room` refused this many bytes.
    #[error("the gateway has no memory left for the decoded request")]
    NoRoom(usize),
}

/// Checks the bytes of an `Export*ServiceRequest` and counts its points, spans or log records.
///
/// # Errors
/// A description of the mistake, with the message that has it.
pub fn check(signal: Signal, bytes: Bytes) -> Result<Encoded, WireError> {
    match weigh(signal, bytes, MAX_ELEMENTS, |_| true) {
        Ok(Checked {
            cut: None, encoded, ..
        }) => Ok(encoded),
        Err(CheckError::Wire(error)) => Err(error),
        _ => Err(WireError::here(TOO_MANY)),
    }
}

/// The approximate memory of the decoded form of a checked request, in bytes.
pub fn weight(signal: Signal, bytes: &[u8]) -> usize {
    // A processor may have broken the request. Then no component can decode it.
    CheckFindings::of(signal, bytes, usize::MAX).map_or(bytes.len(), |found| found.weight(bytes.len()))
}

/// As [`check`]; it cuts out items with more than `max_elements`. If the request has to be decoded or copied, `has_room`
/// says whether this many bytes may be taken.
///
/// # Errors
/// A description of the mistake, with the message that has it, or the room that the request needs.
pub fn weigh(
    signal: Signal,
    mut bytes: Bytes,
    max_elements: usize,
    mut has_room: impl FnMut(usize) -> bool,
) -> Result<Checked, CheckError> {
    let mut reserve = |weight| {
        if has_room(weight) {
            Ok(())
        } else {
            Err(CheckError::NoRoom(weight))
        }
    };
    let mut found = CheckFindings::of(signal, &bytes, max_elements)?;
    if found.in_pieces {
        reserve(found.weight_in_pieces(bytes.len()))?;
        bytes = rewritten(signal, &bytes)?;
        found = CheckFindings::of(signal, &bytes, max_elements)?;
    }
    let mut cut = None;
    if found.is_heavy {
        reserve(bytes.len())?;
        let items = found.tally.items();
        bytes = without_heavy(signal, bytes, items, max_elements)?;
        found = CheckFindings::of(signal, &bytes, max_elements)?;
        if found.is_heavy {
            return Err(WireError::here(TOO_MANY).into());
        }
        cut = Some(items - found.tally.items());
    }
    let weight = found.weight(bytes.len());
    Ok(Checked {
        encoded: Encoded::one(signal, bytes, found.tally.items()),
        weight,
        cut,
    })
}

const TOO_MANY: &str = "too many attributes or other elements";

/// A request without the items that have too many elements or too long a name.
fn without_heavy(
    signal: Signal,
    bytes: Bytes,
    items: usize,
    max_elements: usize,
) -> Result<Bytes, WireError> {
    struct Sieve(usize);
    impl Sieve {
        fn lets_through(&self, message: &'static Message, bytes: &[u8]) -> bool {
            let mut found = CheckFindings::within(self.0);
            found.check(message, bytes, 0).is_ok() && !found.is_heavy
        }
    }
    impl Visitor for Sieve {
        fn resource(&mut self, resource: &Header<'_>, _: &mut Editor<'_>) -> bool {
            self.lets_through(&schema::RESOURCE, resource.message)
        }

        fn scope(&mut self, around: &[u8]) -> bool {
            let fields = Fields::new(around).map_while(Result::ok);
            let mut scopes = fields.filter(|field| field.number == HEADER);
            scopes.all(|field| self.lets_through(&schema::SCOPE, field.payload))
        }

        fn whole_metric(&mut self, metric: &[u8]) -> bool {
            !CheckFindings::within(self.0).describes_too_much(metric)
        }

        fn item(&mut self, item: &Item<'_>, _: &mut Editor<'_>) -> bool {
            self.lets_through(message_of(item.kind), item.message)
        }
    }
    let edited = edit(&Encoded::one(signal, bytes, items), &mut Sieve(max_elements))?;
    Ok(edited.joined())
}

fn message_of(kind: ItemKind) -> &'static Message {
    match kind {
        ItemKind::Number => &schema::NUMBER_POINT,
        ItemKind::Histogram => &schema::HISTOGRAM_POINT,
        ItemKind::ExponentialHistogram => &schema::EXPONENTIAL_POINT,
        ItemKind::Summary => &schema::SUMMARY_POINT,
        ItemKind::Span => &schema::SPAN_MESSAGE,
        ItemKind::LogRecord => &schema::LOG_RECORD,
    }
}

/// The same request as prost writes it.
fn rewritten(signal: Signal, bytes: &[u8]) -> Result<Bytes, WireError> {
    use opentelemetry_proto::tonic::collector::{
        logs::v1::ExportLogsServiceRequest, metrics::v1::ExportMetricsServiceRequest,
        trace::v1::ExportTraceServiceRequest,
    };
    fn again<M: prost::Message + Default>(signal: Signal, bytes: &[u8]) -> Result<Bytes, prost::DecodeError> {
        let message = text::decode::<M>(schema::request(signal), bytes)?;
        Ok(message.encode_to_vec().into())
    }
    let again = match signal {
        Signal::Metrics => again::<ExportMetricsServiceRequest>(signal, bytes),
        Signal::Traces => again::<ExportTraceServiceRequest>(signal, bytes),
        Signal::Logs => again::<ExportLogsServiceRequest>(signal, bytes),
    };
    again.map_err(|_| WireError::here("a message in pieces that can't be decoded"))
}
