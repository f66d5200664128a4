// SPDX-License-Identifier: Apache-2.0

//! The memory budget of states outside tables: streams of conversions, streams and groups of composites.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crate::chunks::lock;
use crate::{Metric, Resource, Scope, Series};

/// Known streams may grow beyond the bound by this share of it (one eighth).
const GROWTH_SHARE: usize = 8;

/// The largest share of the bound that a single text may take (one 64th).
const TEXT_SHARE: usize = 64;

/// Bytes of resource, scope and metric above this count for each of the series that share them: there may be only one.
const SHARED_BYTES: usize = 4 << 10;

/// The head of an allocation that is shared.
const SHARED_HEAD: usize = 16;

/// The memory that other users leave to tables. It may change at any time.
#[derive(Debug)]
pub struct Bounds {
    bytes: AtomicUsize,
    is_tight: AtomicBool,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            bytes: AtomicUsize::new(usize::MAX),
            is_tight: AtomicBool::new(false),
        }
    }
}

impl Bounds {
    /// The most that series and streams of a table may take, where `Limits::bytes` does not say.
    pub fn set_bytes(&self, bytes: usize) {
        self.bytes.store(bytes, Relaxed);
    }

    /// While this is set, tables take in no new series and streams. Points of those they know are taken.
    pub fn set_tight(&self, is_tight: bool) {
        self.is_tight.store(is_tight, Relaxed);
    }

    /// The bytes that they may take.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// See [`Self::set_tight`].
    pub fn is_tight(&self) -> bool {
        self.is_tight.load(Relaxed)
    }
}

/// The bound of a state, and the memory that it uses. The bound may change at any time.
#[derive(Debug, Default)]
pub struct Budget {
    bounds: Arc<Bounds>,
    used: AtomicUsize,
}

impl Budget {
    /// A budget with the `bounds` of a table.
    pub fn of(bounds: Arc<Bounds>) -> Self {
        Self {
            bounds,
            used: AtomicUsize::new(0),
        }
    }

    /// The bytes in use, estimated.
    pub fn bytes(&self) -> usize {
        self.used.load(Relaxed)
    }

    pub(crate) fn max_bytes(&self) -> usize {
        self.bounds.bytes()
    }

    /// Whether a text of `text` bytes is so long that few of them would take the whole bound.
    pub(crate) fn is_too_long(&self, text: usize) -> bool {
        text > self.max_bytes() / TEXT_SHARE
    }

    fn reserve(&self, bytes: usize, most: usize) -> bool {
        let sum = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= most);
        self.used.fetch_update(Relaxed, Relaxed, sum).is_ok()
    }

    /// The bound for known streams, including their growth.
    fn max_with_growth(&self) -> usize {
        let most = self.max_bytes();
        most.saturating_add(most / GROWTH_SHARE)
    }
}

/// Bytes of a budget, which go back when it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    /// The bytes that stay the same until it is dropped.
    fixed: usize,
    /// The bytes that may change.
    held: usize,
}

impl Reservation {
    /// A reservation for a new stream; `None`: the bound leaves no room, or memory is short.
    pub(crate) fn new(budget: &Arc<Budget>, fixed: usize, held: usize) -> Option<Self> {
        let has_room = !budget.bounds.is_tight() && budget.reserve(fixed + held, budget.max_bytes());
        has_room.then(|| Self::of(budget, fixed, held))
    }

    /// A reservation for a stream of a previous process; `None`: the bound leaves no room.
    pub(crate) fn known(budget: &Arc<Budget>, bytes: usize) -> Option<Self> {
        let has_room = budget.reserve(bytes, budget.max_with_growth());
        has_room.then(|| Self::of(budget, bytes, 0))
    }

    /// A reservation that never fails.
    pub(crate) fn certain(budget: &Arc<Budget>, bytes: usize) -> Self {
        budget.used.fetch_add(bytes, Relaxed);
        Self::of(budget, bytes, 0)
    }

    fn of(budget: &Arc<Budget>, fixed: usize, held: usize) -> Self {
        Self {
            budget: budget.clone(),
            fixed,
            held,
        }
    }

    /// Whether a known stream may grow by `more` bytes.
    pub(crate) fn may_grow(&self, more: usize) -> bool {
        more == 0 || self.budget.bytes().saturating_add(more) <= self.budget.max_with_growth()
    }

    /// Sets the bytes that may change.
    pub(crate) fn hold(&mut self, held: usize) {
        let used = &self.budget.used;
        if held > self.held {
            used.fetch_add(held - self.held, Relaxed);
        } else if held < self.held {
            used.fetch_sub(self.held - held, Relaxed);
        }
        self.held = held;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.fixed + self.held, Relaxed);
    }
}

/// Keeps resource, scope and metric once: successive series usually share them.
#[derive(Debug, Default)]
pub(crate) struct SeriesInterner(Mutex<Option<Arc<Series>>>);

impl SeriesInterner {
    /// Gives the kept series and the result of `reserve` for its bytes; `None`: `reserve` gives `None`.
    pub(crate) fn keep<R>(
        &self,
        mut series: Series,
        reserve: impl FnOnce(usize) -> Option<R>,
    ) -> Option<(Arc<Series>, R)> {
        let mut last = lock(&self.0);
        let known = last.as_deref();
        let parts = [
            share(
                &mut series.resource,
                known.map(|known| &known.resource),
                of_resource,
            ),
            share(&mut series.scope, known.map(|known| &known.scope), of_scope),
            share(&mut series.metric, known.map(|known| &known.metric), of_metric),
        ];
        let own = size_of::<Series>() + SHARED_HEAD + series.attributes.bytes();
        let reserved = reserve(own + parts.iter().sum::<usize>())?;
        let series = Arc::new(series);
        *last = Some(series.clone());
        Some((series, reserved))
    }
}

/// The bytes that an identity has allocated, as if nothing shared its parts.
pub fn identity_bytes(series: &Series) -> usize {
    let parts = of_resource(&series.resource) + of_scope(&series.scope) + of_metric(&series.metric);
    size_of::<Series>() + SHARED_HEAD + series.attributes.bytes() + parts
}

/// Replaces the part by the known one if they are equal. Gives the bytes that the part counts with.
fn share<T: Eq>(part: &mut Arc<T>, known: Option<&Arc<T>>, bytes: impl Fn(&T) -> usize) -> usize {
    match known.filter(|known| **known == *part) {
        Some(known) => {
            *part = known.clone();
            bytes(part).saturating_sub(SHARED_BYTES)
        }
        None => bytes(part),
    }
}

fn of_resource(resource: &Resource) -> usize {
    size_of::<Resource>() + SHARED_HEAD + resource.attributes.bytes() + resource.schema_url.len()
}

fn of_scope(scope: &Scope) -> usize {
    let text = scope.name.len() + scope.version.len() + scope.schema_url.len();
    size_of::<Scope>() + SHARED_HEAD + scope.attributes.bytes() + text
}

fn of_metric(metric: &Metric) -> usize {
    let text = metric.name.len() + metric.description.len() + metric.unit.len();
    size_of::<Metric>() + SHARED_HEAD + metric.metadata.bytes() + text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attributes, Data};

    fn budget(bytes: usize) -> (Arc<Bounds>, Arc<Budget>) {
        let bounds = Arc::new(Bounds::default());
        bounds.set_bytes(bytes);
        (bounds.clone(), Arc::new(Budget::of(bounds)))
    }

    #[test]
    fn a_full_budget_takes_nothing_new_and_lets_the_known_grow_a_little() {
        let (bounds, budget) = budget(800);
        let mut first = Reservation::new(&budget, 500, 100).unwrap();
        assert!(Reservation::new(&budget, 200, 1).is_none());
        let second = Reservation::new(&budget, 200, 0).unwrap();
        assert_eq!(budget.bytes(), 800);
        assert!(first.may_grow(100) && !first.may_grow(101));
        first.hold(200);
        assert_eq!(budget.bytes(), 900);
        assert!(first.may_grow(0) && !first.may_grow(1));
        drop(second);
        first.hold(0);
        assert_eq!(budget.bytes(), 500);
        bounds.set_tight(true);
        assert!(Reservation::new(&budget, 1, 0).is_none(), "memory is short");
        assert!(Reservation::known(&budget, 1).is_some() && first.may_grow(1));
        drop(first);
        assert_eq!(budget.bytes(), 0);
    }

    #[test]
    fn no_limit_is_no_bound() {
        let budget = Arc::new(Budget::default());
        let all = Reservation::new(&budget, usize::MAX / 2, 0).unwrap();
        assert!(all.may_grow(usize::MAX / 2) && !budget.is_too_long(1 << 40));
    }

    fn series(resource: &str, pod: &str) -> Series {
        Series {
            resource: Arc::new(Resource {
                attributes: [("text", resource)].into_iter().collect(),
                schema_url: "".into(),
            }),
            scope: Arc::default(),
            metric: Arc::new(Metric {
                name: "m".into(),
                description: "".into(),
                unit: "".into(),
                data: Data::Gauge,
                metadata: Attributes::default(),
            }),
            attributes: [("pod", pod)].into_iter().collect(),
        }
    }

    #[test]
    fn neighbours_share_what_they_have_in_common_and_short_texts_count_once() {
        let shared = SeriesInterner::default();
        let keep = |resource: &str, pod: &str| shared.keep(series(resource, pod), Some).unwrap();
        let (first, whole) = keep("a", "1");
        assert_eq!(whole, identity_bytes(&first));
        let (second, rest) = keep("a", "2");
        assert!(Arc::ptr_eq(&first.resource, &second.resource) && Arc::ptr_eq(&first.metric, &second.metric));
        assert_eq!(
            rest,
            size_of::<Series>() + SHARED_HEAD + second.attributes.bytes()
        );
        assert!(shared.keep(series("b", "3"), |_| None::<()>).is_none());
        let long = "x".repeat(SHARED_BYTES);
        let (_, first) = keep(&long, "1");
        let (_, second) = keep(&long, "2");
        assert!(
            first > SHARED_BYTES && second > rest && second < 1000,
            "{first}, {second}"
        );
    }
}
