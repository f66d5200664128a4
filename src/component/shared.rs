//! What the components of one gateway share: the tables and composites that hold state, and the memory in use.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tidegate_engine::{Key, Table, UnixNanos};
use tidegate_promql::{Labels, Query};

use super::account::Account;
use super::overview::Overview;
use super::services::ServicesById;
use super::slow::Slowness;
use super::targets::ScrapePool;
use crate::watch::Watched;

/// One per running gateway.
#[derive(Default)]
pub struct Shared {
    /// Tables that components own.
    pub tables: Registry<Table>,
    /// Composites that can be read at any instant.
    pub composites: Registry<Watched>,
    /// What receivers scrape.
    pub scrape_pools: Registry<ScrapePool>,
    /// The memory in use, and what of it is promised.
    pub memory: Arc<Account>,
    /// Whether the gateway can take data.
    pub health: Health,
    details: AtomicBool,
    /// Who wants to know of batches that take long.
    pub slowness: Slowness,
    /// Who computes PromQL over the live tables; the first one counts.
    pub evaluators: Registry<Evaluator>,
    /// What looks like a mistake.
    pub notices: Notices,
    /// What extensions do for components that name them.
    pub services: ServicesById,
    /// What runs; there once the graph is built.
    pub overview: OnceLock<Overview>,
    /// What layers above keep once a gateway.
    pub parts: Parts,
}

impl Shared {
    /// Has what takes time to measure measured: the gateway's own metrics are of level `detailed`. Called before
    /// components are built.
    pub fn want_details(&self) {
        self.details.store(true, Relaxed);
    }

    /// Whether somebody wants what takes time to measure.
    pub fn wants_details(&self) -> bool {
        self.details.load(Relaxed)
    }
}

/// One value of each type, made by the first who asks for it.
#[derive(Default)]
pub struct Parts(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl Parts {
    /// The value of this type; `make` makes it where there is none yet, and must not ask for another one.
    pub fn get<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut parts = self.0.lock();
        if let Some(known) = parts.get(&TypeId::of::<T>()).cloned()
            && let Ok(known) = known.downcast::<T>()
        {
            return known;
        }
        let made = Arc::new(make());
        parts.insert(TypeId::of::<T>(), made.clone());
        made
    }
}

/// Computes PromQL over the live tables.
pub struct Evaluator(pub Box<dyn Evaluate>);

/// See [`Evaluator`].
pub trait Evaluate: Send + Sync {
    /// What a query comes to now.
    ///
    /// # Errors
    /// There is no answer, or it is not made of numbers.
    fn evaluate(&self, query: &Query, now: UnixNanos) -> Result<Evaluation, String>;

    /// What queries call a gauge of this name.
    fn names_of_gauge(&self, name: &str) -> Vec<String>;
}

/// What a query comes to, and who reports what it selects.
#[derive(Clone, Debug, Default)]
pub struct Evaluation {
    /// The labels, without the name, and the value of each element.
    pub values: Vec<(Labels, f64)>,
    /// The sources of the series that it selects.
    pub sources: Vec<SelectedSource>,
    /// Scrape targets whose last scrape failed.
    pub failed: HashSet<Key>,
    /// Which living series it does not see because others have their name and labels.
    pub collision: Option<String>,
}

/// A source of series that a query selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectedSource {
    /// Stands for its job and instance, or for its resource where it has neither.
    pub key: Key,
    /// When it was last heard of.
    pub seen: UnixNanos,
    /// How long it may be silent and still counts as alive, in nanoseconds.
    pub lease: u64,
}

/// What looks like a mistake in the configuration while data passes, by component.
#[derive(Debug, Default)]
pub struct Notices(Mutex<BTreeMap<String, Vec<String>>>);

impl Notices {
    /// All that looks like a mistake of a component now. What is new is logged.
    pub fn set(&self, component: &str, now: Vec<String>) {
        let mut all = self.0.lock();
        let known = all.remove(component).unwrap_or_default();
        for notice in now.iter().filter(|notice| !known.contains(notice)) {
            tracing::warn!(component, "{notice}");
        }
        if !now.is_empty() {
            all.insert(component.to_owned(), now);
        }
    }

    /// All of them, by component.
    pub fn list(&self) -> BTreeMap<String, Vec<String>> {
        self.0.lock().clone()
    }
}

/// Where the gateway is in its life.
#[derive(Debug, Default)]
pub struct Health {
    phase: AtomicU8,
    troubles: Mutex<BTreeMap<String, String>>,
}

/// A phase of the gateway's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Components are being started.
    Starting,
    /// Every component runs.
    Ready,
    /// Components are being stopped.
    Stopping,
}

impl Health {
    /// Enters a phase.
    pub fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }

    /// Notes what keeps a component from its work although the gateway runs; `None`: nothing any more.
    pub fn trouble(&self, component: &str, what: Option<String>) {
        let mut troubles = self.troubles.lock();
        match what {
            Some(what) => drop(troubles.insert(component.to_owned(), what)),
            None => drop(troubles.remove(component)),
        }
    }

    /// What keeps components from their work, by component.
    pub fn troubles(&self) -> BTreeMap<String, String> {
        self.troubles.lock().clone()
    }

    /// The current phase.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            0 => Phase::Starting,
            1 => Phase::Ready,
            _ => Phase::Stopping,
        }
    }
}

/// A list of things that components own and others look at. A clone is the same list.
pub struct Registry<T> {
    items: Arc<Mutex<Vec<Arc<T>>>>,
}

impl<T> Clone for Registry<T> {
    fn clone(&self) -> Self {
        Self {
            items: self.items.clone(),
        }
    }
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self {
            items: Arc::default(),
        }
    }
}

impl<T> Registry<T> {
    /// Adds one.
    pub fn add(&self, item: Arc<T>) {
        self.lock().push(item);
    }

    /// Removes one that its owner gives up.
    pub fn remove(&self, item: &Arc<T>) {
        self.lock().retain(|other| !Arc::ptr_eq(other, item));
    }

    /// All of them now.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.lock().clone()
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Vec<Arc<T>>> {
        self.items.lock()
    }
}
