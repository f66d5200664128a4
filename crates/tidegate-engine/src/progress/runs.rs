//! The runs of one cumulative stream that began before its newest one.
//!
//! A run is one life of a process, told from others by its start time. Several runs are alive at the same time where
//! several processes report as one series. Each keeps its own last word, so that each adds only what it gained.

use super::Last;
use crate::bytes::{number, take};
use crate::cadence::lease_by_gap_ns;
use crate::{Number, UnixNanos};

/// Runs of one stream that are kept beside the newest. A service of so many processes under one identity is added up
/// exactly; an entry of a counter takes 48 bytes.
const MAX_RUNS: usize = 4096;

/// A run that has said nothing for so long is forgotten when another one begins: 1 h.
const MEMORY_NS: u64 = 3_600_000_000_000;

/// A total that fell and is where it was after at most so many words is looked at twice.
const WORDS_TO_RETURN: u8 = 16;

/// So many returns are no restarts.
const TELLING_RETURNS: u8 = 3;

/// Why the runs of a stream collide: several processes report as one series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Collision {
    /// Their start times tell them apart: they are added up.
    Interleaved,
    /// Their start time is unknown or the same: every fall counts as a restart, so the total may be too high.
    Indistinct,
    /// A run came back that was forgotten, or began before one that was: only what it gains from now on counts.
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

/// One run of a cumulative stream.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) start: UnixNanos,
    pub(super) time: UnixNanos,
    /// Between its last two words; 0 = it said one.
    pub(super) gap: u64,
    pub(super) last: Last,
}

impl Run {
    /// Whether a sum that may fall still counts it.
    fn is_overdue(&self, newest: UnixNanos) -> bool {
        is_overdue(self.time, self.gap, newest)
    }
}

/// Whether a run that said its last word at `time`, `gap` after the one before, is gone at `newest`. A cadence takes three
/// pushes, and 64 bytes a run: here the last gap decides. A run is forgotten after an hour in any case.
pub(super) fn is_overdue(time: UnixNanos, gap: u64, newest: UnixNanos) -> bool {
    newest.saturating_sub(time) > lease_by_gap_ns(gap).min(MEMORY_NS)
}

/// What one more run takes, without its last word.
pub(super) const RUN_BYTES: usize = size_of::<Run>();

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    /// By start.
    list: Vec<Run>,
    /// Runs that began at this time or before may have been forgotten.
    forgotten_until: UnixNanos,
    /// The latest word of any run in the list.
    pub(super) newest: UnixNanos,
    /// Two runs were alive at the same time.
    pub(super) are_interleaved: bool,
    /// What a total had come to before it fell without a new start time, and how many words it may take to be back.
    pub(super) peak: Option<(f64, u8)>,
    /// How often it was back.
    returns: u8,
    /// Between the last two words of the newest run; 0 = it said one.
    pub(super) current_gap: u64,
    /// Collisions that were seen, by bit of `Collision as u8`.
    seen: u8,
    /// Those of them that nobody has asked for yet.
    untold: u8,
}

impl Runs {
    /// Whether nothing would be lost with them.
    pub(super) fn hold_nothing(&self) -> bool {
        let times = [self.forgotten_until, self.newest, self.current_gap];
        let marks = [self.returns, self.seen, self.untold];
        self.list.is_empty()
            && times == [0; 3]
            && marks == [0; 3]
            && !self.are_interleaved
            && self.peak.is_none()
    }

    /// What they have allocated; `are_numbers`: their last words have nothing.
    pub(super) fn bytes(&self, are_numbers: bool) -> usize {
        let list = self.list.capacity() * RUN_BYTES;
        match are_numbers {
            true => list,
            false => list + self.list.iter().map(|run| run.last.bytes()).sum::<usize>(),
        }
    }

    pub(super) fn forgotten_until(start: UnixNanos) -> Self {
        Self {
            forgotten_until: start,
            ..Self::default()
        }
    }

    pub(super) fn find(&self, start: UnixNanos) -> Option<&Run> {
        self.position(start).ok().and_then(|at| self.list.get(at))
    }

    /// Whether a run that is not in the list may have been there.
    pub(super) fn may_have_forgotten(&self, start: UnixNanos) -> bool {
        start <= self.forgotten_until
    }

    /// Whether there is no room because all runs have said something since `oldest`.
    pub(super) fn are_full(&self, oldest: UnixNanos) -> bool {
        self.list.len() >= MAX_RUNS && self.list.iter().all(|run| run.time >= oldest)
    }

    /// Whether the next word of the newest run, whose last one was said at `time`, tells nothing about others.
    pub(super) fn are_at_rest(&self, time: UnixNanos) -> bool {
        self.peak.is_none() && self.newest <= time
    }

    /// The run that began at `start`; a new one where there is none.
    pub(super) fn entry(&mut self, start: UnixNanos, newest: UnixNanos) -> &mut Run {
        let at = match self.position(start) {
            Ok(at) => at,
            Err(_) => {
                self.make_room(newest);
                let run = Run {
                    start,
                    time: 0,
                    gap: 0,
                    last: Last::Nothing,
                };
                let at = self.position(start).unwrap_or_else(|at| at);
                self.list.insert(at, run);
                at
            }
        };
        &mut self.list[at]
    }

    /// Forgets one run; whether it was there.
    pub(super) fn remove(&mut self, start: UnixNanos) -> bool {
        let at = self.position(start);
        at.map(|at| self.list.remove(at)).is_ok()
    }

    /// The sender's clock was set back: no run said anything after `time`.
    pub(super) fn set_back(&mut self, time: UnixNanos) {
        self.newest = self.newest.min(time);
        for run in &mut self.list {
            run.time = run.time.min(time);
        }
    }

    pub(super) fn note_time(&mut self, time: UnixNanos) {
        self.newest = self.newest.max(time);
    }

    /// Takes back what runs that are overdue add to a sum that may fall; gives what they added.
    pub(super) fn take_overdue(&mut self, newest: UnixNanos) -> Number {
        let overdue = self.list.iter_mut().filter(|run| run.is_overdue(newest));
        sum(overdue.map(|run| std::mem::take(&mut run.last)))
    }

    /// Takes back what all runs add to a sum that may fall.
    pub(super) fn take_all(&mut self) -> Number {
        sum(self.list.iter_mut().map(|run| std::mem::take(&mut run.last)))
    }

    /// A run says something at `now` that said its last word at `said`: notes it where one of `others` spoke between.
    pub(super) fn note_overlap(&mut self, said: UnixNanos, others: &[UnixNanos], now: UnixNanos) {
        if others.iter().any(|other| said < *other && *other < now) {
            self.are_interleaved = true;
            self.note(Collision::Interleaved);
        }
    }

    /// A total that falls and is soon back where it was, again and again, is said by several processes.
    pub(super) fn note_word(&mut self, then: Option<f64>, now: Option<f64>, fell: bool) {
        if fell {
            self.peak = then.map(|then| (then, WORDS_TO_RETURN));
            return;
        }
        let (Some((peak, words)), Some(now)) = (self.peak, now) else {
            return;
        };
        let is_back = now >= peak;
        self.peak = (words > 1 && !is_back).then_some((peak, words - 1));
        self.returns = self.returns.saturating_add(u8::from(is_back));
        if self.returns >= TELLING_RETURNS {
            self.note(Collision::Indistinct);
        }
    }

    /// Notes a collision; the first of its kind is told.
    pub(super) fn note(&mut self, collision: Collision) {
        let bit = 1 << collision as u8;
        self.untold |= bit & !self.seen;
        self.seen |= bit;
    }

    /// A kind of collision that nobody has asked for yet.
    pub(super) fn take_untold(&mut self) -> Option<Collision> {
        let untold = Collision::ALL
            .into_iter()
            .find(|kind| self.untold & (1 << *kind as u8) != 0)?;
        self.untold &= !(1 << untold as u8);
        Some(untold)
    }

    fn position(&self, start: UnixNanos) -> Result<usize, usize> {
        self.list.binary_search_by_key(&start, |run| run.start)
    }

    /// Forgets runs that have been silent for long, and the most silent one where there are too many.
    fn make_room(&mut self, newest: UnixNanos) {
        let oldest = newest.saturating_sub(MEMORY_NS);
        self.forget(|run| run.time < oldest);
        if self.list.len() >= MAX_RUNS {
            let silent = self.list.iter().min_by_key(|run| run.time);
            let start = silent.map(|run| run.start);
            self.forget(|run| Some(run.start) == start);
        }
    }

    fn forget(&mut self, which: impl Fn(&Run) -> bool) {
        let mut until = self.forgotten_until;
        self.list.retain(|run| {
            let goes = which(run);
            if goes {
                until = until.max(run.start);
            }
            !goes
        });
        self.forgotten_until = until;
    }

    /// Whether another process has to know of it.
    pub(super) fn is_worth_saving(&self) -> bool {
        !self.list.is_empty() || self.forgotten_until != 0
    }

    pub(super) fn save(&self, to: &mut Vec<u8>) {
        to.extend(self.forgotten_until.to_le_bytes());
        to.push(u8::from(self.are_interleaved));
        to.extend((self.list.len() as u32).to_le_bytes());
        for run in &self.list {
            for time in [run.start, run.time, run.gap] {
                to.extend(time.to_le_bytes());
            }
            run.last.save(to);
        }
    }

    pub(super) fn load(from: &mut &[u8]) -> Option<Self> {
        let forgotten_until = number(from)?;
        let [are_interleaved] = *take(from)?;
        let length = u32::from_le_bytes(*take(from)?) as usize;
        let mut runs = Self {
            forgotten_until,
            are_interleaved: are_interleaved != 0,
            ..Self::default()
        };
        for _ in 0..length {
            let (start, time, gap) = (number(from)?, number(from)?, number(from)?);
            let last = Last::load(from)?;
            let run = runs.entry(start, 0);
            *run = Run {
                start,
                time,
                gap,
                last,
            };
            runs.note_time(time);
        }
        Some(runs)
    }
}

/// Of levels: numbers.
fn sum(levels: impl Iterator<Item = Last>) -> Number {
    levels.fold(Number::ZERO, |sum, level| match level {
        Last::Number(level) => sum.plus(level),
        _ => sum,
    })
}
