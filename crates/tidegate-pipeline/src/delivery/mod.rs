// SPDX-License-Identifier: Apache-2.0

//! Delivery: the common part of all pushing exporters. An exporter implements [`Attempt`], one try of its
//! protocol. [`Destination`] adds a queue, batching, retries, splitting, a drain and ledgers.
//!
//! All decisions are in [`machine`], which has no clock and no socket; `driver` runs it on tokio. A destination
//! reserves capacity in a [`capacity::QueueCapacity`] before any component commits, without the machine. With
//! storage, `spill` decides which batches are in memory and which on disk.

mod ack_guard;
pub mod backoff;
mod backpressure;
pub mod capacity;
pub mod config;
pub mod destination;
mod driver;
mod encoding_permit;
pub mod errors;
pub mod export_request;
mod gauges;
mod health;
pub mod http;
mod leadership;
pub mod machine;
mod notices;
pub mod outcome;
mod recovery;
pub mod response;
mod retry_on;
mod sent_form;
mod shape;
mod spill;
mod stored;
mod temporality;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use config::{Delivery, OnFull, QueueConfig, RetryConfig, StorageMode};
pub use destination::{Attempt, Destination};
pub use encoding_permit::EncodingPermit;
pub use encoding_permit::{INLINE_BYTES, apart};
pub use export_request::{AttemptState, BatchKey, ExportRequest};
pub use machine::Together;
pub use outcome::{Left, Loss, Outcome, Parts};
pub use retry_on::{RetryStatus, Speaks};
pub use sent_form::SentForm;
pub use shape::{NameRules, Shape};
pub use temporality::TemporalityChoice;
