// SPDX-License-Identifier: Apache-2.0

//! The NATS JetStream engine of a cluster.
//!
//! A cluster has one stream, which keeps the last message of each subject. A page is published with an acknowledgement, and
//! a record by compare-and-set on the sequence of its subject. A read is a pull consumer that begins with the last message
//! of each subject. If a read breaks off, the state machine begins it again.
//!
//! [`NatsEngine`] makes a new connection after each loss, and checks the stream before it says so.
//!
//! [`transport`] has the clients of the `nats` exporter and receiver.

#![forbid(unsafe_code)]

mod codec;
mod config;
mod connection;
mod engine;
mod link;
mod read;
mod session;
mod shared;
mod store_clock;
mod stream;
pub mod transport;
mod write;

pub use config::{NatsConfig, NatsError, NatsTlsConfig};
pub use connection::NatsConnection;
pub use engine::NatsEngine;
