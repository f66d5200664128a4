// SPDX-License-Identifier: Apache-2.0

//! Telemetry through topics: a producer for the `kafka` exporter and a member of a group for the `kafka` receiver.
//!
//! Keys go to the partitions that the OpenTelemetry Collector gives them.

mod member;
mod options;
mod ownership;
mod partitioner;
mod producer;
mod send_error;

pub use member::{Assignor, GroupError, GroupMember, GroupOptions, IncomingMessage, Polled, Waker};
pub use options::{KafkaAuthConfig, PlainTextConfig, TOPICS};
pub use ownership::{Marks, PartitionKey};
pub use partitioner::KeyHasher;
pub use producer::{Codec, Delivery, OutgoingMessage, ProducerOptions, RequiredAcks, TransportProducer};
pub use send_error::SendError;
