//! Delivery: what every pushing exporter shares. An exporter implements [`Attempt`] (one try of its protocol);
//! [`Destination`] makes of it a consumer with a queue, batching, retries, splitting, a drain and books.
//!
//! Everything that decides is in [`machine`], which knows no clock and no socket; [`destination`] runs it on tokio.
//! Room is set aside in a [`room::Room`] before anybody commits, without the machine.

pub mod backoff;
pub mod config;
pub mod destination;
pub mod machine;
mod notices;
pub mod outcome;
pub mod parcel;
pub mod room;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use config::{Delivery, OnFull, QueueConfig, RetryConfig};
pub use destination::{Attempt, Destination};
pub use outcome::{Loss, Outcome};
pub use parcel::{Lane, Parcel};
