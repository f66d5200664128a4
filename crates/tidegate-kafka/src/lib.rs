// SPDX-License-Identifier: Apache-2.0

//! The Kafka engine of a cluster of gateways: pages, claims, leases and retained totals are records of one compacted topic.
//!
//! Reads take all partitions from their beginnings, without a group and without stored offsets. Writes of claims, leases and
//! retained totals compare and set: each is a transaction that stops all earlier writers of its subject. Decision 0032 gives
//! the reasons.
//!
//! [`transport`] is another matter: it carries telemetry through topics, for the `kafka` exporter and the `kafka` receiver.
//!
//! Only the modules `client` and `transport` know the library for the protocol.

#![forbid(unsafe_code)]

mod broker_time;
mod client;
mod compare;
mod config;
mod connection;
mod engine;
mod page_index;
mod read;
mod record;
mod records;
mod session;
mod shared;
pub mod transport;
mod view;

pub use config::{KafkaConfig, KafkaError, KafkaSaslConfig, KafkaTlsConfig, SaslMechanism, check_topic};
pub use connection::{Connection, SHOWN_SECRET};
pub use engine::KafkaEngine;
