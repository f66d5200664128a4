// SPDX-License-Identifier: Apache-2.0

//! Observations of events by bucket.

use std::hint::black_box;
use std::sync::Arc;

/// Observations of many kinds, each by the bounds of its rules: chained by kind. Entry 0 means "none".
#[derive(Debug, Default)]
pub(crate) struct BucketSets(Vec<Buckets>);

/// Observations of one kind by the bounds of one rule.
#[derive(Debug)]
struct Buckets {
    table: Arc<BucketTable>,
    /// Whole observations since the last drain.
    counts: Vec<u64>,
    /// Weighted observations; whole ones move to `counts` when drained, the fraction stays. Empty until needed.
    fractions: Vec<f64>,
    next: u32,
}

/// Bucket bounds with a short way to the bucket of a whole number.
#[derive(Debug)]
pub(crate) struct BucketTable {
    bounds: Arc<[f64]>,
    /// Largest whole number in each bucket but the last.
    whole: Vec<u64>,
    /// By the number of bits of a value: the first bucket that it can be in.
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

    /// The first bucket that a number with this many bits can be in.
    #[inline(always)]
    fn first(&self, value: u64) -> usize {
        self.by_bits[(64 - value.leading_zeros()) as usize] as usize
    }

    #[inline(always)]
    fn of_whole(&self, value: u64) -> usize {
        let mut bucket = self.first(value);
        while self.whole.get(bucket).is_some_and(|upper| value > *upper) {
            bucket += 1;
        }
        bucket
    }

    fn of_double(&self, value: f64) -> usize {
        self.bounds.partition_point(|bound| *bound < value)
    }
}

impl BucketSets {
    /// Buckets more, before those of `next` in its chain. Gives their id, which is the chain's from now on.
    pub(super) fn add(&mut self, table: Arc<BucketTable>, next: u32) -> u32 {
        if self.0.is_empty() {
            let none = Arc::new(BucketTable::new(Arc::from([])));
            self.0.push(Buckets::new(none, 0));
        }
        self.0.push(Buckets::new(table, next));
        self.0.len() as u32 - 1
    }

    /// Loads the buckets that these values, each in the buckets of its chain, will change. It takes each level of
    /// indirection for all values at once.
    pub(super) fn touch(&self, observed: impl Iterator<Item = (u32, u64)> + Clone) {
        let buckets = |chain: u32| self.0.get(chain as usize);
        let next = |(chain, _)| buckets(chain).map_or(0, |buckets| buckets.next);
        black_box(observed.clone().map(next).fold(0, |all, one| all ^ one));
        let first = |(chain, value)| buckets(chain).map_or(0, |buckets| buckets.table.first(value));
        black_box(observed.clone().map(first).fold(0, |all, one| all ^ one));
        let count = |(chain, value)| {
            let buckets = buckets(chain)?;
            buckets.counts.get(buckets.table.first(value))
        };
        black_box(observed.filter_map(count).fold(0, |all, one| all ^ one));
    }

    #[inline(always)]
    pub(super) fn observe_whole(&mut self, mut chain: u32, value: u64) {
        while chain != 0 {
            let buckets = &mut self.0[chain as usize];
            buckets.counts[buckets.table.of_whole(value)] += 1;
            chain = buckets.next;
        }
    }

    pub(super) fn observe_weighted(&mut self, mut chain: u32, value: f64, weight: f64) {
        while chain != 0 {
            let buckets = &mut self.0[chain as usize];
            buckets.add_weighted(value, weight);
            chain = buckets.next;
        }
    }

    /// Observations since the last drain.
    pub(crate) fn counts(&mut self, id: u32) -> &[u64] {
        match self.0.get_mut(id as usize) {
            Some(buckets) => buckets.carry(),
            None => &[],
        }
    }

    pub(super) fn clear(&mut self, mut chain: u32) {
        while let Some(buckets) = self.0.get_mut(chain as usize).filter(|_| chain != 0) {
            buckets.counts.fill(0);
            chain = buckets.next;
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

    fn carry(&mut self) -> &[u64] {
        for (count, fraction) in self.counts.iter_mut().zip(&mut self.fractions) {
            // A sum of ten weights of 0.1 is a hair below 1: rounding up a hair keeps it whole.
            let whole = (*fraction + 1e-9).floor();
            *count = count.saturating_add(whole as u64);
            *fraction -= whole;
        }
        &self.counts
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
}
