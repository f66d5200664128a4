// SPDX-License-Identifier: Apache-2.0

//! A composite at work.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tidegate_engine as engine;
use tidegate_engine::{Attributes, Declaration, FeedKind, UnixNanos};

use super::build::{AnyHandle, CompositeError, Source};
use super::series::Watching;
use super::snapshot::Snapshot;
use super::thread::{self, Dispatch, Job, Subscription, Target};
use super::trigger::{Change, Trigger, TriggerState};
use super::watch::{Shared, Watcher};
use crate::side::Info;

/// Without news a composite is evaluated so often: values leave its window.
const EVALUATE_EVERY_NS: u64 = 50_000_000;

/// Sources and groups that are gone are let go so often.
const EXPIRE_EVERY_NS: u64 = 1_000_000_000;

/// Min, mean, max, sum, rate or a quantile of instruments over a window: read on demand, or notified on changes.
///
/// ```
/// # use std::time::Duration;
/// # use tidegate_metrics::{Description, MetricsRegistry, Prometheus, Trigger};
/// let registry = Prometheus::new();
/// let latency = registry.histogram_family(&Description::new("ttft", "Time to the first token").unit("s"), &[], &["model"])?;
/// let ttft = registry.composite("ttft").of(&latency).window(Duration::from_secs(10)).by(["model"]).build()?;
/// let alarm = ttft.on_change(Trigger::above(0.5).hysteresis(0.1), |change| {
///     println!("{:?}: {} {}", change.snapshot.labels, change.value, change.is_crossed);
/// })?;
/// latency.with(&["m"]).observe(0.2);
/// latency.with(&["m"]).observe(0.4);
/// let now = ttft.get();
/// assert_eq!((now.min, now.max, now.count), (Some(0.2), Some(0.4), 2.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Composite(Arc<Inner>);

struct Inner {
    engine: Arc<engine::Composite>,
    /// Whether increases are all that is known.
    is_of_increases: bool,
    sources: Mutex<Vec<Followed>>,
    triggers: Mutex<Vec<Armed>>,
    watchers: Mutex<Vec<Weak<Shared>>>,
    next: AtomicU64,
    /// When it was last evaluated, and the version of the engine's state then.
    evaluated: Mutex<(UnixNanos, u64)>,
    expired: AtomicU64,
}

/// A source and those of its series that are watched.
struct Followed {
    source: Box<dyn Source>,
    version: Option<u64>,
    series: Vec<(AnyHandle, Watching)>,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.source.expect(false);
    }
}

/// A trigger and where each group stands.
struct Armed {
    number: u64,
    trigger: Trigger,
    callback: Arc<Callback>,
    standings: HashMap<Vec<(String, String)>, TriggerState>,
}

type Callback = dyn Fn(&Change) + Send + Sync;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Composite {
    pub(super) fn new(
        declaration: Declaration,
        sources: Vec<Box<dyn Source>>,
        is_of_increases: bool,
    ) -> Self {
        let follow = |source: Box<dyn Source>| {
            source.expect(true);
            Followed {
                source,
                version: None,
                series: Vec::new(),
            }
        };
        let composite = engine::Composite::new(declaration);
        composite.observes_from(super::now());
        let inner = Inner {
            engine: Arc::new(composite),
            is_of_increases,
            sources: Mutex::new(sources.into_iter().map(follow).collect()),
            triggers: Mutex::default(),
            watchers: Mutex::default(),
            next: AtomicU64::new(0),
            evaluated: Mutex::default(),
            expired: AtomicU64::new(0),
        };
        inner.update(super::now());
        Self(Arc::new(inner))
    }

    /// Has the thread look.
    pub(super) fn attend(&self) {
        let target: Arc<dyn Target> = self.0.clone();
        thread::attend(Arc::downgrade(&target));
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.engine.declaration().name
    }

    /// Its current state; of several groups, that of the first.
    pub fn get(&self) -> Snapshot {
        // There is always one: an absent composite has a snapshot too.
        let mut all = self.all();
        all.swap_remove(0)
    }

    /// The current state of the group with these labels.
    pub fn get_for(&self, labels: &[(&str, &str)]) -> Option<Snapshot> {
        self.all().into_iter().find(|snapshot| snapshot.is_of(labels))
    }

    /// The current state of every group. If there are no groups yet, it gives one snapshot that says so.
    pub fn all(&self) -> Vec<Snapshot> {
        self.all_at(super::now())
    }

    pub(super) fn all_at(&self, now: UnixNanos) -> Vec<Snapshot> {
        self.0.update(now);
        self.0.read(now)
    }

    /// Calls `callback` when the value of a group makes the trigger due, on a thread of its own and a few milliseconds
    /// later, until what it returns is dropped. A callback that takes long holds up others; one that panics is
    /// counted ([`callback_panics`](super::callback_panics)) and called again the next time.
    ///
    /// # Errors
    /// The trigger is at no number.
    pub fn on_change(
        &self,
        trigger: Trigger,
        callback: impl Fn(&Change) + Send + Sync + 'static,
    ) -> Result<Subscription, CompositeError> {
        if !trigger.is_valid() {
            return Err(CompositeError::BadTrigger);
        }
        let number = self.0.next.fetch_add(1, Relaxed);
        let lives = Arc::new(AtomicBool::new(true));
        let alive = lives.clone();
        let callback: Arc<Callback> = Arc::new(move |change: &Change| {
            if alive.load(Relaxed) {
                callback(change);
            }
        });
        lock(&self.0.triggers).push(Armed {
            number,
            trigger,
            callback,
            standings: HashMap::new(),
        });
        thread::wake();
        Ok(Subscription::new(Disarm {
            inner: self.0.clone(),
            number,
            lives,
        }))
    }

    /// Every change of what it says, the newest if there are many.
    pub fn watch(&self) -> Watcher {
        let shared = Arc::new(Shared::default());
        lock(&self.0.watchers).push(Arc::downgrade(&shared));
        thread::wake();
        Watcher::new(self.clone(), shared)
    }

    #[cfg(test)]
    pub(super) fn turn(&self, now: UnixNanos, dispatch: &mut Dispatch<'_>) {
        Target::turn(&*self.0, now, dispatch);
    }
}

impl std::fmt::Debug for Composite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Composite")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// Takes in what is new.
    fn update(&self, now: UnixNanos) {
        for followed in lock(&self.sources).iter_mut() {
            let version = followed.source.version();
            if followed.version != Some(version) {
                self.follow(followed, now);
                followed.version = Some(version);
            }
            followed.series.iter().for_each(|(handle, _)| handle.update(now));
        }
        let expired = self.expired.load(Relaxed);
        if now.saturating_sub(expired) > EXPIRE_EVERY_NS {
            self.expired.store(now, Relaxed);
            self.engine.expire(now);
        }
    }

    /// Watches the series that a source has now, and no others.
    fn follow(&self, followed: &mut Followed, now: UnixNanos) {
        let handles = followed.source.handles();
        let mut old = std::mem::take(&mut followed.series);
        for handle in handles {
            let Some(side) = handle.side() else { continue };
            if let Some(at) = old.iter().position(|(_, watching)| watching.is_of(&side)) {
                followed.series.push(old.swap_remove(at));
                continue;
            }
            let is_first = followed.version.is_none();
            let Some(info) = handle.info() else { continue };
            let attributes = info.labels().collect::<Attributes>();
            let family = info.family();
            let kind = if family.kind.is_level() {
                FeedKind::Level
            } else {
                FeedKind::Observations
            };
            let feed = self.engine.feed(&family.name, &attributes, kind, now);
            let engine = self.engine.clone();
            let listen = move |now, added: Option<&engine::Added<'_>>| match added {
                Some(added) => engine.add(&feed, now, added),
                None => feed.touch(now),
            };
            if let Some(watching) = handle.listen(Box::new(listen), is_first) {
                followed.series.push((handle, watching));
            }
        }
    }

    fn read(&self, now: UnixNanos) -> Vec<Snapshot> {
        let snapshots = self.engine.read(now).into_iter().map(Snapshot::of);
        if self.is_of_increases {
            snapshots.map(Snapshot::without_extremes).collect()
        } else {
            snapshots.collect()
        }
    }

    /// Whether something may have changed since it was last evaluated.
    fn is_due(&self, now: UnixNanos) -> bool {
        let version = self.engine.version();
        let mut evaluated = lock(&self.evaluated);
        let is_due = evaluated.1 != version || now.saturating_sub(evaluated.0) >= EVALUATE_EVERY_NS;
        if is_due {
            *evaluated = (now, version);
        }
        is_due
    }
}

impl Target for Inner {
    fn is_urgent(&self) -> bool {
        !lock(&self.triggers).is_empty() || !lock(&self.watchers).is_empty()
    }

    fn turn(&self, now: UnixNanos, dispatch: &mut Dispatch<'_>) {
        self.update(now);
        if !self.is_urgent() || !self.is_due(now) {
            return;
        }
        let snapshots = self.read(now);
        for armed in lock(&self.triggers).iter_mut() {
            armed.observe(&snapshots, now, dispatch);
        }
        lock(&self.watchers).retain(|watcher| match watcher.upgrade() {
            Some(watcher) => {
                watcher.show(&snapshots);
                true
            }
            None => false,
        });
    }
}

impl Armed {
    fn observe(&mut self, snapshots: &[Snapshot], now: UnixNanos, dispatch: &mut Dispatch<'_>) {
        for snapshot in snapshots {
            if !self.standings.contains_key(&snapshot.labels) {
                self.standings
                    .insert(snapshot.labels.clone(), TriggerState::default());
            }
            let Some(standing) = self.standings.get_mut(&snapshot.labels) else {
                continue;
            };
            let mut next = *standing;
            let due = next.observe(&self.trigger, snapshot.value, now);
            let is_told = due.is_none_or(|is_crossed| {
                let callback = self.callback.clone();
                let change = Change {
                    snapshot: snapshot.clone(),
                    value: snapshot.value.unwrap_or(f64::NAN),
                    is_crossed,
                };
                let job: Job = Box::new(move || callback(&change));
                dispatch(job)
            });
            // A change that could not be reported stays due.
            if is_told {
                *standing = next;
            }
        }
        if self.standings.len() > snapshots.len() {
            self.standings
                .retain(|labels, _| snapshots.iter().any(|snapshot| snapshot.labels == *labels));
        }
    }
}

/// Ends a callback when it is dropped.
struct Disarm {
    inner: Arc<Inner>,
    number: u64,
    lives: Arc<AtomicBool>,
}

impl Drop for Disarm {
    fn drop(&mut self) {
        self.lives.store(false, Relaxed);
        lock(&self.inner.triggers).retain(|armed| armed.number != self.number);
    }
}

/// The labels of an instrument.
pub(super) fn owned_labels(info: &Info) -> Vec<(String, String)> {
    info.labels()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}
