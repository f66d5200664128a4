// SPDX-License-Identifier: Apache-2.0

//! Events: single measurements of one source, in columns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Attributes, Instrument, Lease, Resource, Scope, UnixNanos, clock};

/// Identifies a source for the life of the process; never reused, so state kept by it can't be mixed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(u64);

impl SourceId {
    /// A number that no source has had before.
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The source of events: a NIXL agent, a socket peer, a process's cell store.
#[derive(Clone, Debug)]
pub struct Source {
    /// Identity of this run of the source: a restart is a new one.
    pub id: SourceId,
    /// Resource of every event.
    pub resource: Arc<Resource>,
    /// Scope of every event.
    pub scope: Arc<Scope>,
    /// Point attributes of every event (for example `agent_name`, `hostname`).
    pub attributes: Attributes,
    /// Its sign of life: the receiver touches it whenever the source is seen to be there, and ends it when it is gone.
    pub lease: Arc<Lease>,
}

/// The metric that an event measures.
#[derive(Clone, Debug, PartialEq)]
pub struct EventKind {
    /// Metric name.
    pub name: Arc<str>,
    /// Free text.
    pub description: Arc<str>,
    /// UCUM unit.
    pub unit: Arc<str>,
    /// The instrument, which says how values combine.
    pub instrument: Instrument,
    /// Point attributes of this kind (for example `category`, `status`, StatsD tags).
    pub attributes: Attributes,
}

/// The kinds of a source; an event refers to its kind by index.
///
/// A source that learns names at run time sends a longer schema with the same beginning: an index never changes its
/// meaning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    /// Kinds by index.
    pub kinds: Vec<EventKind>,
}

/// The column of values.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Whole numbers (NIXL).
    U64(Vec<u64>),
    /// Doubles (sockets).
    F64(Vec<f64>),
}

impl Values {
    /// The number of values.
    pub fn len(&self) -> usize {
        match self {
            Self::U64(values) => values.len(),
            Self::F64(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value at `index` as a double.
    pub fn get(&self, index: usize) -> Option<f64> {
        match self {
            Self::U64(values) => values.get(index).map(|value| *value as f64),
            Self::F64(values) => values.get(index).copied(),
        }
    }
}

/// A batch of events of one source. All columns that are present have the same length.
#[derive(Clone, Debug)]
pub struct Events {
    /// The source that measured.
    pub source: Arc<Source>,
    /// The kinds of the source; every index in `kinds` is within it.
    pub schema: Arc<Schema>,
    /// Index into `schema.kinds`, one an event.
    pub kinds: Vec<u16>,
    /// The values.
    pub values: Values,
    /// When each event happened, where the producer says so.
    pub times: Option<Vec<UnixNanos>>,
    /// The number of measurements that each event stands for (StatsD sample rates). `None`: one each.
    pub weights: Option<Vec<f64>>,
    /// When the batch was taken in, by [`clock::now`]; [`Events::arrived`] is the same by the wall clock.
    pub observed: UnixNanos,
}

impl Events {
    /// The number of events.
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// When the batch was taken in, by the wall clock.
    pub fn arrived(&self) -> UnixNanos {
        clock::wall(self.observed)
    }

    /// When the event at this place happened, by the wall clock: when it was taken in, where its producer does not say.
    pub fn time(&self, at: usize) -> UnixNanos {
        let times = self.times.as_ref();
        let time = times.and_then(|times| times.get(at)).copied();
        time.unwrap_or_else(|| self.arrived())
    }

    /// The number of measurements that the event at this index stands for.
    pub fn weight(&self, at: usize) -> f64 {
        let weights = self.weights.as_ref();
        weights
            .and_then(|weights| weights.get(at))
            .copied()
            .unwrap_or(1.0)
    }

    /// The events at the places of which `keep` says so.
    pub(crate) fn select(&self, keep: impl Fn(usize) -> bool) -> Self {
        let wanted: Vec<usize> = (0..self.len()).filter(|at| keep(*at)).collect();
        fn pick<T: Copy>(column: &[T], wanted: &[usize]) -> Vec<T> {
            wanted.iter().filter_map(|at| column.get(*at).copied()).collect()
        }
        Self {
            source: self.source.clone(),
            schema: self.schema.clone(),
            kinds: pick(&self.kinds, &wanted),
            values: match &self.values {
                Values::U64(values) => Values::U64(pick(values, &wanted)),
                Values::F64(values) => Values::F64(pick(values, &wanted)),
            },
            times: self.times.as_ref().map(|times| pick(times, &wanted)),
            weights: self.weights.as_ref().map(|weights| pick(weights, &wanted)),
            observed: self.observed,
        }
    }
}
