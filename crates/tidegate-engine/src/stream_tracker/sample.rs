// SPDX-License-Identifier: Apache-2.0

//! A point as input of a stream tracker, and the reasons for a refusal.

use crate::{Exemplar, UnixNanos, Value};

/// A point of a known series, by reference.
#[derive(Clone, Copy, Debug)]
pub struct PointSample<'a> {
    /// Start of the interval that the value covers; 0 = unknown.
    pub start: UnixNanos,
    /// When the value was true.
    pub time: UnixNanos,
    /// The value.
    pub value: &'a Value,
    /// Example measurements that the value includes.
    pub exemplars: &'a [Exemplar],
}

/// The reason why a state refuses a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Rejection {
    /// The stream has a point that is as new or newer.
    Late,
    /// The stream has this point already: nothing is lost.
    Duplicate,
    /// The value breaks the data model (a monotonic sum that is negative or not finite, unsound buckets).
    Invalid,
    /// The rule can't combine the value in the way it asks for.
    Unsupported,
    /// A cardinality cap; even the overflow series has no room.
    Limit,
    /// Its time is too far ahead of the gateway's clock.
    Future,
    /// The sum or histogram is neither delta nor cumulative.
    NoTemporality,
}

/// For the sender of the point.
impl std::fmt::Display for Rejection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Late => "not newer than the previous point",
            Self::Duplicate => "already received",
            Self::Invalid => "the value breaks the rules of its kind of metric",
            Self::Unsupported => "the value can't be combined as configured",
            Self::Limit => "there are too many series",
            Self::Future => "its time lies too far ahead of the gateway's clock",
            Self::NoTemporality => {
                "it has no temporality: the sender must set `aggregation_temporality` to delta (1) or \
                 cumulative (2)"
            }
        })
    }
}

impl Rejection {
    /// All of them, in the order of their counters.
    pub const ALL: [Self; 7] = [
        Self::Late,
        Self::Duplicate,
        Self::Invalid,
        Self::Unsupported,
        Self::Limit,
        Self::Future,
        Self::NoTemporality,
    ];
}
