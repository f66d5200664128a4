// SPDX-License-Identifier: Apache-2.0

//! Names of producers, and the subjects under which a store keeps messages.

use std::fmt::Write;
use std::sync::{Arc, LazyLock};

use tidegate_engine::{ProducerId, Series, UnixNanos, partition_id};

/// The most bytes of a name, which is the limit for names of Kubernetes nodes.
pub const MAX_NAME_BYTES: usize = 253;

/// The most bytes of a subject: two names with every byte escaped, and the other tokens.
const MAX_SUBJECT_BYTES: usize = 2 * 3 * MAX_NAME_BYTES + 64;

/// The first bytes of the names that stand for streams.
const STREAMS: &str = "tidegate.streams.";

/// Why a text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is empty.
    #[error("the name is empty: give the producer a name")]
    Empty,
    /// It is too long.
    #[error("the name has {0} bytes: the limit is {MAX_NAME_BYTES} bytes")]
    TooLong(usize),
    /// It stands for streams.
    #[error("names that begin with `{STREAMS}` stand for streams: give the producer another name")]
    Reserved,
}

/// The name of a producer. It stays the same over restarts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerName(Arc<str>);

impl ProducerName {
    /// A name of 1 to [`MAX_NAME_BYTES`] bytes.
    ///
    /// # Errors
    /// The text is empty or too long.
    pub fn new(name: &str) -> Result<Self, NameError> {
        match name.len() {
            0 => Err(NameError::Empty),
            1..=MAX_NAME_BYTES => Ok(Self(name.into())),
            length => Err(NameError::TooLong(length)),
        }
    }

    /// The name of a gateway.
    ///
    /// # Errors
    /// The text is not a name, or it is one that stands for streams.
    pub fn of_gateway(name: &str) -> Result<Self, NameError> {
        if name.starts_with(STREAMS) {
            return Err(NameError::Reserved);
        }
        Self::new(name)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id of the producer, which every process computes from its name.
    pub fn id(&self) -> ProducerId {
        let digest = ring::digest::digest(&ring::digest::SHA256, self.0.as_bytes());
        let mut id = [0; 16];
        let length = id.len();
        id.copy_from_slice(&digest.as_ref()[..length]);
        ProducerId(id)
    }
}

/// A producer that stands for a part of all streams, whatever gateways report them. A stream keeps its part in all
/// processes, so all replicas merge its reports, and one record has the totals of its ended lives.
#[derive(Debug)]
pub(crate) struct StreamProducer {
    pub(crate) name: ProducerName,
    pub(crate) id: ProducerId,
}

static STREAM_PRODUCERS: LazyLock<[StreamProducer; 256]> = LazyLock::new(|| {
    std::array::from_fn(|part| {
        let name = ProducerName(format!("{STREAMS}{part:02x}").into());
        StreamProducer { id: name.id(), name }
    })
});

impl StreamProducer {
    /// All of them.
    pub(crate) fn all() -> &'static [Self] {
        &*STREAM_PRODUCERS
    }

    /// The producer of the stream of a series. Partitions are by the lowest bits of the same number.
    pub(crate) fn of(series: &Series) -> &'static Self {
        let [part, ..] = partition_id(series).to_be_bytes();
        &STREAM_PRODUCERS[usize::from(part)]
    }
}

/// One run of a producer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunName {
    /// The producer.
    pub producer: ProducerName,
    /// The number of the run, which no other run of the producer has.
    pub epoch: UnixNanos,
}

impl RunName {
    /// The subjects of all its pages, with the wildcards of NATS.
    pub fn filter(&self, cluster: &str) -> String {
        let producer = escaped(self.producer.as_str());
        format!("tg.{}.p.*.{producer}.{}.*", escaped(cluster), self.epoch)
    }
}

/// The place of a message in the store. The store keeps the last message of each subject.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A page of a run.
    Page {
        /// The partition of its series.
        partition: u16,
        /// The run.
        run: RunName,
        /// The number of the page. Page 0 is the heartbeat.
        page: u32,
    },
    /// The retained totals of the ended runs of a producer.
    Retained {
        /// The partition of the series.
        partition: u16,
        /// The producer.
        producer: ProducerName,
    },
    /// The newest epoch of a producer.
    Producer(ProducerName),
    /// The lease of the leader.
    Leader,
    /// The number of partitions of the cluster.
    Partitions,
    /// The replica that has exported the newest deltas.
    Deltas,
}

impl Subject {
    /// The subject as text. Bytes of names other than letters, digits, `-` and `_` are escaped.
    pub fn text(&self, cluster: &str) -> String {
        let cluster = escaped(cluster);
        match self {
            Self::Page { partition, run, page } => {
                let producer = escaped(run.producer.as_str());
                format!("tg.{cluster}.p.{partition:02}.{producer}.{}.{page}", run.epoch)
            }
            Self::Retained { partition, producer } => {
                format!("tg.{cluster}.r.{partition:02}.{}", escaped(producer.as_str()))
            }
            Self::Producer(producer) => format!("tg.{cluster}.k.producers.{}", escaped(producer.as_str())),
            Self::Leader => format!("tg.{cluster}.k.leader"),
            Self::Partitions => format!("tg.{cluster}.k.partitions"),
            Self::Deltas => format!("tg.{cluster}.k.deltas"),
        }
    }

    /// The subject that this text stands for; `None`: it is not a subject of this cluster. A subject has one spelling only.
    pub fn parse(cluster: &str, text: &str) -> Option<Self> {
        if text.len() > MAX_SUBJECT_BYTES {
            return None;
        }
        let mut tokens = text.split('.').skip(2);
        let subject = match tokens.next()? {
            "p" => Self::Page {
                partition: tokens.next()?.parse().ok()?,
                run: RunName {
                    producer: unescaped(tokens.next()?)?,
                    epoch: tokens.next()?.parse().ok()?,
                },
                page: tokens.next()?.parse().ok()?,
            },
            "r" => Self::Retained {
                partition: tokens.next()?.parse().ok()?,
                producer: unescaped(tokens.next()?)?,
            },
            "k" => match tokens.next()? {
                "producers" => Self::Producer(unescaped(tokens.next()?)?),
                "partitions" => Self::Partitions,
                "deltas" => Self::Deltas,
                _ => Self::Leader,
            },
            _ => return None,
        };
        (subject.text(cluster) == text).then_some(subject)
    }

    /// The subject that this text stands for in the cluster that it names.
    pub fn parse_any(text: &str) -> Option<Self> {
        let cluster = text.split('.').nth(1)?;
        Self::parse(unescaped(cluster)?.as_str(), text)
    }

    /// The producer, if it has one.
    pub fn producer(&self) -> Option<&ProducerName> {
        match self {
            Self::Page { run, .. } => Some(&run.producer),
            Self::Retained { producer, .. } | Self::Producer(producer) => Some(producer),
            Self::Leader | Self::Partitions | Self::Deltas => None,
        }
    }
}

fn escaped(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            escaped.push(char::from(byte));
        } else {
            // A write to a string does not fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

fn unescaped(token: &str) -> Option<ProducerName> {
    let mut bytes = Vec::with_capacity(token.len());
    let mut rest = token.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    ProducerName::new(std::str::from_utf8(&bytes).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn subject() -> impl Strategy<Value = Subject> {
        let name = || "\\PC{1,20}".prop_map(|name| ProducerName::new(&name).unwrap());
        prop_oneof![
            (any::<u16>(), name(), any::<u64>(), any::<u32>()).prop_map(
                |(partition, producer, epoch, page)| {
                    Subject::Page {
                        partition,
                        run: RunName { producer, epoch },
                        page,
                    }
                }
            ),
            (any::<u16>(), name())
                .prop_map(|(partition, producer)| Subject::Retained { partition, producer }),
            name().prop_map(Subject::Producer),
            Just(Subject::Leader),
            Just(Subject::Partitions),
            Just(Subject::Deltas),
        ]
    }

    proptest! {
        #[test]
        fn a_subject_survives_its_text(cluster in "\\PC{1,10}", subject in subject()) {
            let text = subject.text(&cluster);
            prop_assert!(!text.contains([' ', '*', '>']));
            prop_assert_eq!(Subject::parse(&cluster, &text), Some(subject));
            prop_assert_eq!(Subject::parse("another one", &text), None);
            prop_assert_eq!(Subject::parse_any(&text).map(|any| any.text(&cluster)), Some(text));
        }

        #[test]
        fn any_text_is_a_subject_or_none(text in "(tg\\.c\\.[prk]\\.)?[a-z0-9.%+]{0,30}") {
            if let Some(subject) = Subject::parse("c", &text) {
                prop_assert_eq!(subject.text("c"), text);
            }
        }
    }

    #[test]
    fn a_subject_has_the_tokens_of_the_design() {
        let producer = ProducerName::new("node-1.example").unwrap();
        let run = RunName {
            producer: producer.clone(),
            epoch: 7,
        };
        let page = Subject::Page {
            partition: 3,
            run: run.clone(),
            page: 2,
        };
        assert_eq!(page.text("prod a"), "tg.prod%20a.p.03.node-1%2Eexample.7.2");
        assert_eq!(run.filter("c"), "tg.c.p.*.node-1%2Eexample.7.*");
        let retained = Subject::Retained {
            partition: 3,
            producer,
        };
        assert_eq!(retained.text("c"), "tg.c.r.03.node-1%2Eexample");
    }

    #[test]
    fn names_have_a_length() {
        assert_eq!(ProducerName::new(""), Err(NameError::Empty));
        assert_eq!(ProducerName::new(&"x".repeat(254)), Err(NameError::TooLong(254)));
    }

    #[test]
    fn no_gateway_has_the_name_of_a_part_of_the_streams() {
        let series = crate::testing::series("hits", crate::testing::COUNTER);
        let producer = StreamProducer::of(&series);
        assert_eq!(producer.id, producer.name.id());
        assert_eq!(
            ProducerName::of_gateway(producer.name.as_str()),
            Err(NameError::Reserved)
        );
        assert!(
            ProducerName::new(producer.name.as_str()).is_ok(),
            "records have it"
        );
        let ids: std::collections::BTreeSet<_> = StreamProducer::all().iter().map(|one| one.id).collect();
        assert_eq!(ids.len(), 256);
    }
}
