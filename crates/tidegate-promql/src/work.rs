// SPDX-License-Identifier: Apache-2.0

//! The work of a query.

use std::time::Duration;

/// The work of a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Samples that its selectors saw, at every step again. A native histogram counts as one and its filled buckets.
    pub seen: usize,
    /// Samples counted towards the limit of a query.
    pub counted: usize,
    /// The time to fetch the samples of the selectors.
    pub preparation: Duration,
    /// The time to evaluate.
    pub evaluation: Duration,
    /// The time to put the answer in order.
    pub sorting: Duration,
}
