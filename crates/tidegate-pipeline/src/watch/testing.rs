// SPDX-License-Identifier: Apache-2.0

//! For tests: composites that can be fed and watched.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tidegate_engine::{
    AttributeFilter, Attributes, Composite, CompositeSet, Declaration, Evaluated, EventKind, Events,
    Expression, Function, Grouping, Instrument, Lease, OnStale, Pattern, Schema, Source, SourceId, Threshold,
    Values,
};

use super::Watched;
use crate::component::unix_now;

/// A composite over 10 s of the last values of `queue`, by `model`, that is looked at for those who wait.
pub struct Bench {
    /// The composite.
    pub watched: Arc<Watched>,
    set: CompositeSet,
    schema: Arc<Schema>,
    sources: Vec<(String, Arc<Source>)>,
    /// How long a source lives after its last value.
    pub term: Duration,
}

/// A declaration with this name.
pub fn declaration(name: &str) -> Declaration {
    Declaration {
        name: name.into(),
        description: Arc::default(),
        metric: Pattern::parse("queue").expect("a name"),
        attributes: AttributeFilter::default(),
        expression: None,
        function: Function::Last,
        quantiles: [0.5].into(),
        on_stale: OnStale::Error,
        window: Duration::from_secs(10),
        grouping: Grouping::by(["model"]),
        max_groups: 10,
        across: None,
        lease: Some(Duration::from_mins(1)),
    }
}

impl Bench {
    /// A composite of this name with thresholds.
    pub fn new(name: &str, thresholds: Vec<Threshold>) -> Self {
        Self::of(declaration(name), thresholds)
    }

    /// A composite of this declaration with thresholds.
    pub fn of(declaration: Declaration, thresholds: Vec<Threshold>) -> Self {
        let composite = Arc::new(Composite::new(declaration));
        let kind = EventKind {
            name: "queue".into(),
            description: "".into(),
            unit: "".into(),
            instrument: Instrument::Gauge,
            attributes: Attributes::default(),
        };
        Self {
            watched: Arc::new(Watched::new(composite.clone(), thresholds)),
            set: CompositeSet::new(vec![composite]),
            schema: Arc::new(Schema { kinds: vec![kind] }),
            sources: Vec::new(),
            term: Duration::from_mins(1),
        }
    }

    /// Looks for those who wait until the test is over.
    pub fn keep_looking(&self) {
        let watched = self.watched.clone();
        tokio::spawn(async move { watched.keep_looking().await });
    }

    /// Whether a reader waits for changes.
    pub fn is_followed(&self) -> bool {
        self.watched.newest.receiver_count() > 0
    }

    fn source(&mut self, model: &str) -> Arc<Source> {
        if let Some((_, source)) = self.sources.iter().find(|(known, _)| known == model) {
            return source.clone();
        }
        let source = Arc::new(Source {
            id: SourceId::next(),
            resource: Arc::default(),
            scope: Arc::default(),
            attributes: [("model", model)].into_iter().collect(),
            lease: Arc::new(Lease::new(self.term, unix_now())),
        });
        self.sources.push((model.to_owned(), source.clone()));
        source
    }

    /// A value of a model.
    pub fn observe(&mut self, model: &str, value: f64) {
        let source = self.source(model);
        self.set.observe_events(&Events {
            source,
            schema: self.schema.clone(),
            kinds: vec![0],
            values: Values::F64(vec![value]),
            times: None,
            weights: None,
            observed: unix_now(),
        });
    }

    /// Lets a model's source be alive without a value.
    pub fn join(&mut self, model: &str) {
        let source = self.source(model);
        self.set.observe_events(&Events {
            source,
            schema: self.schema.clone(),
            kinds: Vec::new(),
            values: Values::F64(Vec::new()),
            times: None,
            weights: None,
            observed: unix_now(),
        });
    }

    /// Waits until the sources are overdue.
    pub async fn until_stale(&self) {
        let is_stale = || {
            let snapshot = self.watched.read(unix_now());
            snapshot
                .answers
                .iter()
                .all(|group| group.answer.state.is_unusable())
        };
        while !is_stale() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Lets a model's source be overdue.
    pub fn lose(&mut self, model: &str) {
        let (composite, now) = (self.watched.composite().clone(), unix_now());
        let lost = Arc::new(Lease::new(Duration::ZERO, now.saturating_sub(1)));
        let source = Arc::new(Source {
            id: SourceId::next(),
            resource: Arc::default(),
            scope: Arc::default(),
            attributes: [("model", model)].into_iter().collect(),
            lease: lost,
        });
        CompositeSet::new(vec![composite]).observe_events(&Events {
            source,
            schema: self.schema.clone(),
            kinds: Vec::new(),
            values: Values::F64(Vec::new()),
            times: None,
            weights: None,
            observed: now,
        });
    }
}

/// A threshold that rises above one value and clears below another.
pub fn threshold(above: f64, clear: f64) -> Threshold {
    Threshold {
        name: format!("above {above}").into(),
        direction: tidegate_engine::Direction::Above,
        at: above,
        clear,
        min_interval: Duration::ZERO,
    }
}

/// Until then some reader of an expression has it computed, also on a busy machine.
const READERS: Duration = Duration::from_secs(60);

/// Blocks computations: a computation waits here while it is closed, at most two minutes.
#[derive(Default)]
pub struct Latch {
    state: Mutex<LatchState>,
    changed: Condvar,
}

#[derive(Default)]
struct LatchState {
    is_closed: bool,
    entered: usize,
}

impl Latch {
    /// Closes the latch, and counts the arrivals from 0 again.
    pub fn close(&self) {
        *self.state.lock() = LatchState {
            is_closed: true,
            entered: 0,
        };
    }

    /// Lets the evaluation finish.
    pub fn open(&self) {
        self.state.lock().is_closed = false;
        self.changed.notify_all();
    }

    /// Computations since it was closed.
    pub fn entered(&self) -> usize {
        self.state.lock().entered
    }

    fn pass(&self) {
        let mut state = self.state.lock();
        state.entered += 1;
        self.changed
            .wait_while_for(&mut state, |state| state.is_closed, 2 * READERS);
    }
}

/// Waits for a condition, a minute at most, by the clock of the machine.
pub async fn until(is: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !is() {
        assert!(begun.elapsed() < READERS, "in time");
        std::thread::sleep(Duration::from_millis(1));
        tokio::task::yield_now().await;
    }
}

/// A composite that is an expression, `7`. It notes on which threads it is computed.
pub struct Computed {
    /// The composite.
    pub watched: Arc<Watched>,
    /// Open at first.
    pub latch: Arc<Latch>,
    threads: Arc<Mutex<Vec<Option<String>>>>,
}

impl Computed {
    /// A composite of this name, whose expression waits.
    pub fn new(name: &str) -> Self {
        let expression = Expression {
            text: "7".into(),
            selects: Arc::new(|_| false),
        };
        let composite = Composite::new(Declaration {
            expression: Some(expression),
            ..declaration(name)
        });
        let threads = Arc::<Mutex<Vec<_>>>::default();
        let noted = threads.clone();
        let latch = Arc::<Latch>::default();
        let passed = latch.clone();
        composite.computed_by(move |_| {
            let thread = std::thread::current().name().map(str::to_owned);
            noted.lock().push(thread);
            passed.pass();
            Ok(Evaluated {
                values: vec![(Attributes::default(), 7.0)],
                handles_absence: true,
                ..Evaluated::default()
            })
        });
        Self {
            watched: Arc::new(Watched::new(Arc::new(composite), Vec::new())),
            latch,
            threads,
        }
    }

    /// Computes it until readers have it computed again.
    fn becomes_due(&self) {
        let begun = std::time::Instant::now();
        let composite = self.watched.composite();
        while !composite.is_due(unix_now()) {
            assert!(begun.elapsed() < READERS, "it always takes long");
            composite.compute(unix_now());
            std::thread::sleep(Duration::from_millis(11));
        }
    }

    /// Closes the latch before the computation for the next reader.
    pub fn holds_next(&self) {
        self.becomes_due();
        self.latch.close();
    }

    /// Starts a computation for a reader that leaves. It lasts until the latch is open.
    pub async fn is_stuck(&self) {
        self.holds_next();
        let watched = self.watched.clone();
        let reader = tokio::spawn(async move { watched.refresh().await });
        until(|| self.latch.entered() == 1).await;
        reader.abort();
    }

    /// Asks until it is computed for that, and checks that no thread of the runtime does so.
    pub async fn is_computed_apart(&self, mut ask: impl AsyncFnMut()) {
        let begun = std::time::Instant::now();
        let threads = loop {
            assert!(begun.elapsed() < READERS, "no reader has it computed");
            // A busy machine may take long for it: then readers do without.
            self.watched.composite().compute(unix_now());
            self.threads.lock().clear();
            tokio::time::sleep(Duration::from_millis(15)).await;
            ask().await;
            let threads = std::mem::take(&mut *self.threads.lock());
            if !threads.is_empty() {
                break threads;
            }
        };
        let is_of_background = |name: &Option<String>| name.as_deref() == Some("tidegate-background");
        assert!(threads.iter().all(is_of_background), "{threads:?}");
    }
}

impl Drop for Computed {
    /// Lets go of the thread that is stuck.
    fn drop(&mut self) {
        self.latch.open();
    }
}
