// SPDX-License-Identifier: Apache-2.0

//! Composites: declared derived values over a window, readable at any instant.
//!
//! A value counts at its arrival: the gateway's clock divides windows, so that they compare across sources with
//! different clocks.

mod across;
mod coverage;
#[cfg(feature = "tables")]
mod export;
mod expression;
mod feed;
mod group;
mod group_limits;
mod groups;
mod member;
#[cfg(feature = "tables")]
mod merged;
#[cfg(feature = "tables")]
mod observe;
mod plan;
mod published;
#[cfg(feature = "tables")]
mod saved;
#[cfg(feature = "tables")]
mod silent;
mod sketch;
mod slab;
mod source;
#[cfg(feature = "tables")]
mod sub_window;
mod threshold;
mod window;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

#[cfg(feature = "tables")]
pub use self::{
    export::Unshareable,
    merged::{
        MergedWindows, ProducerRun, SubWindowOutcome, SubWindowRefused, WindowMergeLimits, WindowRefusals,
    },
    observe::CompositeSet,
    saved::SavedWindows,
    silent::{SilenceReason, SilentSource, SilentSources},
    sub_window::SubWindow,
};
pub use across::Across;
pub use expression::{DataQuality, Evaluated, Expression};
pub use feed::{Added, Distribution, Feed, FeedKind};
use group_limits::GroupLimits;
use groups::{Groups, SharedGroup};
pub use threshold::{Direction, Hysteresis, Threshold};
use window::Cut;

use crate::chunks::lock;
use crate::freshness::Freshness;
use crate::{
    AttributeFilter, Attributes, Data, Grouping, MatchTracker, Metric, Pattern, Quantile, Reading, Series,
    UnixNanos, Value, clock,
};

/// The function that a composite computes over its window, of each series or of all observations together: see
/// [`Across`].
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
    /// The number of values.
    Count,
    /// The sum of all values, per second.
    Rate,
    /// The newest value.
    Last,
    /// The value of this rank, 0 to 1, at most 1.1 % off (of histograms: within their buckets).
    Quantile(f64),
}

/// The output of a composite for a group that is stale or absent.
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

    /// Whether it is 0 where nothing happens.
    fn is_additive(self) -> bool {
        matches!(self, Self::Sum | Self::Count | Self::Rate)
    }
}

/// A declared derived value.
#[derive(Clone, Debug, PartialEq)]
pub struct Declaration {
    /// Name of the composite and of the gauge it is exported as.
    pub name: Arc<str>,
    /// Free text for people.
    pub description: Arc<str>,
    /// The metrics that it selects.
    pub metric: Pattern,
    /// The filter of their points.
    pub attributes: AttributeFilter,
    /// The expression that it is computed from. With one, `metric` selects only the sources that decide its state.
    pub expression: Option<Expression>,
    /// The function that it computes.
    pub function: Function,
    /// The reduction of the series of a group to one value. `None`: observed values are pooled, and a group with
    /// several gauges has no value.
    pub across: Option<Across>,
    /// Over how long.
    pub window: Duration,
    /// Ranks, 0 to 1, whose values it reports beside the value.
    pub quantiles: Arc<[f64]>,
    /// The output for a group that is stale or absent.
    pub on_stale: OnStale,
    /// Attributes that make groups; `Keep` groups by all attributes of the points.
    pub grouping: Grouping,
    /// Groups beyond this many go to one with `otel.metric.overflow=true`.
    pub max_groups: usize,
    /// The lease of a source of points: a silent source counts as alive for this long. `None`: its own cadence decides.
    /// (Sources of events have leases of their own.)
    pub lease: Option<Duration>,
}

impl Declaration {
    /// Whether it needs the distribution of the values.
    fn is_sketched(&self) -> bool {
        !self.quantiles.is_empty() || matches!(self.function, Function::Quantile(_))
    }

    /// Whether each series has a value of its own.
    fn is_by_series(&self) -> bool {
        !matches!(self.across, None | Some(Across::Pool))
    }

    /// The error of a value if several processes report `interleaved` series as one. Their levels are added up, so that
    /// only sums are right.
    fn collision(&self, interleaved: usize) -> Option<Arc<str>> {
        let tells_apart = match self.across? {
            Across::Sum | Across::Pool => false,
            Across::Avg | Across::Min | Across::Max | Across::Count | Across::Quantile(_) => true,
        };
        (interleaved > 0 && tells_apart).then(|| {
            let text = "several processes report as one series, which counts once";
            format!("{text} (series: {interleaved}): give each process its own `service.instance.id`").into()
        })
    }

    /// The reason why gauges of this name make no value; `None`: they do.
    pub fn refusal(&self, metric: &str) -> Option<String> {
        let (name, function) = (&self.name, self.function.name());
        if self.function.is_additive() {
            return Some(format!(
                "`{name}`: `function: {function}` adds up the samples of the gauge `{metric}` over time; use `last`, \
                 `avg`, `min`, `max` or `quantile`, and `across: sum` for the sum of the series"
            ));
        }
        (self.across == Some(Across::Pool)).then(|| {
            format!(
                "`{name}`: `across: pool` mixes the samples of the gauge `{metric}`; set `across` to sum, avg, min, max, \
                 count or quantile"
            )
        })
    }
}

/// The answer of a composite for one group at an instant.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The group.
    pub attributes: Attributes,
    /// The value, where there is one: `sum`, `count` and `rate` of an idle group are 0, everything else needs values.
    pub value: Option<f64>,
    /// The number of values in the window. With `across`, all statistics are of the values of the series. A group that
    /// is stale or absent has no statistics: `count` and `sum` are 0 then.
    pub count: f64,
    /// Sum of these values.
    pub sum: f64,
    /// The smallest.
    pub min: Option<f64>,
    /// The largest.
    pub max: Option<f64>,
    /// Their mean.
    pub avg: Option<f64>,
    /// The values of the declared ranks, in that order.
    pub quantiles: Vec<Quantile>,
    /// Newest value in the window.
    pub last: Option<f64>,
    /// The declared window.
    pub window: Duration,
    /// The time since the newest value; `None` if there never was one.
    pub age: Option<Duration>,
    /// Its freshness.
    pub state: Freshness,
    /// Sources that have fed this group and have not ended.
    pub sources_expected: usize,
    /// The number of expected sources that are alive.
    pub sources_reporting: usize,
    /// Whether the group had scrape targets, and every one has left discovery.
    pub has_left: bool,
    /// The reason why the composite has no value: its declaration does not suit the data.
    pub error: Option<Arc<str>>,
    /// The living series or groups that are omitted: others have their name and labels, or they have no place.
    pub collision: Option<Arc<str>>,
}

impl Answer {
    /// A statistic, if the group has one: a group that is stale, absent or in error has none.
    pub fn known(&self, statistic: f64) -> Option<f64> {
        (!self.state.is_unusable() && self.error.is_none()).then_some(statistic)
    }
}

/// A group whose sources are all overdue can still be read for this long (10 min).
const MEMORY: Duration = Duration::from_mins(10);

/// Streams of points that one composite follows; points of further ones are not seen (and counted).
const MAX_STREAMS: usize = 100_000;

/// The same where each stream has a window of its own.
const MAX_WINDOWED_STREAMS: usize = 10_000;

/// A declared derived value with its state.
#[derive(Debug)]
pub struct Composite {
    declaration: Declaration,
    cut: Cut,
    metric: Arc<Metric>,
    groups: RwLock<Groups>,
    #[cfg(feature = "tables")]
    inputs: observe::Inputs,
    version: AtomicU64,
    room: GroupLimits,
    computed: expression::Computed,
    published: published::Published,
    match_tracker: MatchTracker,
    /// The reason why the declaration does not suit the data.
    refused: Mutex<Option<Arc<str>>>,
    /// Since when it observes its input; 0: always.
    observed_since: AtomicU64,
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
        let has_windows = declaration.is_by_series() && declaration.function != Function::Last;
        let max_streams = if has_windows {
            MAX_WINDOWED_STREAMS
        } else {
            MAX_STREAMS
        };
        Self {
            match_tracker: MatchTracker::new(&declaration.grouping),
            cut: Cut::of(declaration.window),
            metric: Arc::new(metric),
            declaration,
            groups: RwLock::default(),
            #[cfg(feature = "tables")]
            inputs: observe::Inputs::new(max_streams),
            version: AtomicU64::new(0),
            room: GroupLimits::new(max_streams),
            computed: expression::Computed::default(),
            published: published::Published::default(),
            refused: Mutex::default(),
            observed_since: AtomicU64::new(0),
        }
    }

    /// Its declaration.
    pub fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    /// Changes whenever a value came or a group went. (Answers also change by time alone: when a sub-window leaves the
    /// window, or a lease runs out.)
    pub fn version(&self) -> u64 {
        self.version.load(Relaxed)
    }

    /// One answer a group, in the order in which groups came up; a single `absent` one where there are none. Where the
    /// declaration does not suit the data, no group has a value. An expression that is due is computed first, which may
    /// take long: threads that serve others call [`Composite::answers`].
    pub fn read(&self, now: UnixNanos) -> Vec<Answer> {
        self.compute_if_due(now);
        self.answers(now)
    }

    /// The same; an expression is not computed for it.
    pub fn answers(&self, now: UnixNanos) -> Vec<Answer> {
        if let Some(published) = self.published.answers() {
            return published;
        }
        if self.declaration.expression.is_some() {
            return self.computed(self.sources(now));
        }
        let groups = self.groups();
        let answers = groups.iter().map(|group| self.answer(group, now));
        let mut answers: Vec<Answer> = answers.collect();
        if answers.is_empty() {
            answers.push(self.absent());
        }
        if let Some(why) = self.room.lacks(now) {
            let why: Arc<str> = format!("series are omitted: {why}").into();
            // It is not known which groups they belong to.
            for answer in answers.iter_mut().filter(|answer| !answer.state.is_unusable()) {
                (answer.state, answer.collision) = (Freshness::Partial, Some(why.clone()));
            }
        }
        let conflict = answers.iter().find_map(|answer| answer.error.clone());
        if let Some(error) = lock(&self.refused).clone().or(conflict) {
            for answer in &mut answers {
                (answer.value, answer.error) = (None, Some(error.clone()));
            }
        }
        answers
    }

    /// The quality of an expression's value, from the sources of its series.
    fn sources(&self, now: UnixNanos) -> Option<Answer> {
        let groups = self.groups();
        groups.first().map(|group| self.answer(group, now))
    }

    /// The reason why the composite has no value: its declaration does not suit the data.
    pub fn error(&self, now: UnixNanos) -> Option<Arc<str>> {
        if self.declaration.expression.is_some() {
            return self.answers(now).into_iter().find_map(|answer| answer.error);
        }
        let refused = lock(&self.refused).clone();
        refused.or_else(|| {
            let groups = self.groups();
            groups.iter().find_map(|group| self.answer(group, now).error)
        })
    }

    /// The names of the declaration that have matched.
    pub fn match_tracker(&self) -> &MatchTracker {
        &self.match_tracker
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
            state: Freshness::Absent,
            sources_expected: 0,
            sources_reporting: 0,
            has_left: false,
            error: None,
            collision: None,
        }
    }

    /// Shows every group that has a value as a gauge.
    pub fn show(&self, now: UnixNanos, each: &mut dyn FnMut(Reading<'_>)) {
        if let Some(published) = self.published.get() {
            return published::show(&published, now, each);
        }
        if self.declaration.expression.is_some() {
            return self.show_computed(self.sources(now), now, each);
        }
        let groups = self.groups();
        let shown = groups.iter().map(|group| {
            let mut group = lock(group);
            (group.series.clone(), group.answer(&self.declaration, now))
        });
        let shown: Vec<_> = shown.collect();
        let has_error =
            lock(&self.refused).is_some() || shown.iter().any(|(_, answer)| answer.error.is_some());
        for (series, answer) in shown {
            if let Some(value) = answer.value.filter(|_| !has_error) {
                each(Reading {
                    series: &series,
                    start: 0,
                    time: clock::wall(now),
                    seen: now,
                    value: &Value::Double(value),
                    exemplars: &[],
                });
            }
        }
    }

    /// Removes sources and groups that ended long ago. Call it about once a second.
    pub fn expire(&self, now: UnixNanos) {
        #[cfg(feature = "tables")]
        self.inputs.expire(now);
        if self.remove_groups(now) {
            self.version.fetch_add(1, Relaxed);
        }
    }

    /// The series that a group is shown as.
    pub fn series(&self, attributes: Attributes) -> Arc<Series> {
        Arc::new(Series {
            resource: Arc::default(),
            scope: Arc::default(),
            metric: self.metric.clone(),
            attributes,
        })
    }
}

#[cfg(all(test, feature = "tables"))]
mod across_tests;
#[cfg(all(test, feature = "tables"))]
mod interleaved_tests;
#[cfg(all(test, feature = "tables"))]
mod tests;
