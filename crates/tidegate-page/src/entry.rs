// SPDX-License-Identifier: Apache-2.0

//! Entries for writers, snapshots for readers, and their words in a slot.

use std::time::Duration;

use crate::error::{ReadError, SetError};
use crate::layout::{DESCRIPTION_WORD, MAX_QUANTILES, VALUE_WORDS, flag, slot};
use crate::text::Lens;

/// The trust in an entry.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum State {
    /// Every source is alive. Without observations in the window, gauges keep their level.
    Fresh = 1,
    /// Only of events and deltas: every source is alive, and no observation is in the window.
    Idle = 2,
    /// No source is alive.
    Stale = 3,
    /// A source is not alive, a living source has omitted a series, a loss upstream is known within the window, living
    /// series collide, or a rate does not cover its window yet. The value is that of what is there.
    Partial = 4,
    /// Never seen, or every source has left.
    #[default]
    Absent = 5,
}

impl State {
    /// Every state.
    pub const ALL: [State; 5] = [
        State::Fresh,
        State::Idle,
        State::Stale,
        State::Partial,
        State::Absent,
    ];

    /// In lower case.
    pub const fn name(self) -> &'static str {
        match self {
            State::Fresh => "fresh",
            State::Idle => "idle",
            State::Stale => "stale",
            State::Partial => "partial",
            State::Absent => "absent",
        }
    }

    fn from_byte(byte: u8) -> Option<State> {
        match byte {
            1 => Some(State::Fresh),
            2 => Some(State::Idle),
            3 => Some(State::Stale),
            4 => Some(State::Partial),
            5 => Some(State::Absent),
            _ => None,
        }
    }
}

/// One entry as the writer gives it. `..Entry::default()` fills in the missing fields.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Entry<'a> {
    /// Name of the composite; not empty.
    pub name: &'a str,
    /// Its labels as text, see [`canonical_labels`](crate::canonical_labels); empty if it has none. With the name at most
    /// [`TEXT_SIZE`](crate::layout::TEXT_SIZE) bytes.
    pub labels: &'a str,
    /// Its state, which says how far to trust it.
    pub state: State,
    /// The value of the composite's function.
    pub value: Option<f64>,
    /// Least value within the window.
    pub min: Option<f64>,
    /// Mean of the values.
    pub avg: Option<f64>,
    /// Greatest value.
    pub max: Option<f64>,
    /// Sum of the values.
    pub sum: Option<f64>,
    /// The number of values.
    pub count: Option<f64>,
    /// The newest value.
    pub last: Option<f64>,
    /// Pairs of q (0 to 1) and value, at most [`MAX_QUANTILES`].
    pub quantiles: &'a [(f64, f64)],
    /// Length of the window.
    pub window: Duration,
    /// When this was computed, in ns since the epoch. A slot is rewritten when this changes too.
    pub as_of_ns: u64,
    /// When the newest value arrived, in ns since the epoch.
    pub newest_ns: Option<u64>,
    /// Sources that should report.
    pub sources_expected: u32,
    /// Sources that do.
    pub sources_reporting: u32,
    /// The caller's count of changes of this entry.
    pub seq: u64,
}

/// One entry as a reader sees it, all of one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Snapshot {
    /// Its state, which says how far to trust it.
    pub state: State,
    /// The value of the composite's function.
    pub value: Option<f64>,
    /// Least value within the window.
    pub min: Option<f64>,
    /// Mean of the values.
    pub avg: Option<f64>,
    /// Greatest value.
    pub max: Option<f64>,
    /// Sum of the values.
    pub sum: Option<f64>,
    /// The number of values.
    pub count: Option<f64>,
    /// The newest value.
    pub last: Option<f64>,
    /// Length of the window.
    pub window: Duration,
    /// When this was computed, in ns since the epoch.
    pub as_of_ns: u64,
    /// When the newest value arrived, in ns since the epoch.
    pub newest_ns: Option<u64>,
    /// Sources that should report.
    pub sources_expected: u32,
    /// Sources that do.
    pub sources_reporting: u32,
    /// The writer's count of changes of this entry.
    pub seq: u64,
    quantiles: [(f64, f64); MAX_QUANTILES],
    quantile_count: usize,
}

impl Snapshot {
    /// Pairs of q and value.
    pub fn quantiles(&self) -> &[(f64, f64)] {
        self.quantiles.get(..self.quantile_count).unwrap_or_default()
    }

    /// The time since the newest value arrived; zero if `now_ns` is before that.
    pub fn age(&self, now_ns: u64) -> Option<Duration> {
        self.newest_ns
            .map(|newest| Duration::from_nanos(now_ns.saturating_sub(newest)))
    }
}

/// The state of a description word; 0 is empty.
#[inline]
pub(crate) fn state_byte(description: u64) -> u8 {
    description as u8
}

/// Position of a field among the words that an update may change.
const fn at(offset: usize) -> usize {
    offset / 8 - DESCRIPTION_WORD
}

/// The optional numbers: their flag and place.
const NUMBERS: [(u16, usize); 7] = [
    (flag::VALUE, at(slot::VALUE)),
    (flag::MIN, at(slot::MIN)),
    (flag::AVG, at(slot::AVG)),
    (flag::MAX, at(slot::MAX)),
    (flag::SUM, at(slot::SUM)),
    (flag::COUNT, at(slot::COUNT)),
    (flag::LAST, at(slot::LAST)),
];

impl Entry<'_> {
    /// # Errors
    /// When no slot could hold this.
    pub(crate) fn check(&self) -> Result<Lens, SetError> {
        if self.quantiles.len() > MAX_QUANTILES {
            return Err(SetError::TooManyQuantiles {
                count: self.quantiles.len(),
            });
        }
        if self.name.is_empty() || self.name.contains('\0') || self.labels.contains('\0') {
            return Err(SetError::BadText);
        }
        Lens::of(self.name, self.labels)
    }

    /// The words from the description to the text.
    pub(crate) fn words(&self, lens: Lens) -> [u64; VALUE_WORDS] {
        let mut words = [0; VALUE_WORDS];
        let mut flags = 0;
        let numbers = [
            self.value, self.min, self.avg, self.max, self.sum, self.count, self.last,
        ];
        for ((flag, place), number) in NUMBERS.into_iter().zip(numbers) {
            if let Some(number) = number {
                flags |= flag;
                words[place] = number.to_bits();
            }
        }
        if let Some(newest) = self.newest_ns {
            flags |= flag::NEWEST;
            words[at(slot::NEWEST_NS)] = newest;
        }
        let mut quantiles = 0_u64;
        for (index, (q, value)) in self.quantiles.iter().take(MAX_QUANTILES).enumerate() {
            words[at(slot::QUANTILE_Q) + index] = q.to_bits();
            words[at(slot::QUANTILE_VALUE) + index] = value.to_bits();
            quantiles += 1;
        }
        words[0] = u64::from(self.state as u8)
            | quantiles << 8
            | u64::from(flags) << 16
            | u64::from(lens.name) << 32
            | u64::from(lens.labels) << 48;
        words[at(slot::SEQ)] = self.seq;
        words[at(slot::WINDOW_NS)] = u64::try_from(self.window.as_nanos()).unwrap_or(u64::MAX);
        words[at(slot::AS_OF_NS)] = self.as_of_ns;
        words[at(slot::SOURCES_EXPECTED)] =
            u64::from(self.sources_expected) | u64::from(self.sources_reporting) << 32;
        words
    }
}

impl Snapshot {
    /// The inverse of [`Entry::words`], for words that may be anything.
    #[inline]
    pub(crate) fn from_words(words: &[u64; VALUE_WORDS]) -> Result<Self, ReadError> {
        let description = words[0];
        let state = State::from_byte(state_byte(description)).ok_or(ReadError::Malformed)?;
        let quantile_count = usize::from((description >> 8) as u8);
        if quantile_count > MAX_QUANTILES {
            return Err(ReadError::Malformed);
        }
        let flags = (description >> 16) as u16;
        let number = |index: usize| {
            let (flag, place) = NUMBERS[index];
            (flags & flag != 0).then(|| f64::from_bits(words[place]))
        };
        let f64_at = |place: usize| f64::from_bits(words[place]);
        let sources = words[at(slot::SOURCES_EXPECTED)];
        Ok(Snapshot {
            state,
            value: number(0),
            min: number(1),
            avg: number(2),
            max: number(3),
            sum: number(4),
            count: number(5),
            last: number(6),
            window: Duration::from_nanos(words[at(slot::WINDOW_NS)]),
            as_of_ns: words[at(slot::AS_OF_NS)],
            newest_ns: (flags & flag::NEWEST != 0).then_some(words[at(slot::NEWEST_NS)]),
            sources_expected: sources as u32,
            sources_reporting: (sources >> 32) as u32,
            seq: words[at(slot::SEQ)],
            quantiles: std::array::from_fn(|i| {
                let (q, value) = (at(slot::QUANTILE_Q) + i, at(slot::QUANTILE_VALUE) + i);
                (f64_at(q), f64_at(value))
            }),
            quantile_count,
        })
    }
}

#[cfg(test)]
mod tests;
