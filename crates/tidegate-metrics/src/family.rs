// SPDX-License-Identifier: Apache-2.0

//! Families: the series of one name, distinguished by the values of their labels.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard};

use foldhash::fast::RandomState;
use hashbrown::{Equivalent, HashMap};

use crate::description::FamilySpec;
use crate::handle::{Counter, FloatCounter, Gauge, Histogram, Instrument, UpDownCounter, misuse};
use crate::labels::LabelSet;
use crate::value::{FamilyValues, SeriesValues};
use crate::watched::FamilyWatch;

/// A family of counters.
pub type CounterFamily = Family<Counter>;
/// A family of fractional counters.
pub type FloatCounterFamily = Family<FloatCounter>;
/// A family of up-down counters.
pub type UpDownCounterFamily = Family<UpDownCounter>;
/// A family of gauges.
pub type GaugeFamily = Family<Gauge>;
/// A family of histograms, classic or exponential.
pub type HistogramFamily = Family<Histogram>;

/// Makes the handles of a family; a registry's part of it.
pub trait Make<H>: Send + Sync {
    /// A handle for the series with these values of the family's labels.
    fn make(&self, values: &[&str]) -> Made<H>;

    /// The handle that all series beyond the limit share, if there were any.
    fn overflow(&self) -> Option<H>;

    /// This series has ended: its handles may still be used, but pages do not show them any more.
    fn remove(&self, values: &[&str]);
}

/// The result of a look-up in a registry.
#[derive(Clone, Copy, Debug)]
pub enum Made<H> {
    /// A series of its own, to be kept.
    Own(H),
    /// Something that many look-ups get: beyond the limit, or where nothing is kept.
    Shared(H),
}

/// The series of one name, distinguished by the values of their labels.
///
/// [`with`](Self::with) finds a series that was used before without allocating, behind a lock that its readers share
/// and that is taken alone only to put a new series in. Keep the handle where the label values stay the same.
pub struct Family<H>(Arc<Inner<H>>);

struct Inner<H> {
    spec: Arc<FamilySpec>,
    maker: Box<dyn Make<H>>,
    series: RwLock<Series<H>>,
    /// Held while a series is made or ended, so that readers wait only while it is put in or taken out.
    changing: Mutex<()>,
    watched: FamilyWatch,
}

type Series<H> = HashMap<Values, H, RandomState>;

/// Values of labels, in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Values(Box<[Box<str>]>);

// Without the kind of handle, so that the compiler sees it once and not for each kind.
impl Values {
    fn new(values: &[&str]) -> Self {
        Self(values.iter().map(|value| (*value).into()).collect())
    }

    fn owned(&self) -> Vec<String> {
        self.0.iter().map(|value| String::from(&**value)).collect()
    }
}

/// Values in their order, with the place where each was.
fn sorted(all: Vec<Vec<String>>) -> Vec<(Vec<String>, usize)> {
    let mut sorted: Vec<_> = all.into_iter().zip(0..).collect();
    sorted.sort_unstable();
    sorted
}

impl Hash for Values {
    fn hash<S: Hasher>(&self, state: &mut S) {
        // As those of `Wanted`.
        self.0.iter().for_each(|value| state.write(value.as_bytes()));
    }
}

/// Values as they are looked up.
struct Wanted<'a>(&'a [&'a str]);

impl Hash for Wanted<'_> {
    #[inline]
    fn hash<S: Hasher>(&self, state: &mut S) {
        // Without what would keep "a", "bc" from being the same as "ab", "c": that is seldom, and they are compared.
        self.0.iter().for_each(|value| state.write(value.as_bytes()));
    }
}

impl Equivalent<Values> for Wanted<'_> {
    #[inline]
    fn equivalent(&self, values: &Values) -> bool {
        self.0.len() == values.0.len() && self.0.iter().zip(&values.0).all(|(a, b)| **a == **b)
    }
}

impl<H: Instrument> Family<H> {
    /// A family whose handles come from `maker`.
    pub fn new(spec: FamilySpec, maker: impl Make<H> + 'static) -> Self {
        Self::boxed(spec, Box::new(maker))
    }

    fn boxed(spec: FamilySpec, maker: Box<dyn Make<H>>) -> Self {
        Self(Arc::new(Inner {
            spec: Arc::new(spec),
            maker,
            series: RwLock::default(),
            changing: Mutex::default(),
            watched: Default::default(),
        }))
    }

    /// The family as it was registered.
    pub fn spec(&self) -> &Arc<FamilySpec> {
        &self.0.spec
    }

    /// The series with these values, in the order in which the labels were declared.
    ///
    /// Another number of values than labels gives a handle that does nothing, and counts as
    /// [misuse](crate::misused).
    pub fn with(&self, values: &[&str]) -> H {
        // None of another number of values is known.
        if let Some(handle) = self.known(values) {
            return handle;
        }
        match self.find(values) {
            Made::Own(handle) | Made::Shared(handle) => handle,
        }
    }

    /// The series with these labels.
    #[inline]
    pub fn of(&self, labels: &impl LabelSet) -> H {
        labels.with_values(|values| self.with(values))
    }

    #[cold]
    pub(crate) fn find(&self, values: &[&str]) -> Made<H> {
        if values.len() != self.0.spec.labels.len() {
            misuse();
            return Made::Shared(H::null());
        }
        self.known(values).map_or_else(|| self.insert(values), Made::Own)
    }

    #[inline]
    fn known(&self, values: &[&str]) -> Option<H> {
        let series = self.0.series.read().unwrap_or_else(PoisonError::into_inner);
        series.get(&Wanted(values)).cloned()
    }

    fn insert(&self, values: &[&str]) -> Made<H> {
        let _changing = self.0.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = self.known(values) {
            return Made::Own(handle);
        }
        let made = self.0.maker.make(values);
        if let Made::Own(handle) = &made {
            self.watched().note_new(handle.side().map(|side| side.0));
            self.write().insert(Values::new(values), handle.clone());
        }
        self.watched().changed();
        made
    }

    /// Ends the series with these values: pages do not show it any more. `false`: there is none.
    pub fn remove(&self, values: &[&str]) -> bool {
        let _changing = self.0.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let removed = self.write().remove(&Wanted(values));
        if removed.is_some() {
            self.0.maker.remove(values);
            self.watched().changed();
        }
        removed.is_some()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Series<H>> {
        self.0.series.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn watched(&self) -> &FamilyWatch {
        &self.0.watched
    }

    /// All series: the values of their labels and their handles, by value; then the one that further ones share.
    pub fn series(&self) -> Vec<(Vec<String>, H)> {
        let series = self.0.series.read().unwrap_or_else(PoisonError::into_inner);
        let (mut all, mut handles) = (Vec::new(), Vec::new());
        for (values, handle) in series.iter() {
            all.push(values.owned());
            handles.push(handle.clone());
        }
        drop(series);
        let sorted = sorted(all).into_iter();
        sorted.map(|(values, at)| (values, handles[at].clone())).collect()
    }

    /// The handle that series beyond the limit share, if there were any.
    pub(crate) fn overflow(&self) -> Option<H> {
        self.0.maker.overflow()
    }

    /// Its current values.
    pub fn read(&self) -> FamilyValues {
        let spec = &self.0.spec;
        let mut series = Vec::new();
        let handles = self.series().into_iter().map(|(_, handle)| handle);
        for handle in handles.chain(self.overflow()) {
            if let (Some(info), Some(value)) = (handle.info(), handle.read()) {
                series.push(SeriesValues {
                    labels: info.shown_labels(),
                    value,
                    exemplars: handle.exemplars(),
                });
            }
        }
        FamilyValues {
            name: spec.name.clone(),
            help: spec.help.clone(),
            unit: spec.unit.clone(),
            kind: spec.kind.clone(),
            series,
        }
    }
}

impl<H> Clone for Family<H> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<H> std::fmt::Debug for Family<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Family").field(&self.0.spec).finish()
    }
}

/// A family of any kind of handle.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AnyFamily {
    /// Of counters.
    Counter(CounterFamily),
    /// Of fractional counters.
    FloatCounter(FloatCounterFamily),
    /// Of up-down counters.
    UpDownCounter(UpDownCounterFamily),
    /// Of gauges.
    Gauge(GaugeFamily),
    /// Of histograms.
    Histogram(HistogramFamily),
}

impl AnyFamily {
    /// The family as it was registered.
    pub fn spec(&self) -> &Arc<FamilySpec> {
        match self {
            Self::Counter(family) => family.spec(),
            Self::FloatCounter(family) => family.spec(),
            Self::UpDownCounter(family) => family.spec(),
            Self::Gauge(family) => family.spec(),
            Self::Histogram(family) => family.spec(),
        }
    }

    /// Its current values.
    pub fn read(&self) -> FamilyValues {
        match self {
            Self::Counter(family) => family.read(),
            Self::FloatCounter(family) => family.read(),
            Self::UpDownCounter(family) => family.read(),
            Self::Gauge(family) => family.read(),
            Self::Histogram(family) => family.read(),
        }
    }
}

/// Families whose handles do nothing.
pub(crate) struct MakeNull;

impl<H: Instrument> Make<H> for MakeNull {
    fn make(&self, _: &[&str]) -> Made<H> {
        Made::Shared(H::null())
    }

    fn overflow(&self) -> Option<H> {
        None
    }

    fn remove(&self, _: &[&str]) {}
}
