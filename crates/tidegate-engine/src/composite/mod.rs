//! Composites: declared derived values over a window, readable at any instant.
//!
//! A value counts when it arrives: windows are cut by the gateway's clock, so that they compare across sources whose
//! clocks differ.

mod feed;
mod group;
mod observe;
mod sketch;
mod threshold;
mod window;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

pub use feed::{Added, Distribution, Feed};
use group::Group;
pub use observe::CompositeSet;
use observe::{PointStream, SourceKinds};
pub use threshold::{Gate, Side, Threshold};
use window::Cut;

use crate::key::{Key, KeyMap};
use crate::lease::nanos;
use crate::rule::overflow_attributes;
use crate::streams::{Streams, Sweep, lock};
use crate::trust::State;
use crate::{
    AttributeFilter, Attributes, Data, Grouping, Lease, Metric, Pattern, Quantile, Reading, Series, SourceId,
    UnixNanos, Value,
};

/// What a composite computes over its window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Function {
    /// The smallest value.
    Min,
    /// The mean of all values.
    Avg,
    /// The largest value.
    Max,
    /// The sum of all values.
    Sum,
    /// How many values.
    Count,
    /// The sum of all values, per second.
    Rate,
    /// The newest value.
    Last,
    /// The value of this rank, 0 to 1, at most 1.1 % off (of histograms: within their buckets).
    Quantile(f64),
}

/// What a composite shows of a group that is stale or absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStale {
    /// No value; a query that comes to nothing because of it fails.
    #[default]
    Error,
    /// The last value there was.
    Last,
    /// No value, and a query that comes to nothing because of it says so.
    Empty,
}

impl Function {
    /// The name in configuration and answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Avg => "avg",
            Self::Max => "max",
            Self::Sum => "sum",
            Self::Count => "count",
            Self::Rate => "rate",
            Self::Last => "last",
            Self::Quantile(_) => "quantile",
        }
    }
}

/// A declared derived value.
#[derive(Clone, Debug)]
pub struct Declaration {
    /// Name of the composite and of the gauge it is exported as.
    pub name: Arc<str>,
    /// Free text for people.
    pub description: Arc<str>,
    /// Which metrics it looks at.
    pub metric: Pattern,
    /// Which of their points.
    pub attributes: AttributeFilter,
    /// What it computes.
    pub function: Function,
    /// Over how long.
    pub window: Duration,
    /// Ranks, 0 to 1, whose values are told beside the value.
    pub quantiles: Arc<[f64]>,
    /// What is shown of a group that is stale or absent.
    pub on_stale: OnStale,
    /// Attributes that make groups; `Keep` groups by all attributes of the points.
    pub grouping: Grouping,
    /// Groups beyond this many go to one with `otel.metric.overflow=true`.
    pub max_groups: usize,
    /// How long a source of points that sends nothing counts as alive. (Sources of events have leases of their own.)
    pub lease: Duration,
}

impl Declaration {
    /// Whether it needs the distribution of the values.
    fn is_sketched(&self) -> bool {
        !self.quantiles.is_empty() || matches!(self.function, Function::Quantile(_))
    }
}

/// What a composite says about one group at an instant.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The group.
    pub attributes: Attributes,
    /// The value, where there is one: `sum`, `count` and `rate` of an idle group are 0, everything else needs values.
    pub value: Option<f64>,
    /// How many values the window holds.
    pub count: f64,
    /// Sum of the values in the window.
    pub sum: f64,
    /// Smallest value in the window.
    pub min: Option<f64>,
    /// Largest value in the window.
    pub max: Option<f64>,
    /// Mean of the values in the window.
    pub avg: Option<f64>,
    /// The values of the declared ranks, in that order.
    pub quantiles: Vec<Quantile>,
    /// Newest value in the window.
    pub last: Option<f64>,
    /// The declared window.
    pub window: Duration,
    /// Since when there was no newer value; `None` when there never was one.
    pub age: Option<Duration>,
    /// How far it can be trusted.
    pub state: State,
    /// Sources that have fed this group and have not ended.
    pub sources_expected: usize,
    /// Those of them that are alive.
    pub sources_reporting: usize,
}

/// How long a group whose sources are all overdue can still be asked for.
const MEMORY: Duration = Duration::from_secs(600);

/// Streams of points that one composite follows; points of further ones are not seen (and counted).
const MAX_STREAMS: usize = 100_000;

/// A declared derived value with its state.
#[derive(Debug)]
pub struct Composite {
    declaration: Declaration,
    cut: Cut,
    metric: Arc<Metric>,
    groups: RwLock<Groups>,
    streams: Streams<PointStream>,
    /// Signs of life of the sources of points, by resource.
    leases: Mutex<KeyMap<Arc<Lease>>>,
    sources: Mutex<HashMap<SourceId, SourceKinds>>,
    version: AtomicU64,
    overflowed: AtomicU64,
    unseen: AtomicU64,
}

type SharedGroup = Arc<Mutex<Group>>;

#[derive(Debug, Default)]
struct Groups {
    index: KeyMap<SharedGroup>,
    list: Vec<SharedGroup>,
}

impl Composite {
    /// Without any values yet.
    pub fn new(declaration: Declaration) -> Self {
        let metric = Metric {
            name: declaration.name.clone(),
            description: declaration.description.clone(),
            unit: "".into(),
            data: Data::Gauge,
            metadata: Attributes::default(),
        };
        Self {
            cut: Cut::of(declaration.window),
            metric: Arc::new(metric),
            declaration,
            groups: RwLock::default(),
            streams: Streams::new(MAX_STREAMS, nanos(MEMORY)),
            leases: Mutex::default(),
            sources: Mutex::default(),
            version: AtomicU64::new(0),
            overflowed: AtomicU64::new(0),
            unseen: AtomicU64::new(0),
        }
    }

    /// What was declared.
    pub fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    /// Changes whenever a value came or a group went. (Answers also change by time alone: when a sub-window leaves the
    /// window, or a lease runs out.)
    pub fn version(&self) -> u64 {
        self.version.load(Relaxed)
    }

    /// How many groups found no place of their own and share the overflow group.
    pub fn overflowed_groups(&self) -> u64 {
        self.overflowed.load(Relaxed)
    }

    /// How many points were not seen because they belong to more streams than can be followed.
    pub fn unseen_points(&self) -> u64 {
        self.unseen.load(Relaxed)
    }

    /// One answer a group, in the order in which groups came up; a single `absent` one where there are none.
    pub fn read(&self, now: UnixNanos) -> Vec<Answer> {
        let answers: Vec<Answer> = self
            .groups()
            .iter()
            .map(|group| lock(group).answer(&self.declaration, self.cut, now))
            .collect();
        match answers.is_empty() {
            true => vec![self.absent()],
            false => answers,
        }
    }

    fn absent(&self) -> Answer {
        Answer {
            attributes: Attributes::default(),
            value: None,
            count: 0.0,
            sum: 0.0,
            min: None,
            max: None,
            avg: None,
            quantiles: Vec::new(),
            last: None,
            window: self.declaration.window,
            age: None,
            state: State::Absent,
            sources_expected: 0,
            sources_reporting: 0,
        }
    }

    /// Shows every group that has a value as a gauge.
    pub fn show(&self, now: UnixNanos, each: &mut dyn FnMut(Reading<'_>)) {
        for group in self.groups() {
            let (series, answer) = {
                let mut group = lock(&group);
                (
                    group.series.clone(),
                    group.answer(&self.declaration, self.cut, now),
                )
            };
            if let Some(value) = answer.value {
                each(Reading {
                    series: &series,
                    start: 0,
                    time: now,
                    value: &Value::Double(value),
                    exemplars: &[],
                });
            }
        }
    }

    /// Lets go sources and groups that are long gone. Call it about once a second.
    pub fn expire(&self, now: UnixNanos) {
        let memory = nanos(MEMORY);
        let forgotten = |lease: &Lease| now.saturating_sub(lease.touched()) > memory;
        lock(&self.sources).retain(|_, kinds| !kinds.lease.is_ended() && !forgotten(&kinds.lease));
        lock(&self.leases).retain(|_, lease| !forgotten(lease));
        let is_overdue = |seen| now.saturating_sub(seen) > memory;
        self.streams
            .expire(now, |_, seen, _| Sweep::forget_if(is_overdue(seen)));
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        groups.list.iter().for_each(|group| lock(group).prune(forgotten));
        // Two references are the index and the list: nothing feeds it any more.
        let over = |group: &SharedGroup| Arc::strong_count(group) == 2 && lock(group).is_over(now);
        let keep: Vec<bool> = groups.list.iter().map(|group| !over(group)).collect();
        if keep.contains(&false) {
            self.version.fetch_add(1, Relaxed);
            let mut kept = keep.iter();
            groups.list.retain(|_| kept.next().copied().unwrap_or(true));
            groups.index.retain(|_, group| Arc::strong_count(group) > 1);
        }
    }

    fn groups(&self) -> Vec<SharedGroup> {
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        groups.list.clone()
    }

    /// The group of these attributes, or the overflow group.
    fn group(&self, attributes: Attributes) -> SharedGroup {
        let key = Key::of_value(&attributes);
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = groups.index.get(&key) {
            return group.clone();
        }
        let overflow = overflow_attributes();
        if groups.list.len() >= self.declaration.max_groups && attributes != overflow {
            self.overflowed.fetch_add(1, Relaxed);
            drop(groups);
            return self.group(overflow);
        }
        let series = Series {
            resource: Arc::default(),
            scope: Arc::default(),
            metric: self.metric.clone(),
            attributes,
        };
        let group = Arc::new(Mutex::new(Group::new(
            Arc::new(series),
            self.cut,
            self.declaration.is_sketched(),
        )));
        groups.index.insert(key, group.clone());
        groups.list.push(group.clone());
        group
    }
}

#[cfg(test)]
mod tests;
