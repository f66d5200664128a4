// SPDX-License-Identifier: Apache-2.0

//! Series by their label values, found without a lock. It is an open-addressed table whose entries are written once. A
//! full table is replaced by a larger one without the ended series.

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;

use crate::family::SeriesInner;

const FIRST_SIZE: usize = 8;

#[derive(Debug)]
struct SeriesTable {
    places: Box<[OnceLock<Arc<SeriesInner>>]>,
    /// The number of filled entries; changed under the lock of stores.
    used: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct Table {
    places: ArcSwap<SeriesTable>,
    hasher: foldhash::fast::RandomState,
}

impl Table {
    pub(crate) fn new() -> Self {
        Table {
            places: ArcSwap::from_pointee(SeriesTable::new(FIRST_SIZE)),
            hasher: foldhash::fast::RandomState::default(),
        }
    }

    pub(crate) fn hash<S: AsRef<str>>(&self, values: &[S]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        for value in values {
            hasher.write(value.as_ref().as_bytes());
            hasher.write_u8(0xff); // in no UTF-8
        }
        hasher.finish()
    }

    pub(crate) fn find<S: AsRef<str>>(&self, hash: u64, values: &[S]) -> Option<Arc<SeriesInner>> {
        let places = self.places.load();
        let is_it = |series: &&Arc<SeriesInner>| {
            let same = series.labels.iter().zip(values).all(|(a, b)| **a == *b.as_ref());
            series.hash == hash && same && !series.ended.load(Ordering::Acquire)
        };
        let filled = places.from(hash).map_while(OnceLock::get);
        filled.into_iter().find(is_it).cloned()
    }

    /// Adds a series; `live` are all of the family without it. Under the lock of stores.
    pub(crate) fn insert(&self, series: Arc<SeriesInner>, live: &[Arc<SeriesInner>]) {
        let places = self.places.load();
        if places.used.load(Ordering::Relaxed) * 2 < places.places.len() {
            places.put(series);
            return;
        }
        let larger = SeriesTable::new(((live.len() + 1) * 4).next_power_of_two().max(FIRST_SIZE));
        live.iter()
            .cloned()
            .chain([series])
            .for_each(|series| larger.put(series));
        self.places.store(Arc::new(larger));
    }
}

impl SeriesTable {
    fn new(size: usize) -> Self {
        SeriesTable {
            places: (0..size).map(|_| OnceLock::new()).collect(),
            used: AtomicUsize::new(0),
        }
    }

    /// The places where a hash may be, best first. The number of places is a power of two.
    fn from(&self, hash: u64) -> impl Iterator<Item = &OnceLock<Arc<SeriesInner>>> {
        let start = hash as usize & (self.places.len() - 1);
        let (before, after) = self.places.split_at(start);
        after.iter().chain(before)
    }

    fn put(&self, series: Arc<SeriesInner>) {
        self.used.fetch_add(1, Ordering::Relaxed);
        let mut series = Some(series);
        for place in self.from(series.as_ref().map_or(0, |series| series.hash)) {
            match series.take() {
                // At most half are filled, so there is a free one.
                Some(next) => series = place.set(next).err(),
                None => return,
            }
        }
    }
}
