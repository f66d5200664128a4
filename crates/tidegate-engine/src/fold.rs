//! Folding: one pass over the columns of a batch into a few numbers per kind, so that state is touched once a kind.

use std::sync::Arc;

use crate::{Events, Number, UnixNanos, Values};

/// Whole values at or above this are nonsense (a negative duration read as unsigned, say) and are counted as invalid.
pub(crate) const MAX_WHOLE_VALUE: u64 = 1 << 63;

/// Events whose state is loaded together.
const TOUCHED: usize = 16;

/// State of fewer kinds than this is near in any case.
const TOUCH_FROM: usize = 4096;

/// Running statistics by kind. They accumulate over as many batches as one likes until they are drained.
#[derive(Debug, Default)]
pub(crate) struct Folds {
    whole: Vec<Whole>,
    double: Vec<Double>,
    /// Buckets by (kind, rule); chained by `Buckets::next`, entered by `observe`. Entry 0 stands for "none".
    buckets: Vec<Buckets>,
    dirty: Vec<u16>,
}

/// Statistics of whole values: a cache line a kind.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Whole {
    sum: u128,
    count: u64,
    min: u64,
    max: u64,
    last: u64,
    time: UnixNanos,
    observe: u32,
}

/// Statistics of doubles and of weighted values.
#[derive(Clone, Copy, Debug)]
struct Double {
    sum: f64,
    count: f64,
    min: f64,
    max: f64,
    last: f64,
    time: UnixNanos,
    observe: u32,
    falls: bool,
}

/// Observations of one kind by the bounds of one rule.
#[derive(Debug)]
pub(crate) struct Buckets {
    table: Arc<BucketTable>,
    /// Whole observations since the last drain.
    pub(crate) counts: Vec<u64>,
    /// Weighted observations; whole ones move to `counts` when drained, the fraction stays. Empty until needed.
    fractions: Vec<f64>,
    next: u32,
}

/// What became of one kind since the last drain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Folded {
    pub(crate) count: f64,
    pub(crate) sum: Number,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) last: Number,
    pub(crate) time: UnixNanos,
    observe: u32,
}

/// Bucket bounds with a short way to the bucket of a whole number.
#[derive(Debug)]
pub(crate) struct BucketTable {
    pub(crate) bounds: Arc<[f64]>,
    /// Largest whole number in each bucket but the last.
    whole: Vec<u64>,
    /// First bucket that a number of so many bits can be in.
    by_bits: [u32; 65],
}

impl BucketTable {
    pub(crate) fn new(bounds: Arc<[f64]>) -> Self {
        let whole: Vec<u64> = bounds.iter().map(|bound| bound.max(0.0) as u64).collect();
        let reachable = bounds.partition_point(|bound| *bound < 0.0);
        let smallest = |bits: u32| if bits == 0 { 0 } else { 1u64 << (bits - 1) };
        let by_bits = std::array::from_fn(|bits| {
            let least = smallest(bits as u32);
            whole.partition_point(|upper| *upper < least).max(reachable) as u32
        });
        Self {
            bounds,
            whole,
            by_bits,
        }
    }

    fn of_whole(&self, value: u64) -> usize {
        let mut bucket = self.by_bits[(64 - value.leading_zeros()) as usize] as usize;
        while self.whole.get(bucket).is_some_and(|upper| value > *upper) {
            bucket += 1;
        }
        bucket
    }

    fn of_double(&self, value: f64) -> usize {
        self.bounds.partition_point(|bound| *bound < value)
    }
}

impl Whole {
    const EMPTY: Self = Self {
        sum: 0,
        count: 0,
        min: u64::MAX,
        max: 0,
        last: 0,
        time: 0,
        observe: 0,
    };
}

impl Double {
    const EMPTY: Self = Self {
        sum: 0.0,
        count: 0.0,
        min: f64::INFINITY,
        max: f64::NEG_INFINITY,
        last: 0.0,
        time: 0,
        observe: 0,
        falls: true,
    };
}

impl Folds {
    /// Room for kinds up to `kinds`; existing ones keep what they have.
    pub(crate) fn grow(&mut self, kinds: usize) {
        if self.whole.len() < kinds {
            self.whole.resize(kinds, Whole::EMPTY);
        }
    }

    /// Counts the observations of `kind` by `bounds` as well; the answer names the buckets when drained.
    pub(crate) fn observe(&mut self, kind: u16, table: Arc<BucketTable>) -> u32 {
        if self.buckets.is_empty() {
            self.buckets
                .push(Buckets::new(Arc::new(BucketTable::new(Arc::from([]))), 0));
        }
        let id = self.buckets.len() as u32;
        let Some(fold) = self.whole.get_mut(usize::from(kind)) else {
            return 0;
        };
        self.buckets.push(Buckets::new(table, fold.observe));
        fold.observe = id;
        if let Some(double) = self.double.get_mut(usize::from(kind)) {
            double.observe = id;
        }
        id
    }

    /// Takes a batch in. `falls` says of a kind whether its values may be negative. Gives how many were invalid.
    pub(crate) fn add(&mut self, events: &Events, falls: impl Fn(usize) -> bool) -> usize {
        match (&events.values, &events.weights) {
            (Values::U64(values), None) => match &events.times {
                Some(times) => self.add_whole(&events.kinds, values, times.iter().copied()),
                None => self.add_whole(&events.kinds, values, std::iter::repeat(events.observed)),
            },
            _ => self.add_doubles(events, falls),
        }
    }

    fn add_whole(
        &mut self,
        kinds: &[u16],
        values: &[u64],
        mut times: impl Iterator<Item = UnixNanos>,
    ) -> usize {
        let mut valid = 0;
        let is_large = self.whole.len() > TOUCH_FROM;
        for (kinds, values) in kinds.chunks(TOUCHED).zip(values.chunks(TOUCHED)) {
            if is_large {
                self.touch(kinds);
            }
            valid += self.add_some(kinds, values, times.by_ref());
        }
        kinds.len() - valid
    }

    /// Loads what the next events need, all at once: the misses of one wait for each other, those of many do not.
    fn touch(&self, kinds: &[u16]) {
        let of = |kind: &u16| self.whole.get(usize::from(*kind)).map_or(0, |fold| fold.observe);
        std::hint::black_box(kinds.iter().map(of).fold(0, |all, one| all ^ one));
    }

    fn add_some(&mut self, kinds: &[u16], values: &[u64], times: impl Iterator<Item = UnixNanos>) -> usize {
        let mut valid = 0;
        for ((kind, value), time) in kinds.iter().zip(values).zip(times) {
            let Some(fold) = self.whole.get_mut(usize::from(*kind)) else {
                continue;
            };
            if *value >= MAX_WHOLE_VALUE {
                continue;
            }
            valid += 1;
            if fold.count == 0 {
                self.dirty.push(*kind);
            }
            fold.count += 1;
            fold.sum += u128::from(*value);
            fold.min = fold.min.min(*value);
            fold.max = fold.max.max(*value);
            fold.last = *value;
            fold.time = fold.time.max(time);
            let mut at = fold.observe;
            while at != 0 {
                let buckets = &mut self.buckets[at as usize];
                let bucket = buckets.table.of_whole(*value);
                buckets.counts[bucket] += 1;
                at = buckets.next;
            }
        }
        valid
    }

    fn add_doubles(&mut self, events: &Events, falls: impl Fn(usize) -> bool) -> usize {
        self.grow_doubles(falls);
        let mut invalid = 0;
        for (at, kind) in events.kinds.iter().enumerate() {
            let time = events.times.as_ref().and_then(|times| times.get(at));
            let weight = events.weights.as_ref().and_then(|weights| weights.get(at));
            let (time, weight) = (*time.unwrap_or(&events.observed), *weight.unwrap_or(&1.0));
            let value = events.values.get(at).unwrap_or(f64::NAN);
            invalid += usize::from(!self.add_double(*kind, value, weight, time));
        }
        invalid
    }

    fn grow_doubles(&mut self, falls: impl Fn(usize) -> bool) {
        for kind in self.double.len()..self.whole.len() {
            let observe = self.whole[kind].observe;
            let falls = falls(kind);
            self.double.push(Double {
                observe,
                falls,
                ..Double::EMPTY
            });
        }
    }

    fn add_double(&mut self, kind: u16, value: f64, weight: f64, time: UnixNanos) -> bool {
        let Some(fold) = self.double.get_mut(usize::from(kind)) else {
            return false;
        };
        let sound = value.is_finite() && weight.is_finite() && weight > 0.0;
        if !sound || (value < 0.0 && !fold.falls) {
            return false;
        }
        if fold.count == 0.0 {
            self.dirty.push(kind);
        }
        fold.count += weight;
        fold.sum += value * weight;
        fold.min = fold.min.min(value);
        fold.max = fold.max.max(value);
        fold.last = value;
        fold.time = fold.time.max(time);
        let mut at = fold.observe;
        while at != 0 {
            let buckets = &mut self.buckets[at as usize];
            buckets.add_weighted(value, weight);
            at = buckets.next;
        }
        true
    }

    /// Shows `each` what has become of every kind that was touched since the last drain, and starts afresh.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(usize, Folded, &mut BucketSets<'_>)) {
        for kind in self.dirty.drain(..) {
            let kind = usize::from(kind);
            let whole = self.whole.get_mut(kind).and_then(Whole::take);
            let double = self.double.get_mut(kind).and_then(Double::take);
            for folded in whole.into_iter().chain(double) {
                let mut sets = BucketSets(&mut self.buckets);
                each(kind, folded, &mut sets);
                sets.clear(folded.observe);
            }
        }
    }

    /// Whether nothing was added since the last drain.
    pub(crate) fn is_clean(&self) -> bool {
        self.dirty.is_empty()
    }
}

/// The buckets of the kind being drained, by the id that `Folds::observe` gave.
pub(crate) struct BucketSets<'a>(&'a mut [Buckets]);

impl BucketSets<'_> {
    pub(crate) fn counts(&mut self, id: u32) -> &[u64] {
        match self.0.get_mut(id as usize) {
            Some(buckets) => buckets.settle(),
            None => &[],
        }
    }

    fn clear(&mut self, mut at: u32) {
        while let Some(buckets) = self.0.get_mut(at as usize).filter(|_| at != 0) {
            buckets.counts.fill(0);
            at = buckets.next;
        }
    }
}

impl Buckets {
    fn new(table: Arc<BucketTable>, next: u32) -> Self {
        Self {
            counts: vec![0; table.bounds.len() + 1],
            fractions: Vec::new(),
            table,
            next,
        }
    }

    fn add_weighted(&mut self, value: f64, weight: f64) {
        self.fractions.resize(self.counts.len(), 0.0);
        self.fractions[self.table.of_double(value)] += weight;
    }

    fn settle(&mut self) -> &[u64] {
        for (count, fraction) in self.counts.iter_mut().zip(&mut self.fractions) {
            // A sum of ten weights of 0.1 is a hair below 1: rounding up a hair keeps it whole.
            let whole = (*fraction + 1e-9).floor();
            *count = count.saturating_add(whole as u64);
            *fraction -= whole;
        }
        &self.counts
    }
}

impl Whole {
    fn take(&mut self) -> Option<Folded> {
        let taken = std::mem::replace(
            self,
            Self {
                observe: self.observe,
                ..Self::EMPTY
            },
        );
        (taken.count > 0).then(|| Folded {
            count: taken.count as f64,
            sum: Number::from(taken.sum),
            min: taken.min as f64,
            max: taken.max as f64,
            last: Number::from(u128::from(taken.last)),
            time: taken.time,
            observe: taken.observe,
        })
    }
}

impl Double {
    fn take(&mut self) -> Option<Folded> {
        let kept = Self {
            observe: self.observe,
            falls: self.falls,
            ..Self::EMPTY
        };
        let taken = std::mem::replace(self, kept);
        (taken.count > 0.0).then_some(Folded {
            count: taken.count,
            sum: Number::Double(taken.sum),
            min: taken.min,
            max: taken.max,
            last: Number::Double(taken.last),
            time: taken.time,
            observe: taken.observe,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_short_way_to_a_bucket_leads_where_the_definition_does(
            bounds in prop::collection::btree_set(-50i32..2000, 0..20),
            values in prop::collection::vec(0u64..2100, 1..50),
        ) {
            let bounds: Arc<[f64]> = bounds.iter().map(|bound| f64::from(*bound) / 2.0).collect();
            let table = BucketTable::new(bounds);
            for value in values {
                prop_assert_eq!(table.of_whole(value), table.of_double(value as f64));
            }
        }
    }

    #[test]
    fn fractions_of_weighted_observations_are_kept_for_the_next_drain() {
        let mut folds = Folds::default();
        folds.grow(1);
        let id = folds.observe(0, Arc::new(BucketTable::new(Arc::from([1.0]))));
        folds.grow_doubles(|_| false);
        let mut drained = Vec::new();
        for _ in 0..3 {
            folds.add_double(0, 0.5, 2.5, 7);
            folds.drain(|_, _, sets| drained.push(sets.counts(id)[0]));
        }
        assert_eq!(drained, [2, 3, 2]);
        assert!(!folds.add_double(0, -1.0, 1.0, 7) && !folds.add_double(0, f64::NAN, 1.0, 7));
    }
}
