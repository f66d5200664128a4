// SPDX-License-Identifier: Apache-2.0

//! The epochs of one cumulative stream that began before its newest one.
//!
//! Several epochs are alive at the same time where several processes report as one series. Each has its own
//! last value, so that each adds only its own increase.
//!
//! Invariant: `list` is sorted by start and has each start once. The newest epoch of the stream is not in it.

use super::LastValue;
use crate::bytes::{number, take};
use crate::cadence::lease_by_gap_ns;
use crate::{Number, UnixNanos};

/// The most epochs of one stream beside the newest. A service of up to this many processes under one identity is added
/// up exactly; an entry of a counter takes 48 bytes.
const MAX_EPOCHS: usize = 4096;

/// An epoch that has been silent for this long is forgotten when another one begins: 1 h.
const MEMORY_NS: u64 = 3_600_000_000_000;

/// A total that falls and is back at its peak after at most this many values counts as a return.
const VALUES_TO_RETURN: u8 = 16;

/// From this many returns on, the falls are not restarts but several processes.
const TELLING_RETURNS: u8 = 3;

/// The way in which the epochs of a stream collide: several processes report as one series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Collision {
    /// Their start times distinguish them: they are added up.
    Interleaved,
    /// Their start time is unknown or the same: every fall counts as a restart, so the total may be too high.
    Indistinct,
    /// An epoch came back that was forgotten, or began before a forgotten one: only its increases from now
    /// on count.
    Forgotten,
}

impl Collision {
    /// All of them, in the order of their counters.
    pub const ALL: [Self; 3] = [Self::Interleaved, Self::Indistinct, Self::Forgotten];

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Interleaved => "interleaved",
            Self::Indistinct => "indistinct",
            Self::Forgotten => "forgotten",
        }
    }
}

/// One epoch of a cumulative stream.
#[derive(Clone, Debug)]
pub(super) struct Epoch {
    pub(super) start: UnixNanos,
    pub(super) time: UnixNanos,
    /// Nanoseconds between its last two samples; 0: it has one.
    pub(super) gap: u64,
    pub(super) last: LastValue,
}

impl Epoch {
    /// Whether a sum that may fall still counts it.
    fn is_overdue(&self, newest: UnixNanos) -> bool {
        is_overdue(self.time, self.gap, newest)
    }
}

/// Whether the lease of an epoch is over at `newest`. `time` is that of its last sample, `gap` the time since the one
/// before. The last gap replaces the cadence, which needs three pushes and 64 bytes per epoch. The lease is an hour at
/// most.
pub(super) fn is_overdue(time: UnixNanos, gap: u64, newest: UnixNanos) -> bool {
    newest.saturating_sub(time) > lease_by_gap_ns(gap).min(MEMORY_NS)
}

/// Bytes of one epoch, without those that its last value allocates.
pub(super) const EPOCH_BYTES: usize = size_of::<Epoch>();

/// The epochs of one stream beside the newest, and the signs that its processes collide.
#[derive(Clone, Debug, Default)]
pub(super) struct Epochs {
    /// Sorted by start.
    list: Vec<Epoch>,
    /// Epochs that began at this time or before may have been forgotten.
    forgotten_until: UnixNanos,
    /// The time of the latest sample of any epoch that is or was in the list.
    pub(super) newest: UnixNanos,
    /// Two epochs were alive at the same time.
    pub(super) are_interleaved: bool,
    /// The total before its last fall without a new start time, and the values within which it may return.
    pub(super) peak: Option<(f64, u8)>,
    /// Number of returns to the peak.
    returns: u8,
    /// Nanoseconds between the last two samples of the newest epoch of the stream; 0: it has one.
    pub(super) current_gap: u64,
    /// Collisions so far, by bit of `Collision as u8`.
    seen: u8,
    /// Collisions that `take_unreported` has not returned yet.
    unreported: u8,
}

impl Epochs {
    /// Whether they equal the default, so that they can be freed.
    pub(super) fn hold_nothing(&self) -> bool {
        let times = [self.forgotten_until, self.newest, self.current_gap];
        let marks = [self.returns, self.seen, self.unreported];
        self.list.is_empty()
            && times == [0; 3]
            && marks == [0; 3]
            && !self.are_interleaved
            && self.peak.is_none()
    }

    /// Bytes that they have allocated; `are_numbers`: their last values allocate none.
    pub(super) fn bytes(&self, are_numbers: bool) -> usize {
        let list = self.list.capacity() * EPOCH_BYTES;
        if are_numbers {
            list
        } else {
            list + self.list.iter().map(|epoch| epoch.last.bytes()).sum::<usize>()
        }
    }

    pub(super) fn forgotten_until(start: UnixNanos) -> Self {
        Self {
            forgotten_until: start,
            ..Self::default()
        }
    }

    pub(super) fn find(&self, start: UnixNanos) -> Option<&Epoch> {
        self.position(start).ok().and_then(|at| self.list.get(at))
    }

    /// Whether an epoch that is not in the list may be a forgotten one.
    pub(super) fn may_have_forgotten(&self, start: UnixNanos) -> bool {
        start <= self.forgotten_until
    }

    /// Whether the list is full and all its epochs have samples since `oldest`.
    pub(super) fn are_full(&self, oldest: UnixNanos) -> bool {
        self.list.len() >= MAX_EPOCHS && self.list.iter().all(|epoch| epoch.time >= oldest)
    }

    /// Whether the next sample of the newest epoch, whose last one is of `time`, can show no collision.
    pub(super) fn are_at_rest(&self, time: UnixNanos) -> bool {
        self.peak.is_none() && self.newest <= time
    }

    /// The epoch that began at `start`; a new one if it is not in the list.
    pub(super) fn entry(&mut self, start: UnixNanos, newest: UnixNanos) -> &mut Epoch {
        let at = match self.position(start) {
            Ok(at) => at,
            Err(_) => {
                self.make_room(newest);
                let epoch = Epoch {
                    start,
                    time: 0,
                    gap: 0,
                    last: LastValue::Nothing,
                };
                let at = self.position(start).unwrap_or_else(|at| at);
                self.list.insert(at, epoch);
                at
            }
        };
        &mut self.list[at]
    }

    /// Removes an epoch. Returns whether it was in the list.
    pub(super) fn remove(&mut self, start: UnixNanos) -> bool {
        let at = self.position(start);
        at.map(|at| self.list.remove(at)).is_ok()
    }

    /// Follows the sender's clock, which was set back: all samples so far count as of `time` at the latest.
    pub(super) fn set_back(&mut self, time: UnixNanos) {
        self.newest = self.newest.min(time);
        for epoch in &mut self.list {
            epoch.time = epoch.time.min(time);
        }
    }

    pub(super) fn note_time(&mut self, time: UnixNanos) {
        self.newest = self.newest.max(time);
    }

    /// Removes and returns the levels of overdue epochs, for a sum that may fall.
    pub(super) fn take_overdue(&mut self, newest: UnixNanos) -> Number {
        let overdue = self.list.iter_mut().filter(|epoch| epoch.is_overdue(newest));
        sum(overdue.map(|epoch| std::mem::take(&mut epoch.last)))
    }

    /// Removes and returns the levels of all epochs, for a sum that may fall.
    pub(super) fn take_all(&mut self) -> Number {
        sum(self.list.iter_mut().map(|epoch| std::mem::take(&mut epoch.last)))
    }

    /// Notes a collision when one of `others` has a sample between `said` and `now`, the last two samples of
    /// one epoch.
    pub(super) fn note_overlap(&mut self, said: UnixNanos, others: &[UnixNanos], now: UnixNanos) {
        if others.iter().any(|other| said < *other && *other < now) {
            self.are_interleaved = true;
            self.note(Collision::Interleaved);
        }
    }

    /// Notes the next value of a total. Where it falls and returns again and again, several processes report
    /// it.
    pub(super) fn note_value(&mut self, then: Option<f64>, now: Option<f64>, fell: bool) {
        if fell {
            self.peak = then.map(|then| (then, VALUES_TO_RETURN));
            return;
        }
        let (Some((peak, values)), Some(now)) = (self.peak, now) else {
            return;
        };
        let is_back = now >= peak;
        self.peak = (values > 1 && !is_back).then_some((peak, values - 1));
        self.returns = self.returns.saturating_add(u8::from(is_back));
        if self.returns >= TELLING_RETURNS {
            self.note(Collision::Indistinct);
        }
    }

    /// Notes a collision. Only the first of its kind is reported.
    pub(super) fn note(&mut self, collision: Collision) {
        let bit = 1 << collision as u8;
        self.unreported |= bit & !self.seen;
        self.seen |= bit;
    }

    /// A kind of collision that no call has returned yet.
    pub(super) fn take_unreported(&mut self) -> Option<Collision> {
        let unreported = Collision::ALL
            .into_iter()
            .find(|kind| self.unreported & (1 << *kind as u8) != 0)?;
        self.unreported &= !(1 << unreported as u8);
        Some(unreported)
    }

    fn position(&self, start: UnixNanos) -> Result<usize, usize> {
        self.list.binary_search_by_key(&start, |epoch| epoch.start)
    }

    /// Forgets the epochs that have been silent for long, and the one with the longest silence if the list is still
    /// full.
    fn make_room(&mut self, newest: UnixNanos) {
        let oldest = newest.saturating_sub(MEMORY_NS);
        self.forget(|epoch| epoch.time < oldest);
        if self.list.len() >= MAX_EPOCHS {
            let silent = self.list.iter().min_by_key(|epoch| epoch.time);
            let start = silent.map(|epoch| epoch.start);
            self.forget(|epoch| Some(epoch.start) == start);
        }
    }

    fn forget(&mut self, which: impl Fn(&Epoch) -> bool) {
        let mut until = self.forgotten_until;
        self.list.retain(|epoch| {
            let goes = which(epoch);
            if goes {
                until = until.max(epoch.start);
            }
            !goes
        });
        self.forgotten_until = until;
    }

    /// Whether another process needs them.
    pub(super) fn is_worth_saving(&self) -> bool {
        !self.list.is_empty() || self.forgotten_until != 0
    }

    pub(super) fn save(&self, to: &mut Vec<u8>) {
        to.extend(self.forgotten_until.to_le_bytes());
        to.push(u8::from(self.are_interleaved));
        to.extend((self.list.len() as u32).to_le_bytes());
        for epoch in &self.list {
            for time in [epoch.start, epoch.time, epoch.gap] {
                to.extend(time.to_le_bytes());
            }
            epoch.last.save(to);
        }
    }

    pub(super) fn load(from: &mut &[u8]) -> Option<Self> {
        let forgotten_until = number(from)?;
        let [are_interleaved] = *take(from)?;
        let length = u32::from_le_bytes(*take(from)?) as usize;
        let mut epochs = Self {
            forgotten_until,
            are_interleaved: are_interleaved != 0,
            ..Self::default()
        };
        for _ in 0..length {
            let (start, time, gap) = (number(from)?, number(from)?, number(from)?);
            let last = LastValue::load(from)?;
            let epoch = epochs.entry(start, 0);
            *epoch = Epoch {
                start,
                time,
                gap,
                last,
            };
            epochs.note_time(time);
        }
        Some(epochs)
    }
}

/// The sum of levels, which are numbers.
fn sum(levels: impl Iterator<Item = LastValue>) -> Number {
    levels.fold(Number::ZERO, |sum, level| match level {
        LastValue::Number(level) => sum.plus(level),
        _ => sum,
    })
}
