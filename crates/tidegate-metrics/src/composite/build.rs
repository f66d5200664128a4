// SPDX-License-Identifier: Apache-2.0

//! How a composite is put together.

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine as engine;
use tidegate_engine::{Across, AttributeFilter, Function, Grouping, OnStale, Pattern};

use super::live::Composite;
use super::series::{Listener, Watching, listen, update};
use crate::description::Kind;
use crate::family::Family;
use crate::handle::Instrument;
use crate::side::{Info, Side};
use tidegate_engine::UnixNanos;

/// Groups of a composite; further ones share one that says `otel.metric.overflow=true`.
const MAX_GROUPS: usize = 1000;

/// A series that the thread has not read for this long is stale: the thread is stuck.
const LEASE: Duration = Duration::from_secs(5);

/// Why a composite or callback can not be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CompositeError {
    /// It is of nothing.
    #[error("composite `{0}` has no instrument: name at least one")]
    NoSource(String),
    /// Counters and others don't mix.
    #[error("composite `{0}` mixes counters with other instruments: their values can't be combined")]
    Mixed(String),
    /// Of counters, only the increase is known.
    #[error("composite `{0}` reads counters: use the function sum or rate")]
    OnlyIncreases(String),
    /// Gauges say how much there is, which can't be pooled, nor added up over time.
    #[error("composite {0}")]
    Gauges(String),
    /// The window is zero.
    #[error("composite `{0}`: the window is 0: set a longer one")]
    EmptyWindow(String),
    /// A rank is not within 0 and 1.
    #[error("composite `{0}`: ranks must be between 0 and 1")]
    BadRank(String),
    /// A trigger at a number that is none.
    #[error("a trigger needs a finite number")]
    BadTrigger,
}

/// A source of a composite: a handle, or a family with all its series.
pub trait Source: Send + Sync + 'static {
    #[doc(hidden)]
    fn handles(&self) -> Vec<AnyHandle>;

    #[doc(hidden)]
    fn version(&self) -> u64;

    #[doc(hidden)]
    fn kind(&self) -> Option<Kind>;

    #[doc(hidden)]
    fn name(&self) -> String;

    #[doc(hidden)]
    fn boxed(&self) -> Box<dyn Source>;

    /// Whether series that are made from now on are watched from their first value on.
    #[doc(hidden)]
    fn expect(&self, _is_watched: bool) {}
}

/// A handle of any kind.
#[doc(hidden)]
pub struct AnyHandle(Box<dyn Watchable>);

trait Watchable: Send + Sync {
    fn update(&self, now: UnixNanos);
    fn listen(&self, listener: Listener, from_now: bool) -> Option<Watching>;
    fn side(&self) -> Option<Arc<Side>>;
    fn info(&self) -> Option<&Info>;
}

impl<H: Instrument> Watchable for H {
    fn update(&self, now: UnixNanos) {
        update(self, now);
    }

    fn listen(&self, listener: Listener, from_now: bool) -> Option<Watching> {
        listen(self, listener, from_now)
    }

    fn side(&self) -> Option<Arc<Side>> {
        Instrument::side(self).map(|side| side.0.clone())
    }

    fn info(&self) -> Option<&Info> {
        Instrument::info(self)
    }
}

impl AnyHandle {
    pub(super) fn update(&self, now: UnixNanos) {
        self.0.update(now);
    }

    pub(super) fn listen(&self, listener: Listener, from_now: bool) -> Option<Watching> {
        self.0.listen(listener, from_now)
    }

    pub(super) fn side(&self) -> Option<Arc<Side>> {
        self.0.side()
    }

    pub(super) fn info(&self) -> Option<&Info> {
        self.0.info()
    }
}

impl<H: Instrument> Source for H {
    fn handles(&self) -> Vec<AnyHandle> {
        vec![AnyHandle(Box::new(self.clone()))]
    }

    fn version(&self) -> u64 {
        0
    }

    fn kind(&self) -> Option<Kind> {
        self.info().map(|info| info.family().kind.clone())
    }

    fn name(&self) -> String {
        self.info()
            .map_or_else(String::new, |info| info.family().name.clone())
    }

    fn boxed(&self) -> Box<dyn Source> {
        Box::new(self.clone())
    }
}

impl<H: Instrument> Source for Family<H> {
    fn handles(&self) -> Vec<AnyHandle> {
        let own = self.series().into_iter().map(|(_, handle)| handle);
        own.chain(self.overflow())
            .map(|handle| AnyHandle(Box::new(handle)))
            .collect()
    }

    fn version(&self) -> u64 {
        self.watched().version()
    }

    fn kind(&self) -> Option<Kind> {
        Some(self.spec().kind.clone())
    }

    fn name(&self) -> String {
        self.spec().name.clone()
    }

    fn expect(&self, is_watched: bool) {
        self.watched().expect(is_watched);
    }

    fn boxed(&self) -> Box<dyn Source> {
        Box::new(self.clone())
    }
}

/// A composite in the making.
#[must_use]
pub struct CompositeBuilder {
    name: String,
    sources: Vec<Box<dyn Source>>,
    window: Duration,
    by: Vec<String>,
    function: Option<Function>,
    across: Option<Across>,
    quantiles: Vec<f64>,
    /// Whether a thread looks.
    is_attended: bool,
}

impl CompositeBuilder {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            sources: Vec::new(),
            window: Duration::from_secs(10),
            by: Vec::new(),
            function: None,
            across: None,
            quantiles: Vec::new(),
            is_attended: true,
        }
    }

    /// Only a call of `turn` reads the series.
    #[cfg(test)]
    pub(super) fn unattended(mut self) -> Self {
        self.is_attended = false;
        self
    }

    /// Of this instrument, or of all series of this family; several add up.
    pub fn of(mut self, source: &impl Source) -> Self {
        self.sources.push(source.boxed());
        self
    }

    /// Over this time; without, ten seconds. It is cut into parts of 100 ms, or a hundredth of it where that is more.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// One group for each combination of values of these labels; without, one for everything.
    pub fn by<L: Into<String>>(mut self, labels: impl IntoIterator<Item = L>) -> Self {
        self.by = labels.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the function that gives its value. Without this call it is the mean, and of counters the rate.
    pub fn function(mut self, function: Function) -> Self {
        self.function = Some(function);
        self
    }

    /// How the series of a group become one value, after the function has reduced each series over the window. Without
    /// it: Observed values are pooled. A group with several gauges has no value, but an
    /// [`error`](super::Snapshot::error).
    ///
    /// ```
    /// # use tidegate_metrics::{Across, Description, Function, MetricsRegistry, Prometheus};
    /// let registry = Prometheus::new();
    /// let queue = registry.gauge_family(&Description::new("queue", "Requests that wait"), &[], &["pod"])?;
    /// let depth = registry.composite("depth").of(&queue).function(Function::Last).across(Across::Sum).build()?;
    /// queue.with(&["a"]).set(7.0);
    /// queue.with(&["b"]).set(5.0);
    /// assert_eq!(depth.get().value, Some(12.0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn across(mut self, across: Across) -> Self {
        self.across = Some(across);
        self
    }

    /// Ranks, 0 to 1, to report beside the value: at most 1.1 % off, of histograms within their buckets.
    pub fn quantiles(mut self, ranks: impl IntoIterator<Item = f64>) -> Self {
        self.quantiles = ranks.into_iter().collect();
        self
    }

    /// The composite. It sees what is recorded from now on.
    ///
    /// # Errors
    /// There can be none like this.
    pub fn build(self) -> Result<Composite, CompositeError> {
        let kinds: Vec<Kind> = self.sources.iter().filter_map(|source| source.kind()).collect();
        let counters = kinds.iter().filter(|kind| kind.is_monotonic()).count();
        let is_of_counters = counters > 0;
        let fallback = if is_of_counters {
            Function::Rate
        } else {
            Function::Avg
        };
        let function = self.function.unwrap_or(fallback);
        let is_of_increases = matches!(function, Function::Sum | Function::Rate);
        let is_rank = |rank: &f64| (0.0..=1.0).contains(rank);
        let own_rank = match function {
            Function::Quantile(rank) => rank,
            _ => 0.0,
        };
        let across_rank = match self.across {
            Some(Across::Quantile(rank)) => rank,
            _ => 0.0,
        };
        let is_by_series = !matches!(self.across, None | Some(Across::Pool));
        if self.sources.is_empty() {
            return Err(CompositeError::NoSource(self.name));
        }
        if is_of_counters && counters < kinds.len() {
            return Err(CompositeError::Mixed(self.name));
        }
        if is_of_counters && !(is_of_increases && (is_by_series || self.quantiles.is_empty())) {
            return Err(CompositeError::OnlyIncreases(self.name));
        }
        if self.window.is_zero() {
            return Err(CompositeError::EmptyWindow(self.name));
        }
        if !self
            .quantiles
            .iter()
            .chain([&own_rank, &across_rank])
            .all(is_rank)
        {
            return Err(CompositeError::BadRank(self.name));
        }
        let declaration = engine::Declaration {
            name: self.name.into(),
            description: "".into(),
            // Which series it is of was chosen by hand.
            metric: Pattern::Exact("".into()),
            attributes: AttributeFilter::default(),
            expression: None,
            function,
            window: self.window,
            quantiles: self.quantiles.into(),
            on_stale: OnStale::Error,
            grouping: Grouping::by(self.by),
            max_groups: MAX_GROUPS,
            across: self.across,
            lease: Some(LEASE),
        };
        let mut gauges = self
            .sources
            .iter()
            .filter(|source| source.kind().is_some_and(|kind| kind.is_level()));
        if let Some(why) = gauges.find_map(|gauge| declaration.refusal(&gauge.name())) {
            return Err(CompositeError::Gauges(why));
        }
        let is_of_increases = is_of_counters && !is_by_series;
        let composite = Composite::new(declaration, self.sources, is_of_increases);
        if self.is_attended {
            composite.attend();
        }
        Ok(composite)
    }
}
