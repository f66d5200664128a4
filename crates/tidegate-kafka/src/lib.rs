// SPDX-License-Identifier: Apache-2.0

//! The Kafka engine of a cluster of gateways: pages, claims, leases and retained totals are records of one compacted topic.
//!
//! Reads take all partitions from their beginnings, without a group and without stored offsets. Writes of claims, leases and
//! retained totals compare and set: each is a transaction that stops all earlier writers of its subject. Decision 0032 gives
//! the reasons.
//!
//! Only the module `client` knows the library for the protocol.

#![forbid(unsafe_code)]

mod broker_time;
mod client;
mod compare;
mod config;
mod engine;
mod page_index;
mod read;
mod record;
mod records;
mod session;
mod shared;
mod view;

pub use config::{KafkaConfig, KafkaError, KafkaSaslConfig, KafkaTlsConfig, SaslMechanism};
pub use engine::KafkaEngine;
