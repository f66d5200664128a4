// SPDX-License-Identifier: Apache-2.0

//! Totals of cumulative streams, which several gateways may report for one sender.
//!
//! A sender behind a load balancer reports its total now to one gateway and now to another. If each gateway were the
//! producer, the merge would add up totals of one process. So the stream is the producer: its series says which stream it
//! is, and its start time says which life of the sender. Decision 0036 gives the reasons.

use std::cmp::Ordering;

use super::report::{drop_quantiles, is_total, rank};
use super::{MergeMode, ProducerId, RunReport};
use crate::{Data, Temporality, UnixNanos, Value};

/// The largest total that a stream has reported since one start time.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamTotal {
    /// When the total was true.
    pub time: UnixNanos,
    /// The total.
    pub value: Value,
}

impl StreamTotal {
    /// The total of a point. `None`: the value is not a total that only grows.
    pub fn new(time: UnixNanos, mut value: Value) -> Option<Self> {
        drop_quantiles(&mut value);
        is_total(&value).then_some(Self { time, value })
    }

    /// Whether points of this kind and start are totals of a stream. Without a start, two lives of a sender look alike.
    pub fn is_known_by(data: Data, start: UnixNanos) -> bool {
        let only_grows = match data {
            Data::Gauge | Data::Sum { monotonic: false, .. } => false,
            Data::Summary => true,
            _ => data.temporality() == Temporality::Cumulative,
        };
        only_grows && start > 0
    }

    /// Takes another total of the same stream and start. The larger total is the newer one, whatever the clocks say. The
    /// answer compares the value of `other` with the value so far.
    pub fn join(&mut self, other: Self) -> Ordering {
        let order = rank(&other.value, &self.value);
        if order.then(other.time.cmp(&self.time)).is_gt() {
            *self = other;
        }
        order
    }

    /// The report that merges. `producer` stands for the stream, and not for the gateway that reports it in its run
    /// `epoch`. All reports have one sequence, so the larger total wins.
    pub fn report(self, producer: ProducerId, epoch: UnixNanos, start: UnixNanos) -> RunReport {
        RunReport {
            producer,
            epoch,
            start,
            sequence: 0,
            time: self.time,
            mode: MergeMode::Add,
            value: self.value,
        }
    }
}
