// SPDX-License-Identifier: Apache-2.0

//! From a message to the pipelines.

use std::collections::HashMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tidegate_engine::{AttributeRef, AttributeValue, AttributesBuilder};
use tidegate_kafka::transport::{IncomingMessage, TelemetryEncoding};

use super::config::KafkaReceiverConfig;
use crate::batch::json::{self, Unread};
use crate::batch::wire::attributes::{AttributeSet, WireAttributes};
use crate::batch::wire::edit::{Editor, push_message};
use crate::batch::wire::proto::Fields;
use crate::batch::wire::walk::{self, HEADER, Header, Visitor};
use crate::batch::wire::{CheckError, Checked};
use crate::batch::{Batch, Encoded, Signal, wire};
use crate::component::worker::Slot;
use crate::component::{Entry, Held, ReceiverContext, Shared};

/// How long a message waits for memory or processors.
const SHORT_WAIT: Duration = Duration::from_secs(1);

/// Messages up to this size are checked on the spot: in protobuf they are only counted.
const INLINE_BYTES: usize = 1 << 20;

/// The same for JSON, which is parsed and encoded again.
const INLINE_JSON_BYTES: usize = 64 << 10;

/// The largest decoded size for inline work, in bytes.
const LIGHT_BYTES: usize = 2 << 20;

/// The bytes of an attribute beside its name and value: tags, lengths, and the messages around it.
const ATTRIBUTE_BYTES: usize = 32;

/// The field number of the resources of a request.
const RESOURCES: u32 = 1;

/// The field number of the attributes of a resource.
const ATTRIBUTES: u32 = 1;

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

/// Why a message is skipped: the reasons of `tidegate_kafka_skipped_messages_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Its batch can't be decoded, or is too large.
    Batch,
    /// It has no content.
    Empty,
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
            Self::Invalid => "invalid",
            Self::Memory => "memory",
            Self::Refused => "refused",
            Self::Busy => "busy",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Where the messages of a topic go.
struct Route {
    entry: Entry,
    encoding: TelemetryEncoding,
}

/// The way in for all topics.
pub(super) struct MessageDecoder {
    routes: HashMap<String, Route>,
    shared: Arc<Shared>,
    /// Headers that become resource attributes.
    headers: Vec<String>,
    max_elements: usize,
}

impl MessageDecoder {
    /// The way in; an error names a topic of several signals.
    pub(super) fn new(config: &KafkaReceiverConfig, cx: &ReceiverContext) -> Result<Self, String> {
        let mut routes = HashMap::new();
        for entry in cx.entries.iter().flatten() {
            let signal = entry.signal();
            for topic in config.topics(signal) {
                let route = Route {
                    entry: entry.clone(),
                    encoding: config.encoding(signal),
                };
                if routes.insert(topic.clone(), route).is_some() {
                    return Err(format!(
                        "the topic `{topic}` is read for more than one signal: name another topic"
                    ));
                }
            }
        }
        Ok(Self {
            routes,
            shared: cx.base.shared.clone(),
            headers: config.wanted_headers().to_vec(),
            max_elements: config.max_elements_per_item.get(),
        })
    }

    pub(super) fn topics(&self) -> Vec<String> {
        self.routes.keys().cloned().collect()
    }

    /// Counts messages of a topic that nobody could decode.
    pub(super) fn fail(&self, topic: &str, messages: usize) {
        if let Some(route) = self.routes.get(topic) {
            route.entry.fail(messages);
        }
    }

    /// Hands a message to the pipelines. A panic on the way ends the message, and not its partition.
    pub(super) async fn take(&self, message: &IncomingMessage) -> Taken {
        let mut taking = pin!(self.take_unguarded(message));
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

    async fn take_unguarded(&self, message: &IncomingMessage) -> Taken {
        let Some(route) = self.routes.get(&*message.place.topic) else {
            return Taken::Never(Why::Invalid, "no pipeline reads the topic".to_owned());
        };
        let Some(value) = message.value.clone().filter(|value| !value.is_empty()) else {
            return Taken::Never(Why::Empty, "the message has no content".to_owned());
        };
        let entry = &route.entry;
        let mut held = Held::under(entry.ceiling(), self.shared.memory.clone());
        if let Err(taken) = grow(&mut held, value.len()) {
            return taken;
        }
        let attributes = self.attributes(message);
        let opening = Opening {
            signal: entry.signal(),
            encoding: route.encoding,
            max_elements: self.max_elements,
            attributes,
        };
        let is_inline = value.len() <= opening.inline_bytes();
        let opened = if is_inline {
            opening.open(value, &mut held)
        } else {
            let Ok(slot) = Slot::get(Some(&held)).await else {
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

    /// The attributes of the headers that the message has.
    fn attributes(&self, message: &IncomingMessage) -> Vec<(String, String)> {
        let attribute = |name: &String| {
            let (_, value) = message.headers.iter().find(|(known, _)| known == name)?;
            let value = value.as_deref().unwrap_or_default();
            Some((
                format!("kafka.header.{name}"),
                String::from_utf8_lossy(value).into_owned(),
            ))
        };
        self.headers.iter().filter_map(attribute).collect()
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
            // The value is a slice of its decompressed batch, which would stay in memory as long as the request.
            TelemetryEncoding::OtlpProto => Bytes::copy_from_slice(&value),
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
        let each = self
            .attributes
            .iter()
            .map(|(name, value)| name.len() + value.len() + ATTRIBUTE_BYTES);
        let added = each.sum::<usize>().saturating_mul(resources(&checked.encoded));
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

/// The number of resources of a request. The walk takes no memory.
fn resources(encoded: &Encoded) -> usize {
    let of_part = |bytes| {
        let fields = Fields::new(bytes).map_while(Result::ok);
        fields.filter(|field| field.number == RESOURCES).count()
    };
    encoded.parts.iter().map(|part| of_part(&part.bytes)).sum()
}

/// Adds attributes to all resources.
fn annotate(encoded: &Encoded, attributes: &[(String, String)]) -> Result<Encoded, wire::WireError> {
    struct Annotating<'a>(&'a [(String, String)]);
    impl Visitor for Annotating<'_> {
        fn resource(&mut self, resource: &Header<'_>, editor: &mut Editor<'_>) -> bool {
            if let Some(at) = resource.missing_at {
                editor.insert(at, &encoded_resource(self.0));
                return true;
            }
            let mut set = WireAttributes::read(resource.message, ATTRIBUTES, editor);
            for (name, value) in self.0 {
                set.set(name, AttributeValue::from(value.clone()));
            }
            set.write(editor);
            true
        }
    }
    walk::edit(encoded, &mut Annotating(attributes))
}

/// A whole `resource` field.
fn encoded_resource(attributes: &[(String, String)]) -> Vec<u8> {
    let mut builder = AttributesBuilder::default();
    for (name, value) in attributes {
        builder.push(name, AttributeRef::Str(value));
    }
    let mut field = Vec::new();
    push_message(&mut field, HEADER, builder.finish().encoded());
    field
}
