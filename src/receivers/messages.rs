// SPDX-License-Identifier: Apache-2.0

//! From a message of a broker to the pipelines: its compression, its encoding and the attributes of its headers.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;

use super::message_attributes::{annotate, room};
use crate::batch::json::{self, Unread};
use crate::batch::wire::{CheckError, Checked};
use crate::batch::{Batch, Signal, TelemetryEncoding, wire};
use crate::component::worker::Slot;
use crate::component::{Entry, Held, Shared};
use crate::net::{Coding, DecompressError, unpack};

/// How long a message waits for memory or processors.
const SHORT_WAIT: Duration = Duration::from_secs(1);

/// Messages up to this size are checked on the spot: in protobuf they are only counted.
const INLINE_BYTES: usize = 1 << 20;

/// The same for JSON, which is parsed and encoded again.
const INLINE_JSON_BYTES: usize = 64 << 10;

/// The largest decoded size for inline work, in bytes.
const LIGHT_BYTES: usize = 2 << 20;

/// What became of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The pipelines have it.
    Yes,
    /// Nobody can take it.
    Never(Why, String),
    /// The pipelines refuse it for now.
    Later(Duration, String),
}

/// Why a message is skipped: the reasons of `tidegate_kafka_skipped_messages_total` and
/// `tidegate_nats_skipped_messages_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Its batch can't be decoded, or is too large.
    Batch,
    /// It has no content.
    Empty,
    /// It is larger than the limit after decompression.
    TooLarge,
    /// It is not a request of its signal.
    Invalid,
    /// It does not fit into the memory of an idle gateway.
    Memory,
    /// The pipelines never take it.
    Refused,
    /// The pipelines refused it for now, and `on_error` is set.
    Busy,
    /// It was marked, and its queue ended before the pipelines took it.
    Interrupted,
}

impl Why {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Empty => "empty",
            Self::TooLarge => "too_large",
            Self::Invalid => "invalid",
            Self::Memory => "memory",
            Self::Refused => "refused",
            Self::Busy => "busy",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Where the messages of a topic or a subject go.
pub(super) struct MessageRoute {
    pub(super) entry: Entry,
    pub(super) encoding: TelemetryEncoding,
}

/// The content of a message, as the broker has it.
pub(super) struct MessageContent {
    pub(super) value: Bytes,
    /// Whether the value is a slice of a buffer that other messages share.
    pub(super) is_shared: bool,
    /// How it is compressed.
    pub(super) coding: Coding,
    /// Attributes for its resources.
    pub(super) attributes: Vec<(String, String)>,
}

/// The limits of a message.
pub(super) struct MessageLimits {
    pub(super) max_elements: usize,
    /// The most bytes after decompression.
    pub(super) max_bytes: usize,
}

/// The way in for all messages.
pub(super) struct ContentDecoder {
    pub(super) shared: Arc<Shared>,
    pub(super) limits: MessageLimits,
}

impl ContentDecoder {
    /// Hands a message to the pipelines. A panic on the way ends the message, and no other.
    pub(super) async fn take(&self, route: &MessageRoute, content: MessageContent) -> Taken {
        let mut taking = pin!(self.take_unguarded(route, content));
        let guarded = poll_fn(|cx| {
            let polled = catch_unwind(AssertUnwindSafe(|| taking.as_mut().poll(cx)));
            polled.unwrap_or_else(|_| {
                Poll::Ready(Taken::Never(
                    Why::Invalid,
                    "its processing panicked (a bug)".to_owned(),
                ))
            })
        });
        guarded.await
    }

    async fn take_unguarded(&self, route: &MessageRoute, content: MessageContent) -> Taken {
        let MessageContent {
            mut value,
            mut is_shared,
            coding,
            attributes,
        } = content;
        if value.is_empty() {
            return Taken::Never(Why::Empty, "the message has no content".to_owned());
        }
        let entry = &route.entry;
        let mut held = Held::under(entry.ceiling(), self.shared.memory.clone());
        if let Err(taken) = grow(&mut held, value.len()) {
            return taken;
        }
        let mut slot = None;
        if coding != Coding::Identity {
            value = match unpack(coding, value, self.limits.max_bytes, &mut held, &mut slot).await {
                Ok(unpacked) => unpacked,
                Err(error) => return not_unpacked(&error),
            };
            is_shared = false;
        }
        let opening = Opening {
            signal: entry.signal(),
            encoding: route.encoding,
            max_elements: self.limits.max_elements,
            is_shared,
            attributes,
        };
        let opened = if slot.is_none() && value.len() <= opening.inline_bytes() {
            opening.open(value, &mut held)
        } else {
            let Ok(slot) = Slot::get_unless(&mut slot, &held).await else {
                return Taken::Later(SHORT_WAIT, "the processors are busy".to_owned());
            };
            let mut elsewhere = held.take();
            let opened = slot
                .run(move || (opening.open(value, &mut elsewhere), elsewhere))
                .await;
            let Ok((opened, back)) = opened else {
                return Taken::Never(Why::Invalid, "its check was broken off (a bug)".to_owned());
            };
            held = back;
            opened
        };
        match opened {
            Ok(checked) => push(entry, checked, held).await,
            Err(taken) => taken,
        }
    }
}

/// What becomes of a message that was not decompressed.
fn not_unpacked(error: &DecompressError) -> Taken {
    let why = error.to_string();
    match error {
        DecompressError::TooLarge { .. } => Taken::Never(Why::TooLarge, why),
        DecompressError::Corrupt(_) => Taken::Never(Why::Invalid, why),
        DecompressError::NeverFits { .. } => Taken::Never(Why::Memory, why),
        DecompressError::NoRoom(_) | DecompressError::Overloaded(_) => Taken::Later(SHORT_WAIT, why),
    }
}

async fn push(entry: &Entry, checked: Checked, mut held: Held) -> Taken {
    let Checked { encoded, weight, cut } = checked;
    let cut = cut.unwrap_or(0);
    if encoded.items() == 0 {
        entry.fail(cut);
        return Taken::Yes;
    }
    let mut slot = None;
    if weight > LIGHT_BYTES && entry.decodes() {
        if let Err(taken) = grow(&mut held, weight) {
            return taken;
        }
        match Slot::get(Some(&held)).await {
            Ok(free) => slot = Some(free),
            Err(_) => return Taken::Later(SHORT_WAIT, "the processors are busy".to_owned()),
        }
    }
    match entry.send_held(Batch::new(encoded), Some(held), slot).await {
        Ok(_) => {
            entry.fail(cut);
            Taken::Yes
        }
        Err(refused) => match refused.retry_after {
            Some(after) => Taken::Later(after, refused.reason),
            None => Taken::Never(Why::Refused, refused.reason),
        },
    }
}

/// Reserves memory; an error says whether a retry may help.
fn grow(held: &mut Held, bytes: usize) -> Result<(), Taken> {
    if held.try_grow(bytes).is_ok() {
        return Ok(());
    }
    let why = format!("the gateway has no memory for {bytes} bytes");
    Err(if held.could_ever_grow(bytes) {
        Taken::Later(SHORT_WAIT, why)
    } else {
        Taken::Never(Why::Memory, why)
    })
}

/// The check of a message.
struct Opening {
    signal: Signal,
    encoding: TelemetryEncoding,
    max_elements: usize,
    /// Whether the content is a slice of a larger buffer.
    is_shared: bool,
    attributes: Vec<(String, String)>,
}

impl Opening {
    fn inline_bytes(&self) -> usize {
        match self.encoding {
            TelemetryEncoding::OtlpProto => INLINE_BYTES,
            TelemetryEncoding::OtlpJson => INLINE_JSON_BYTES,
        }
    }

    fn open(&self, value: Bytes, held: &mut Held) -> Result<Checked, Taken> {
        let request = match self.encoding {
            TelemetryEncoding::OtlpJson => self.transcoded(&value, held)?,
            // The buffer would stay in memory as long as the request.
            TelemetryEncoding::OtlpProto if self.is_shared => Bytes::copy_from_slice(&value),
            TelemetryEncoding::OtlpProto => value,
        };
        let before = held.bytes();
        let mut refused = None;
        let checked = wire::weigh(self.signal, request, self.max_elements, |bytes| {
            refused = grow(held, bytes).err();
            refused.is_none()
        });
        held.shrink(held.bytes() - before);
        match (checked, refused) {
            (Ok(checked), _) => self.with_attributes(checked, held),
            (Err(CheckError::NoRoom(_)), Some(taken)) => Err(taken),
            (Err(error), _) => Err(Taken::Never(Why::Invalid, error.to_string())),
        }
    }

    fn transcoded(&self, value: &[u8], held: &mut Held) -> Result<Bytes, Taken> {
        let mut refused = None;
        let read = json::to_protobuf_within(self.signal, value, &mut |bytes| {
            refused = grow(held, bytes).err();
            refused.is_none()
        });
        match (read, refused) {
            (Ok(request), _) => {
                held.keep(request.len());
                Ok(request)
            }
            (Err(Unread::Wrong(error)), _) => Err(Taken::Never(Why::Invalid, error.to_string())),
            (Err(Unread::NoRoom(_)), refused) => Err(refused.unwrap_or_else(|| {
                Taken::Later(SHORT_WAIT, "the gateway has no memory for the message".to_owned())
            })),
        }
    }

    fn with_attributes(&self, checked: Checked, held: &mut Held) -> Result<Checked, Taken> {
        if self.attributes.is_empty() || checked.encoded.items() == 0 {
            return Ok(checked);
        }
        let added = room(&checked.encoded, &self.attributes);
        // The edits hold the attributes of all resources until the new request has them too.
        let needed = added.saturating_mul(2).saturating_add(checked.encoded.bytes());
        grow(held, needed)?;
        match annotate(&checked.encoded, &self.attributes) {
            Ok(encoded) => {
                held.shrink(added);
                let weight = checked.weight.saturating_add(added);
                Ok(Checked {
                    encoded,
                    weight,
                    ..checked
                })
            }
            Err(error) => Err(Taken::Never(Why::Invalid, error.to_string())),
        }
    }
}

#[cfg(test)]
pub(super) mod testing {
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
    use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
    use prost::Message;

    /// A message with this many log records of one resource.
    pub(in crate::receivers) fn logs(records: usize) -> Vec<u8> {
        let scope = ScopeLogs {
            log_records: vec![LogRecord::default(); records],
            ..Default::default()
        };
        let resource = ResourceLogs {
            scope_logs: vec![scope],
            ..Default::default()
        };
        let request = ExportLogsServiceRequest {
            resource_logs: vec![resource],
        };
        request.encode_to_vec()
    }
}
