// SPDX-License-Identifier: Apache-2.0

//! Cells: handles that record. A cell has a pointer to the words of its value, and one to the word that says whether
//! they belong to this process. Recording never blocks and never allocates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_model::ExponentialHistogram;
use tidegate_shm::Pinned;

use crate::error::Error;
use crate::exponential;
use crate::family::Series;
use crate::file::now_ns;
use crate::layout::header;
use crate::spec::{Kind, value_words};
use crate::value::Value;

/// The common part of all cells.
#[derive(Clone, Debug)]
struct Cell<A>(Pinned<Of<A>>);

/// The series of a cell, and the data that its user attached to it.
#[derive(Debug)]
struct Of<A> {
    series: Series,
    /// The bounds of a histogram.
    bounds: Arc<[f64]>,
    attached: A,
}

impl<A> Cell<A> {
    fn new(series: &Series, attached: A) -> Self {
        let series = series.clone();
        let mut value = series.inner.slot.clone();
        if series.is_overflow() {
            // Its last word counts look-ups.
            value = value.first(value_words(&series.spec().kind));
        }
        let guard = series.store.guard.clone();
        let bounds = match &series.spec().kind {
            Kind::Histogram { bounds } => bounds.clone(),
            _ => Arc::default(),
        };
        let of = Of {
            series,
            bounds,
            attached,
        };
        let pinned = Pinned::new(value, guard, of);
        Cell(pinned.expect("a store's guard is a page"))
    }

    fn attach<B>(&self, attached: B) -> Cell<B> {
        Cell::new(&self.0.more().series, attached)
    }

    /// The words, once they are this process'.
    #[inline]
    fn words(&self) -> Option<&[AtomicU64]> {
        let ready = self.0.guard().load(Ordering::Relaxed) != 0 || self.0.more().series.store.ready();
        ready.then(|| self.0.value())
    }

    #[cold]
    fn invalid(&self) {
        let store = &self.0.more().series.store;
        if store.ready() {
            store.count(header::INVALID);
        }
    }
}

/// Attaches data to a cell, so that a handle of both has one reference count instead of two.
macro_rules! attached {
    ($($cell:ident { $inner:tt $(, $field:ident)* })*) => {$(
        impl<A> $cell<A> {
            /// The same cell, with something of its user's.
            #[must_use]
            pub fn attach<B>(&self, attached: B) -> $cell<B> {
                $cell {
                    $inner: self.$inner.attach(attached),
                    $($field: self.$field.clone(),)*
                }
            }

            /// The attached data.
            #[inline]
            pub fn attached(&self) -> &A {
                &self.$inner.0.more().attached
            }
        }
    )*};
}

attached! {
    CounterCell { 0 }
    UpDownCell { 0 }
    FloatCell { cell, counts }
    HistogramCell { 0 }
    ExponentialCell { 0 }
    SummaryCell { 0 }
}

#[inline]
pub(crate) fn add_float(word: &AtomicU64, by: f64) {
    let mut current = word.load(Ordering::Relaxed);
    loop {
        let sum = (f64::from_bits(current) + by).to_bits();
        match word.compare_exchange_weak(current, sum, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => current = now,
        }
    }
}

/// Adds the words of another value of the same series; `old` gives them. A gauge that was set here since keeps its
/// value.
pub(crate) fn carry_over(kind: &Kind, words: &[AtomicU64], old: impl Fn(usize) -> u64) {
    let add = |at: usize| {
        words[at].fetch_add(old(at), Ordering::Relaxed);
    };
    let add_f = |at: usize| add_float(&words[at], f64::from_bits(old(at)));
    match kind {
        Kind::Counter | Kind::UpDownCounter => add(0),
        Kind::FloatCounter => add_f(0),
        Kind::Gauge(mode) => {
            let unset = words[0].compare_exchange(0, old(0), Ordering::Relaxed, Ordering::Relaxed);
            if mode.is_most_recent() && unset.is_ok() {
                words[1].fetch_max(old(1), Ordering::Relaxed);
            }
        }
        Kind::Histogram { bounds } => {
            (1..bounds.len() + 2).for_each(add);
            add_f(0);
        }
        Kind::ExponentialHistogram { .. } => exponential::add(words, &exponential::decode(&old)),
        Kind::Summary => {
            add(0);
            add_f(1);
        }
    }
    if words.len() > value_words(kind) {
        add(value_words(kind)); // look-ups of the overflow series
    }
}

fn word(words: Option<&[AtomicU64]>, at: usize) -> u64 {
    words
        .and_then(|words| words.get(at))
        .map_or(0, |word| word.load(Ordering::Relaxed))
}

/// Counts: one atomic addition.
#[derive(Clone, Debug)]
pub struct CounterCell<A = ()>(Cell<A>);

impl<A> CounterCell<A> {
    /// Adds.
    #[inline]
    pub fn add(&self, by: u64) {
        if let Some([value, ..]) = self.0.words() {
            value.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        word(self.0.words(), 0)
    }
}

/// Counts up and down.
#[derive(Clone, Debug)]
pub struct UpDownCell<A = ()>(Cell<A>);

impl<A> UpDownCell<A> {
    /// Adds.
    #[inline]
    pub fn add(&self, by: i64) {
        if let Some([value, ..]) = self.0.words() {
            value.fetch_add(by as u64, Ordering::Relaxed); // two's complement
        }
    }

    /// Its value.
    pub fn get(&self) -> i64 {
        word(self.0.words(), 0) as i64
    }
}

/// A gauge, or a counter of fractions.
#[derive(Clone, Debug)]
pub struct FloatCell<A = ()> {
    cell: Cell<A>,
    counts: bool,
}

impl<A> FloatCell<A> {
    /// Adds to the value. A counter refuses a negative value, NaN and +Inf, and counts it as invalid.
    #[inline]
    pub fn add(&self, by: f64) {
        if self.counts && !(0.0..f64::INFINITY).contains(&by) {
            return self.cell.invalid();
        }
        self.add_checked(by);
    }

    /// Adds as `prometheus_client` does: +Inf makes a counter +Inf from then on. Less than zero and NaN are not added to a
    /// counter but counted as invalid.
    #[inline]
    pub fn add_or_saturate(&self, by: f64) {
        if self.counts && !(0.0..=f64::INFINITY).contains(&by) {
            return self.cell.invalid();
        }
        self.add_checked(by);
    }

    #[inline]
    fn add_checked(&self, by: f64) {
        match self.cell.words() {
            Some([value]) => add_float(value, by),
            Some([value, time, ..]) => {
                add_float(value, by);
                time.store(now_ns(), Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// Sets a gauge. Of a counter it is invalid.
    #[inline]
    pub fn set(&self, to: f64) {
        if self.counts {
            return self.cell.invalid();
        }
        match self.cell.words() {
            Some([value]) => value.store(to.to_bits(), Ordering::Relaxed),
            Some([value, time, ..]) => {
                value.store(to.to_bits(), Ordering::Relaxed);
                time.store(now_ns(), Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// Sets it to zero, a counter too: for a component that restarts within its process.
    pub fn reset(&self) {
        if let Some([value, ..]) = self.cell.words() {
            value.store(0, Ordering::Relaxed); // the bits of 0.0
        }
    }

    /// Its value.
    pub fn get(&self) -> f64 {
        f64::from_bits(word(self.cell.words(), 0))
    }
}

/// More bounds than that are searched by halving.
const LINEAR_BOUNDS: usize = 32;

/// A histogram: one atomic addition to a bucket, one to the sum.
#[derive(Clone, Debug)]
pub struct HistogramCell<A = ()>(Cell<A>);

impl<A> HistogramCell<A> {
    /// Counts a value. NaN is counted as invalid instead.
    #[inline]
    pub fn observe(&self, value: f64) {
        if value.is_nan() {
            return self.0.invalid();
        }
        let bounds = self.bounds();
        // Comparing with all is quicker than halving as long as there are few, and has no branches to foresee.
        let bucket = if bounds.len() <= LINEAR_BOUNDS {
            bounds.iter().map(|bound| usize::from(value > *bound)).sum()
        } else {
            bounds.partition_point(|bound| value > *bound)
        };
        if let Some([sum, buckets @ ..]) = self.0.words()
            && let Some(count) = buckets.get(bucket)
        {
            count.fetch_add(1, Ordering::Relaxed);
            add_float(sum, value);
        }
    }

    /// Upper bounds, without +Inf.
    #[inline]
    pub fn bounds(&self) -> &Arc<[f64]> {
        &self.0.0.more().bounds
    }

    /// Its value.
    pub fn snapshot(&self) -> Value {
        let words = self.0.words();
        Value::Histogram {
            buckets: (0..=self.bounds().len())
                .map(|bucket| word(words, bucket + 1))
                .collect(),
            sum: f64::from_bits(word(words, 0)),
        }
    }
}

/// An exponential histogram: one atomic addition to a bucket, one to the sum, and some microseconds when the scale
/// falls. No thread ever waits for another.
#[derive(Clone, Debug)]
pub struct ExponentialCell<A = ()>(Cell<A>);

impl<A> ExponentialCell<A> {
    /// Counts a value. A value that is not finite is counted as invalid instead.
    #[inline]
    pub fn observe(&self, value: f64) {
        if !value.is_finite() {
            return self.0.invalid();
        }
        if let Some(words) = self.0.words()
            && !exponential::observe(words, value)
        {
            self.0.invalid();
        }
    }

    /// Its value.
    pub fn snapshot(&self) -> Value {
        let words = self.0.words();
        Value::Exponential(Box::new(
            words.map_or_else(ExponentialHistogram::empty, exponential::load),
        ))
    }
}

/// A count and a sum.
#[derive(Clone, Debug)]
pub struct SummaryCell<A = ()>(Cell<A>);

impl<A> SummaryCell<A> {
    /// Counts a value. NaN is counted as invalid instead.
    #[inline]
    pub fn observe(&self, value: f64) {
        if value.is_nan() {
            return self.0.invalid();
        }
        if let Some([count, sum, ..]) = self.0.words() {
            count.fetch_add(1, Ordering::Relaxed);
            add_float(sum, value);
        }
    }

    /// Its value.
    pub fn snapshot(&self) -> Value {
        let words = self.0.words();
        Value::Summary {
            count: word(words, 0),
            sum: f64::from_bits(word(words, 1)),
        }
    }
}

impl Series {
    fn wrong(&self) -> Error {
        Error::Instrument {
            actual: self.spec().kind.name(),
        }
    }

    /// The cell of a counter.
    ///
    /// # Errors
    /// [`Error::Instrument`].
    pub fn counter(&self) -> Result<CounterCell, Error> {
        match self.spec().kind {
            Kind::Counter => Ok(CounterCell(Cell::new(self, ()))),
            _ => Err(self.wrong()),
        }
    }

    /// The cell of an up-down counter.
    ///
    /// # Errors
    /// [`Error::Instrument`].
    pub fn up_down(&self) -> Result<UpDownCell, Error> {
        match self.spec().kind {
            Kind::UpDownCounter => Ok(UpDownCell(Cell::new(self, ()))),
            _ => Err(self.wrong()),
        }
    }

    /// The cell of a gauge or a float counter.
    ///
    /// # Errors
    /// [`Error::Instrument`].
    pub fn float(&self) -> Result<FloatCell, Error> {
        let counts = match self.spec().kind {
            Kind::FloatCounter => true,
            Kind::Gauge(_) => false,
            _ => return Err(self.wrong()),
        };
        Ok(FloatCell {
            cell: Cell::new(self, ()),
            counts,
        })
    }

    /// The cell of a histogram.
    ///
    /// # Errors
    /// [`Error::Instrument`].
    pub fn histogram(&self) -> Result<HistogramCell, Error> {
        match self.spec().kind {
            Kind::Histogram { .. } => Ok(HistogramCell(Cell::new(self, ()))),
            _ => Err(self.wrong()),
        }
    }

    /// The cell of an exponential histogram.
    ///
    /// # Errors
    /// [`Error::Instrument`].
    pub fn exponential(&self) -> Result<ExponentialCell, Error> {
        match self.spec().kind {
            Kind::ExponentialHistogram { .. } => Ok(ExponentialCell(Cell::new(self, ()))),
            _ => Err(self.wrong()),
        }
    }

    /// The cell of a summary.
    ///
    /// # Errors
    /// [`Error::Instrument`].
    pub fn summary(&self) -> Result<SummaryCell, Error> {
        match self.spec().kind {
            Kind::Summary => Ok(SummaryCell(Cell::new(self, ()))),
            _ => Err(self.wrong()),
        }
    }
}
