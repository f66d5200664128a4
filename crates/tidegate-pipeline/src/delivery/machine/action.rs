// SPDX-License-Identifier: Apache-2.0

//! The actions that the machine wants from its driver.

use std::sync::Arc;
use std::time::Duration;

use super::Load;
use crate::batch::{BatchMetrics, Trigger};
use crate::delivery::capacity::Permits;
use crate::delivery::outcome::Loss;

/// An action that the machine wants.
#[derive(Debug)]
pub enum Action<L: Load> {
    /// Start an attempt, and report its outcome under `id`.
    Send {
        /// The number of the attempt.
        id: u64,
        /// The data to send.
        load: L,
        /// Whether it is the first attempt to send it.
        is_first: bool,
    },
    /// Count a gathered request.
    Gathered {
        /// The metrics to count it in.
        metrics: Arc<BatchMetrics>,
        /// The reason to send it now.
        trigger: Trigger,
        /// The number of items.
        items: usize,
        /// The request itself, if the metrics count bytes.
        load: Option<L>,
    },
    /// Count items as delivered.
    Delivered {
        /// The key that selects the ledger.
        batch_key: L::BatchKey,
        /// The number of items.
        items: usize,
    },
    /// Count items as dropped.
    Dropped {
        /// The key that selects the ledger.
        batch_key: L::BatchKey,
        /// The number of items, and the reason.
        loss: Loss,
    },
    /// Keep a load for the next run. The ledger counts it as held.
    Kept {
        /// The remaining load.
        load: L,
        /// Its permits, with the guards of batches that are on disk already.
        permits: Permits,
    },
    /// Log that the peer accepted the items and added a message.
    Noted {
        /// The number of items.
        items: usize,
        /// The message of the peer, or a description of its odd answer.
        note: String,
    },
    /// Log that the peer denied access. An action about the items follows.
    Denied {
        /// The number of items.
        items: usize,
        /// Whether the items are sent again. If not, they are dropped.
        is_retried: bool,
        /// The message of the peer.
        why: String,
    },
    /// Log that an attempt failed and will be repeated.
    Retrying {
        /// The number of waiting items.
        items: usize,
        /// The delay before the retry.
        delay: Duration,
        /// The message of the peer.
        why: String,
    },
}
