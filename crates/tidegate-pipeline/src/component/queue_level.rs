// SPDX-License-Identifier: Apache-2.0

//! The fill level of the sending queues and the durations of sends, for pages about the gateway itself.

use std::sync::atomic::AtomicU64;

use super::send_times::SendTimes;
use crate::batch::Signal;

/// The level of a sending queue for one signal, in the unit of its `sizer`.
#[derive(Debug)]
pub struct QueueLevel {
    /// The exporter, as the gauges of the queue name it.
    pub exporter: String,
    /// The signal counted.
    pub signal: Signal,
    /// Data of the signal in the queue.
    pub used: AtomicU64,
    /// The limit of the queue minus the data of other signals.
    pub capacity: AtomicU64,
    /// Items of the signal that the queue refused because it was full. Their senders got a refusal.
    pub refused: AtomicU64,
    /// The durations of attempts to send data of the signal.
    pub sends: SendTimes,
}
