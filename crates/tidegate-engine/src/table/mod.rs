//! Tables: the one place where series live.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{Exemplar, Series, UnixNanos, Value};

/// A series as a reader of a table sees it.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// Which series.
    pub series: &'a Arc<Series>,
    /// Start of the interval that the value covers; 0 = unknown.
    pub start: UnixNanos,
    /// When the value last changed or was confirmed.
    pub time: UnixNanos,
    /// The value; sums and histograms are cumulative.
    pub value: &'a Value,
    /// The latest exemplars.
    pub exemplars: &'a [Exemplar],
}

/// State by output identity.
#[derive(Debug)]
pub struct Table {
    owner: Arc<str>,
    version: AtomicU64,
}

impl Table {
    /// The component that writes it (`processors::aggregate@metrics/vendor`).
    pub fn owner(&self) -> &Arc<str> {
        &self.owner
    }

    /// Shows every live series to `each`, those of attached composites too. Holds no lock for longer than a bounded
    /// run of series; `each` must not call this table.
    pub fn read(&self, _now: UnixNanos, _each: &mut dyn FnMut(Reading<'_>)) {}

    /// Changes whenever a series came, went or got another value.
    pub fn version(&self) -> u64 {
        self.version.load(Relaxed)
    }
}
