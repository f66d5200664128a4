// SPDX-License-Identifier: Apache-2.0

//! Families and series: the look-up of a series by label values.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tidegate_shm::Slot;

use crate::arena::CellPosition;
use crate::exponential;
use crate::layout::{MAX_LABEL_VALUE, header};
use crate::record::{Record, SeriesRole};
use crate::spec::{FamilySpec, Kind};
use crate::store::StoreInner;
use crate::table::Table;
use crate::value::{Labels, OVERFLOW_LABEL, SeriesValue, Value};

/// A family of a store. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Family {
    store: Arc<StoreInner>,
    inner: Arc<FamilyInner>,
}

#[derive(Debug)]
pub(crate) struct FamilyInner {
    pub(crate) spec: Arc<FamilySpec>,
    pub(crate) number: usize,
    pub(crate) table: Table,
    pub(crate) overflow: Arc<SeriesInner>,
    /// Series there are.
    pub(crate) live: AtomicUsize,
    max_series: usize,
    label_names: Box<[Arc<str>]>,
}

#[derive(Debug)]
pub(crate) struct SeriesInner {
    pub(crate) hash: u64,
    pub(crate) labels: Box<[Box<str>]>,
    /// The offset of its value in the file, in words.
    pub(crate) word: u64,
    pub(crate) slot: Slot,
    pub(crate) ended: AtomicBool,
}

/// A series of a family; ask it for the cell of its instrument. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Series {
    pub(crate) store: Arc<StoreInner>,
    pub(crate) family: Arc<FamilyInner>,
    pub(crate) inner: Arc<SeriesInner>,
}

impl Family {
    pub(crate) fn new(store: Arc<StoreInner>, inner: Arc<FamilyInner>) -> Self {
        Family { store, inner }
    }

    /// Its specification.
    pub fn spec(&self) -> &FamilySpec {
        &self.inner.spec
    }

    /// The series of these label values, one for each label of the family. A known series is found without a lock or an
    /// allocation. If the family is full, the call returns and counts the overflow series.
    pub fn with(&self, values: &[&str]) -> Series {
        self.store.ready();
        let hash = self.inner.table.hash(values);
        let fits = values.len() == self.inner.spec.labels.len();
        let found = if fits {
            self.inner.table.find(hash, values)
        } else {
            None
        };
        let inner = found.unwrap_or_else(|| self.register(hash, values));
        Series {
            store: self.store.clone(),
            family: self.inner.clone(),
            inner,
        }
    }

    /// Ends the series of these label values: readers no longer see it, and its counts are gone. False if there is
    /// none. Cells that are still held count without effect.
    pub fn remove(&self, values: &[&str]) -> bool {
        let fits = values.len() == self.inner.spec.labels.len();
        fits && {
            let hash = self.inner.table.hash(values);
            self.store.end_series(&self.inner, hash, values)
        }
    }

    /// Number of its series, without the overflow series.
    pub fn len(&self) -> usize {
        self.inner.live.load(Ordering::Relaxed)
    }

    /// Whether it has no series.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[cold]
    fn register(&self, hash: u64, values: &[&str]) -> Arc<SeriesInner> {
        let too_long = |value: &&str| value.len() > MAX_LABEL_VALUE;
        if values.len() != self.inner.spec.labels.len() || values.iter().any(too_long) {
            return self.overflow(header::INVALID);
        }
        if self.len() >= self.inner.max_series {
            return self.overflow(header::REFUSED_SERIES);
        }
        let mut locked = self.store.lock();
        self.store.attach(&mut locked);
        if let Some(found) = self.inner.table.find(hash, values) {
            return found;
        }
        if self.len() >= self.inner.max_series {
            return self.overflow(header::REFUSED_SERIES);
        }
        match self.store.make_series(&mut locked, &self.inner, hash, values) {
            Ok(series) => {
                self.inner.live.fetch_add(1, Ordering::Relaxed);
                series
            }
            Err(_) => self.overflow(header::REFUSED_ROOM),
        }
    }

    fn overflow(&self, why: usize) -> Arc<SeriesInner> {
        self.store.count(why);
        if self.store.ready()
            && let Some(uses) = self.inner.overflow.slot.words().last()
        {
            uses.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.overflow.clone()
    }
}

impl FamilyInner {
    pub(crate) fn new(
        spec: Arc<FamilySpec>,
        number: usize,
        max_series: usize,
        overflow: CellPosition,
    ) -> Self {
        let overflow = SeriesInner::new(0, &[], overflow.word, overflow.slot);
        overflow.init(&spec.kind);
        FamilyInner {
            label_names: spec.labels.iter().map(|name| Arc::from(name.as_str())).collect(),
            spec,
            number,
            table: Table::new(),
            overflow: Arc::new(overflow),
            live: AtomicUsize::new(0),
            max_series,
        }
    }

    pub(crate) fn value_of(&self, series: &SeriesInner) -> SeriesValue {
        let labels = self.label_names.iter().zip(&series.labels);
        SeriesValue {
            labels: labels
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            value: series.read(&self.spec.kind),
            overflowed: 0,
        }
    }

    /// The overflow series, once it was used.
    pub(crate) fn overflow_value(&self) -> Option<SeriesValue> {
        let uses = self.overflow.slot.words().last()?.load(Ordering::Relaxed);
        (uses > 0).then(|| SeriesValue {
            labels: overflow_labels(),
            value: self.overflow.read(&self.spec.kind),
            overflowed: uses,
        })
    }
}

pub(crate) fn overflow_labels() -> Labels {
    let (name, value) = OVERFLOW_LABEL;
    Arc::from([(Arc::from(name), Box::from(value))])
}

impl SeriesInner {
    pub(crate) fn new(hash: u64, values: &[&str], word: u64, slot: Slot) -> Self {
        SeriesInner {
            hash,
            labels: values.iter().map(|value| Box::from(*value)).collect(),
            word,
            slot,
            ended: AtomicBool::new(false),
        }
    }

    /// Makes zero words an empty value.
    pub(crate) fn init(&self, kind: &Kind) {
        if let Kind::ExponentialHistogram { max_scale } = kind {
            let (first, words) = exponential::empty(*max_scale, 0);
            for (word, content) in self.slot.words()[first..].iter().zip(words) {
                word.store(content, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn record(&self, family: u32, role: SeriesRole) -> Record {
        Record::Series {
            family,
            slot: self.word,
            role,
            values: self.labels.to_vec(),
        }
    }

    pub(crate) fn read(&self, kind: &Kind) -> Value {
        let words = self.slot.words();
        match kind {
            Kind::ExponentialHistogram { .. } => Value::Exponential(Box::new(exponential::load(words))),
            _ => Value::decode(kind, |word| words[word].load(Ordering::Relaxed)),
        }
    }
}

impl Series {
    /// The specification of its family.
    pub fn spec(&self) -> &FamilySpec {
        &self.family.spec
    }

    /// Whether this is the overflow series.
    pub fn is_overflow(&self) -> bool {
        Arc::ptr_eq(&self.inner, &self.family.overflow)
    }

    /// Its value as of now.
    pub fn value(&self) -> Value {
        self.store.ready();
        self.inner.read(&self.family.spec.kind)
    }
}
