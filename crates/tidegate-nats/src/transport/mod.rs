// SPDX-License-Identifier: Apache-2.0

//! Telemetry through streams of JetStream: a producer for the `nats` exporter and durable consumers for the `nats` receiver.

mod consumer;
mod consumer_config;
mod incoming;
mod options;
mod producer;
mod send_error;

pub use consumer::{DurableConsumer, MAX_MESSAGES, NatsReadError, Pull, TransportLink};
pub use consumer_config::{DeliverFrom, DurableOptions};
pub use incoming::{Acknowledgement, MessageKey, NatsMessageIn, ReplySubject};
pub use options::{NatsAuthConfig, SUBJECTS, StreamOptions, StreamStorage, check_name, check_subject};
pub use producer::{NatsDelivery, NatsMessageOut, NatsProducer, header_bytes, is_header};
pub use send_error::NatsSendError;
