// SPDX-License-Identifier: Apache-2.0

//! Folding: one pass over the columns of a batch gives a few numbers per kind, so that state is updated once per kind.

mod buckets;
mod double;

use std::sync::Arc;

pub(crate) use buckets::{BucketSets, BucketTable};
use double::Double;

use crate::{Events, Number, UnixNanos, Values};

/// Whole values at or above this are nonsense (a negative duration read as unsigned, say) and are counted as invalid.
pub(crate) const MAX_WHOLE_VALUE: u64 = 1 << 63;

/// Events whose state is loaded together: more than there can be misses under way at a time.
const TOUCHED: usize = 128;

/// State of fewer kinds than this is near in any case.
const TOUCH_FROM: usize = 4096;

/// Running statistics by kind. They accumulate over as many batches as one likes until they are drained.
#[derive(Debug, Default)]
pub(crate) struct Folds {
    /// By kind.
    briefs: Vec<Brief>,
    /// Statistics of the kinds that need more than a [`Brief`].
    whole: Vec<Whole>,
    /// Values still to be added to `whole`; empty between calls, but keeps its capacity.
    later: Vec<Later>,
    /// By kind; empty until doubles come.
    double: Vec<Double>,
    /// By (kind, rule), entered by `observe`.
    buckets: BucketSets,
    dirty: Vec<u16>,
}

/// The sum or last value of a kind, which most kinds need. Four fit into a cache line: with many kinds, each access is
/// a cache miss.
#[derive(Clone, Copy, Debug)]
struct Brief {
    /// If `stamp` is `ELSEWHERE`, the index of the kind in `Folds::whole`.
    number: u64,
    /// The newest time and 1, or 0: nothing since the last drain; and `LAST` where the last value is kept.
    stamp: u64,
}

/// Says in a stamp that the number is the last value instead of the sum: times end before, in the year 2262.
const LAST: u64 = 1 << 63;

/// A stamp that no time has.
const ELSEWHERE: u64 = u64::MAX;

/// All statistics of whole values: a cache line a kind.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Whole {
    sum: u128,
    count: u64,
    min: u64,
    max: u64,
    last: u64,
    /// The stamp, as in [`Brief`].
    stamp: u64,
    observe: u32,
    kind: u16,
}

/// A value, and its index in `Folds::whole`.
#[derive(Clone, Copy, Debug)]
struct Later {
    place: usize,
    value: u64,
    stamp: u64,
}

/// The statistics of one kind since the last drain. A kind without further needs has only the sum and the time.
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

impl Brief {
    const EMPTY: Self = Self { number: 0, stamp: 0 };
}

impl Whole {
    const EMPTY: Self = Self {
        sum: 0,
        count: 0,
        min: u64::MAX,
        max: 0,
        last: 0,
        stamp: 0,
        observe: 0,
        kind: 0,
    };
}

impl Folds {
    /// Makes room for `kinds` kinds, with a sum each; existing ones keep their statistics.
    pub(crate) fn grow(&mut self, kinds: usize) {
        if self.briefs.len() < kinds {
            self.briefs.resize(kinds, Brief::EMPTY);
        }
    }

    /// Room for kinds up to `kinds`, of each everything.
    pub(crate) fn grow_detailed(&mut self, kinds: usize) {
        let known = self.briefs.len();
        self.grow(kinds);
        (known..kinds).for_each(|kind| self.detail(kind));
    }

    /// Keeps the last value of a new kind instead of its sum.
    pub(crate) fn keep_last(&mut self, kind: u16) {
        if let Some(fold) = self.briefs.get_mut(usize::from(kind)) {
            fold.stamp |= LAST;
        }
    }

    /// Keeps everything of a kind from now on.
    pub(crate) fn detail(&mut self, kind: usize) {
        self.whole_of(kind);
    }

    fn whole_of(&mut self, kind: usize) -> Option<&mut Whole> {
        let place = self.whole_index(kind)?;
        self.whole.get_mut(place)
    }

    fn whole_index(&mut self, kind: usize) -> Option<usize> {
        let fold = self.briefs.get_mut(kind)?;
        if fold.stamp != ELSEWHERE {
            self.whole.push(Whole {
                sum: u128::from(fold.number),
                stamp: fold.stamp & !LAST,
                kind: kind as u16,
                ..Whole::EMPTY
            });
            *fold = Brief {
                number: self.whole.len() as u64 - 1,
                stamp: ELSEWHERE,
            };
        }
        Some(fold.number as usize)
    }

    /// Counts the observations of `kind` by `bounds` as well; the answer names the buckets when drained.
    pub(crate) fn observe(&mut self, kind: u16, table: Arc<BucketTable>) -> u32 {
        let Some(next) = self.whole_of(kind.into()).map(|fold| fold.observe) else {
            return 0;
        };
        let id = self.buckets.add(table, next);
        if let Some(fold) = self.whole_of(kind.into()) {
            fold.observe = id;
        }
        if let Some(double) = self.double.get_mut(usize::from(kind)) {
            double.observe = id;
        }
        id
    }

    /// Takes a batch in. `falls` says of a kind whether its values may be negative. Gives how many were invalid.
    pub(crate) fn add(&mut self, events: &Events, falls: impl Fn(usize) -> bool) -> usize {
        match (&events.values, &events.weights) {
            (Values::U64(values), None) => match &events.times {
                Some(times) => self.add_words(&events.kinds, values, times.iter().copied()),
                None => self.add_words(&events.kinds, values, std::iter::repeat(events.arrived())),
            },
            _ => self.add_doubles(events, falls),
        }
    }

    fn add_words(
        &mut self,
        kinds: &[u16],
        values: &[u64],
        mut times: impl Iterator<Item = UnixNanos>,
    ) -> usize {
        let mut valid = 0;
        for (kinds, values) in kinds.chunks(TOUCHED).zip(values.chunks(TOUCHED)) {
            self.touch(kinds);
            for ((kind, value), time) in kinds.iter().zip(values).zip(times.by_ref()) {
                valid += usize::from(*value < MAX_WHOLE_VALUE && self.add_one(*kind, *value, stamp(time)));
            }
            if !self.later.is_empty() {
                self.add_noted();
            }
        }
        kinds.len() - valid
    }

    /// Loads the state of the next events at once: the cache misses of one event are serial, those of many overlap.
    /// That needs a loop without other work, and without branches on the loaded values.
    fn touch(&self, kinds: &[u16]) {
        if self.briefs.len() > TOUCH_FROM {
            let brief = |kind: &u16| self.briefs.get(usize::from(*kind)).map_or(0, |fold| fold.stamp);
            std::hint::black_box(kinds.iter().map(brief).fold(0, |all, one| all ^ one));
        }
    }

    /// Adds a value, or notes it for [`Self::add_noted`].
    // Part of the loop, which else does not load ahead of a call.
    #[inline(always)]
    fn add_one(&mut self, kind: u16, value: u64, stamp: u64) -> bool {
        let Some(fold) = self.briefs.get_mut(usize::from(kind)) else {
            return false;
        };
        let keeps_last = fold.stamp & LAST;
        let number = match keeps_last {
            0 => fold.number.checked_add(value),
            _ if fold.stamp == ELSEWHERE => None,
            _ => Some(value),
        };
        let Some(number) = number else {
            self.note(kind, value, stamp);
            return true;
        };
        if fold.stamp == keeps_last {
            self.dirty.push(kind);
        }
        *fold = Brief {
            number,
            stamp: fold.stamp.max(stamp | keeps_last),
        };
        true
    }

    /// Notes a value of a kind of which more is kept, or whose sum has become too large for a word.
    fn note(&mut self, kind: u16, value: u64, stamp: u64) {
        if let Some(place) = self.whole_index(kind.into()) {
            self.later.push(Later { place, value, stamp });
        }
    }

    /// Adds the noted values in a loop of its own: the more of them it sees ahead, the more of their misses overlap.
    fn add_noted(&mut self) {
        let later = std::mem::take(&mut self.later);
        if self.whole.len() > TOUCH_FROM {
            let chain = |later: &Later| self.whole.get(later.place).map_or(0, |fold| fold.observe);
            std::hint::black_box(later.iter().map(chain).fold(0, |all, one| all ^ one));
            self.buckets
                .touch(later.iter().map(|later| (chain(later), later.value)));
        }
        for Later { place, value, stamp } in &later {
            let Some(fold) = self.whole.get_mut(*place) else {
                continue;
            };
            if fold.stamp == 0 {
                self.dirty.push(fold.kind);
            }
            fold.add(*value, *stamp);
            self.buckets.observe_whole(fold.observe, *value);
        }
        self.later = later;
        self.later.clear();
    }

    fn add_doubles(&mut self, events: &Events, falls: impl Fn(usize) -> bool) -> usize {
        self.grow_doubles(falls);
        let mut invalid = 0;
        for (at, kind) in events.kinds.iter().enumerate() {
            let value = events.values.get(at).unwrap_or(f64::NAN);
            invalid += usize::from(!self.add_double(*kind, value, events.weight(at), events.time(at)));
        }
        invalid
    }

    fn grow_doubles(&mut self, falls: impl Fn(usize) -> bool) {
        for kind in self.double.len()..self.briefs.len() {
            let observe = self.detail_of(kind).map_or(0, |fold| fold.observe);
            self.double.push(Double::new(observe, falls(kind)));
        }
    }

    fn add_double(&mut self, kind: u16, value: f64, weight: f64, time: UnixNanos) -> bool {
        let Some(fold) = self.double.get_mut(usize::from(kind)) else {
            return false;
        };
        if !fold.takes(value, weight) {
            return false;
        }
        if fold.is_empty() {
            self.dirty.push(kind);
        }
        fold.add(value, weight, time);
        self.buckets.observe_weighted(fold.observe, value, weight);
        true
    }

    /// Shows `each` the statistics of every kind that changed since the last drain, and starts afresh.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(usize, Folded, &mut BucketSets)) {
        // The cells of one source are mostly in the order of its kinds.
        self.dirty.sort_unstable();
        for kind in self.dirty.drain(..) {
            let kind = usize::from(kind);
            let whole = self.briefs.get_mut(kind).and_then(|fold| match fold.stamp {
                ELSEWHERE => self.whole.get_mut(fold.number as usize)?.take(),
                _ => fold.take(),
            });
            let double = self.double.get_mut(kind).and_then(Double::take);
            for folded in whole.into_iter().chain(double) {
                each(kind, folded, &mut self.buckets);
                self.buckets.clear(folded.observe);
            }
        }
    }

    fn detail_of(&self, kind: usize) -> Option<&Whole> {
        let fold = self.briefs.get(kind)?;
        self.whole
            .get(fold.number as usize)
            .filter(|_| fold.stamp == ELSEWHERE)
    }

    /// Whether nothing was added since the last drain.
    pub(crate) fn is_clean(&self) -> bool {
        self.dirty.is_empty()
    }
}

/// See [`Brief::stamp`].
fn stamp(time: UnixNanos) -> u64 {
    time.saturating_add(1).min(LAST - 2)
}

impl Brief {
    fn take(&mut self) -> Option<Folded> {
        const UNKNOWN: Number = Number::Double(f64::NAN);
        let Self { number, stamp } = *self;
        let (keeps_last, number) = (stamp & LAST, Number::from(u128::from(number)));
        *self = Self {
            number: 0,
            stamp: keeps_last,
        };
        (stamp != keeps_last).then(|| Folded {
            count: f64::NAN,
            sum: if keeps_last == 0 { number } else { UNKNOWN },
            min: f64::NAN,
            max: f64::NAN,
            last: if keeps_last == 0 { UNKNOWN } else { number },
            time: (stamp ^ keeps_last) - 1,
            observe: 0,
        })
    }
}

impl Whole {
    #[inline(always)]
    fn add(&mut self, value: u64, stamp: u64) {
        self.sum += u128::from(value);
        self.count += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.last = value;
        self.stamp = self.stamp.max(stamp);
    }

    fn take(&mut self) -> Option<Folded> {
        let kept = Self {
            observe: self.observe,
            kind: self.kind,
            ..Self::EMPTY
        };
        let taken = std::mem::replace(self, kept);
        (taken.stamp != 0).then(|| Folded {
            count: taken.count as f64,
            sum: Number::from(taken.sum),
            min: taken.min as f64,
            max: taken.max as f64,
            last: Number::from(u128::from(taken.last)),
            time: taken.stamp - 1,
            observe: taken.observe,
        })
    }
}

#[cfg(test)]
mod tests;
