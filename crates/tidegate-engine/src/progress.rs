//! How far an input stream has come: what each of its points adds, in order, across resets and repetitions.

mod astray;
mod change;
mod last;
mod late;
mod place;
mod runs;

use change::check;
pub(crate) use change::{Change, Increase, Moments};
pub(crate) use last::Last;
use late::Late;
use place::Place;
pub use runs::Collision;
use runs::Runs;

use crate::bytes::take;
use crate::{Data, Exemplar, Number, Temporality, UnixNanos, Value};

/// A point of a known series, by reference.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Start of the interval that the value covers; 0 = unknown.
    pub start: UnixNanos,
    /// When the value was true.
    pub time: UnixNanos,
    /// The value.
    pub value: &'a Value,
    /// Examples of what the value is made of.
    pub exemplars: &'a [Exemplar],
}

/// Why a point was not taken into a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Rejection {
    /// Not newer than what the stream has already said.
    Late,
    /// Said before in the same words: nothing is lost.
    Duplicate,
    /// Breaks the data model (a monotonic sum that is negative or not finite, unsound buckets).
    Invalid,
    /// Can't be combined in the way the rule asks for.
    Unsupported,
    /// A cardinality cap, and no room in an overflow series either.
    Limit,
    /// Its time lies too far ahead of the gateway's clock.
    Future,
}

/// For the sender of the point.
impl std::fmt::Display for Rejection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Late => "not newer than what was said before",
            Self::Duplicate => "said before",
            Self::Invalid => "the value breaks the rules of its kind of metric",
            Self::Unsupported => "it can't be combined in the way that is asked for",
            Self::Limit => "there are too many series",
            Self::Future => "its time lies too far ahead of the gateway's clock",
        })
    }
}

impl Rejection {
    /// All of them, in the order of their counters.
    pub const ALL: [Self; 6] = [
        Self::Late,
        Self::Duplicate,
        Self::Invalid,
        Self::Unsupported,
        Self::Limit,
        Self::Future,
    ];
}

/// How a state that shows points as they are takes one.
#[derive(Clone, Debug)]
pub(crate) enum Followed<'a> {
    /// It shows the point.
    AsItIs,
    /// Several runs are alive: it adds what one of them gained.
    Adds(Change<'a>),
}

/// Where a stream stands. Start, time and last word are those of the run that began last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) start: UnixNanos,
    pub(crate) time: UnixNanos,
    last: Last,
    /// What may still come out of order; `None` where nothing can.
    late: Option<Box<Late>>,
}

/// Stands before the last words of several runs in saved state, where the kind of one last word stands otherwise.
const SEVERAL_RUNS: u8 = 6;

impl Progress {
    /// As far as another process had come.
    pub(crate) fn at(start: UnixNanos, time: UnixNanos, last: Last) -> Self {
        Self {
            start,
            time,
            last,
            late: None,
        }
    }

    /// A stream whose runs up to the one that began at `start` are part of what is retained: they add nothing again.
    pub(crate) fn folded(start: UnixNanos, time: UnixNanos) -> Self {
        Self {
            late: Some(Box::new(Late::folded(start))),
            ..Self::at(start, time, Last::Nothing)
        }
    }

    /// What the stream said last.
    pub(crate) fn last(&self) -> &Last {
        &self.last
    }

    /// What it has allocated.
    pub(crate) fn bytes(&self) -> usize {
        let are_numbers = matches!(self.last, Last::Number(_));
        let late = self
            .late
            .as_ref()
            .map_or(0, |late| size_of::<Late>() + late.runs.bytes(are_numbers));
        self.last.bytes() + late
    }

    /// How much more it will have after this word of a stream that it knows.
    pub(crate) fn growth(&self, data: Data, sample: &Sample<'_>) -> usize {
        let has_runs = data != Data::Gauge && data.temporality() == Temporality::Cumulative;
        if !has_runs || self.time == 0 {
            return 0;
        }
        let value = Last::bytes_of(sample.value);
        if !self.knows(sample.start) {
            return value + runs::RUN_BYTES;
        }
        if value == 0 {
            return 0;
        }
        let other = self.late.as_ref().and_then(|late| late.runs.find(sample.start));
        let last = other.map_or(&self.last, |run| &run.last);
        value.saturating_sub(last.bytes())
    }

    /// What `advance` gives for what nearly every point is, by a shorter way: the next word of a whole running total.
    #[inline]
    pub(crate) fn next_total(&mut self, data: Data, sample: &Sample<'_>) -> Option<Number> {
        let (Last::Number(Number::Int(then)), Value::Int(now)) = (&mut self.last, sample.value) else {
            return None;
        };
        let Data::Sum {
            monotonic,
            temporality,
        } = data
        else {
            return None;
        };
        let is_next = sample.start == self.start && sample.time > self.time;
        let is_plain = match &self.late {
            None => true,
            // Levels of other runs may be overdue.
            Some(late) => {
                monotonic && !late.is_folded && !late.astray.is_astray() && late.runs.are_at_rest(self.time)
            }
        };
        let is_total = temporality == Temporality::Cumulative;
        if !is_total || !is_next || !is_plain || *then < 0 || *now < *then {
            return None;
        }
        let increase = *now - *then;
        *then = *now;
        self.time = sample.time;
        Some(Number::Int(increase))
    }

    /// What `sample` adds. The first point of a cumulative run adds all it has counted so far. Deltas that come out of
    /// order count when they are at most `lateness_ns` older than the newest and say what no other has said; with 0
    /// nothing may come out of order. A word of a run adds what the run has gained since its last word.
    pub(crate) fn advance<'a>(
        &mut self,
        data: Data,
        sample: &Sample<'a>,
        lateness_ns: u64,
    ) -> Result<Change<'a>, Rejection> {
        check(data, sample.value)?;
        let place = self.place(data, sample, lateness_ns)?;
        self.is_taken();
        match place {
            Place::Next => {
                self.note_gap(data, sample, lateness_ns);
                self.note_next(data, sample);
            }
            Place::Restart => self.restart(data, sample),
            Place::Gap => return self.fill(data, sample),
            Place::OtherRun => return self.advance_run(data, sample, false),
            Place::ForgottenRun => return self.advance_run(data, sample, true),
            Place::Folded => {
                if let Some(late) = &mut self.late {
                    late.is_folded = false;
                }
                // Only tells where increases are counted from.
                self.change(data, sample.value)?;
            }
        }
        let change = self.change(data, sample.value)?;
        (self.start, self.time) = (sample.start, sample.time);
        Ok(self.without_overdue(data, change))
    }

    /// Checks order, for states that show points as they are; nothing else is kept of a stream that one process
    /// reports. Where a second run goes on beside another, both are added up from then on: `shown` is what the state
    /// shows.
    pub(crate) fn follow<'a>(
        &mut self,
        data: Data,
        sample: &Sample<'a>,
        lateness_ns: u64,
        shown: &mut dyn FnMut() -> Option<Last>,
    ) -> Result<Followed<'a>, Rejection> {
        let is_total = data != Data::Gauge && data.temporality() == Temporality::Cumulative;
        let has_starts = is_total && self.start != 0 && sample.start != 0;
        if self.is_interleaved() {
            return self.advance(data, sample, lateness_ns).map(Followed::Adds);
        }
        check(data, sample.value)?;
        self.place(data, sample, 0)?;
        self.is_taken();
        if has_starts && sample.start != self.start {
            let runs = &mut self.late.get_or_insert_default().runs;
            if runs.remove(sample.start) {
                runs.are_interleaved = true;
                runs.note(Collision::Interleaved);
                self.last = shown().unwrap_or_default();
                return self.advance(data, sample, lateness_ns).map(Followed::Adds);
            }
            let newest = self.time.max(sample.time);
            runs.entry(self.start, newest).time = self.time;
        }
        (self.start, self.time) = (sample.start, sample.time);
        Ok(Followed::AsItIs)
    }

    /// Notes what it tells about other processes that `now` follows `shown`, where points are shown as they are.
    pub(crate) fn note_shown(&mut self, data: Data, shown: &Value, now: &Value) {
        let falls = matches!(data, Data::Gauge | Data::Sum { monotonic: false, .. });
        if falls || data.temporality() != Temporality::Cumulative {
            return;
        }
        let (then, now) = (Last::weight_of(shown), Last::weight_of(now));
        let fell = then.zip(now).is_some_and(|(then, now)| now < then);
        if fell || self.late.is_some() {
            self.late.get_or_insert_default().runs.note_word(then, now, fell);
        }
    }

    fn is_taken(&mut self) {
        if let Some(late) = &mut self.late {
            late.astray.clear();
            if late.holds_nothing() {
                self.late = None;
            }
        }
    }

    /// Whether several runs go on side by side, so that their words are added up.
    pub(crate) fn is_interleaved(&self) -> bool {
        self.late.as_ref().is_some_and(|late| late.runs.are_interleaved)
    }

    /// Remembers what deltas in between have not been seen yet.
    fn note_gap(&mut self, data: Data, sample: &Sample<'_>, lateness_ns: u64) {
        let delta = data.temporality() == Temporality::Delta;
        if !delta || lateness_ns == 0 || sample.start == 0 {
            return;
        }
        let oldest = sample.time.saturating_sub(lateness_ns);
        let from = if self.time == 0 { oldest } else { self.time };
        if from < sample.start {
            let late = self.late.get_or_insert_default();
            late.add_gap(from, sample.start, oldest);
        }
    }

    /// Notes what the next word of the newest run tells about others.
    fn note_next(&mut self, data: Data, sample: &Sample<'_>) {
        if data.temporality() != Temporality::Cumulative || data == Data::Gauge {
            return;
        }
        let falls = matches!(data, Data::Sum { monotonic: false, .. });
        let (then, now) = (self.last.weight(), Last::weight_of(sample.value));
        let fell = !falls && then.zip(now).is_some_and(|(then, now)| now < then);
        if fell && self.late.is_none() {
            self.late = Some(Box::default());
        }
        let Some(late) = &mut self.late else { return };
        let newest = late.runs.newest;
        late.runs.note_overlap(self.time, &[newest], sample.time);
        late.runs.note_word(then, now, fell);
        if falls {
            late.runs.current_gap = sample.time.saturating_sub(self.time);
        }
    }

    /// Another run begins: the one so far becomes one of the others.
    fn restart(&mut self, data: Data, sample: &Sample<'_>) {
        let falls = matches!(data, Data::Sum { monotonic: false, .. });
        let is_known = self.holds_total();
        if !is_known {
            return;
        }
        let newest = self.newest().max(sample.time);
        let runs = &mut self.late.get_or_insert_default().runs;
        let (are_interleaved, gap) = (runs.are_interleaved, std::mem::take(&mut runs.current_gap));
        let run = runs.entry(self.start, newest);
        (run.time, run.gap) = (self.time, gap);
        // A level gives way to its successor's, until it is clear that both are alive.
        if !falls || are_interleaved {
            run.last = std::mem::take(&mut self.last);
        }
        runs.note_time(self.time);
    }

    fn fill<'a>(&mut self, data: Data, sample: &Sample<'a>) -> Result<Change<'a>, Rejection> {
        let change = self.change(data, sample.value)?;
        if let Some(late) = &mut self.late {
            late.fill(sample.start, sample.time);
        }
        Ok(change)
    }

    /// What a word of a run adds that is not the newest.
    fn advance_run<'a>(
        &mut self,
        data: Data,
        sample: &Sample<'a>,
        is_baseline: bool,
    ) -> Result<Change<'a>, Rejection> {
        let newest = self.newest();
        let mut late = self.late.take().unwrap_or_default();
        let run = late.runs.entry(sample.start, newest.max(sample.time));
        let said = run.time;
        std::mem::swap(&mut run.last, &mut self.last);
        if is_baseline {
            // Only tells where increases are counted from.
            let _ = self.change(data, sample.value);
        }
        let change = self.change(data, sample.value);
        std::mem::swap(&mut run.last, &mut self.last);
        if said != 0 {
            run.gap = sample.time.saturating_sub(said);
        }
        run.time = sample.time;
        if said != 0 {
            late.runs.note_overlap(said, &[self.time, newest], sample.time);
        }
        if is_baseline {
            late.runs.note(Collision::Forgotten);
        }
        late.runs.note_time(sample.time);
        self.late = Some(late);
        Ok(self.without_overdue(data, change?))
    }

    /// Of a sum that may fall, what runs add that say nothing any more is taken back.
    fn without_overdue<'a>(&mut self, data: Data, change: Change<'a>) -> Change<'a> {
        let falls = matches!(
            data,
            Data::Sum {
                monotonic: false,
                temporality: Temporality::Cumulative
            }
        );
        let newest = self.newest();
        match (&mut self.late, change) {
            (Some(late), Change::Number(number)) if falls => {
                let mut gone = late.runs.take_overdue(newest);
                if runs::is_overdue(self.time, late.runs.current_gap, newest)
                    && let Last::Number(level) = std::mem::take(&mut self.last)
                {
                    gone = gone.plus(level);
                }
                Change::Number(number.minus(gone))
            }
            (_, change) => change,
        }
    }

    /// The time of the latest word of any run; 0 = none.
    pub(crate) fn newest(&self) -> UnixNanos {
        let of_others = self.late.as_ref().map_or(0, |late| late.runs.newest);
        self.time.max(of_others)
    }

    /// Whether a point that began at `start` belongs to a run that was heard of.
    pub(crate) fn knows(&self, start: UnixNanos) -> bool {
        let is_current = start == self.start || start == 0 || self.start == 0;
        let is_other = |late: &Late| late.runs.find(start).is_some();
        self.time != 0 && (is_current || self.late.as_deref().is_some_and(is_other))
    }

    /// Forgets what each run has said; where the newest stands stays.
    pub(crate) fn forget_runs(&mut self) {
        self.late = None;
        self.last = Last::Nothing;
    }

    /// A collision of runs that nobody has asked for yet.
    pub(crate) fn take_collision(&mut self) -> Option<Collision> {
        self.late.as_mut()?.runs.take_untold()
    }

    /// Whether it knows what a cumulative stream has counted so far.
    pub(crate) fn holds_total(&self) -> bool {
        !matches!(self.last, Last::Nothing)
    }

    /// What a stream that leaves takes with it: what it has added to a sum that may fall. Called once, at the end.
    pub(crate) fn withdraw(&mut self) -> Option<Number> {
        let others = self.late.as_mut().map(|late| late.runs.take_all());
        match (std::mem::take(&mut self.last), others) {
            (Last::Number(number), Some(others)) => Some(number.plus(others)),
            (Last::Number(number), None) => Some(number),
            (_, others) => others.filter(|others| others.as_f64() != 0.0),
        }
    }

    /// The last word, for another process; with those of other runs where there are any.
    pub(crate) fn save(&self, to: &mut Vec<u8>) {
        let late = self.late.as_ref();
        if let Some(late) = late.filter(|late| late.runs.is_worth_saving()) {
            to.push(SEVERAL_RUNS);
            late.runs.save(to);
        }
        self.last.save(to);
    }

    /// Reads what [`Self::save`] wrote, and what older builds did: the last word of one run.
    pub(crate) fn load(start: UnixNanos, time: UnixNanos, from: &mut &[u8]) -> Option<Self> {
        let mut late = None;
        if from.first() == Some(&SEVERAL_RUNS) {
            take::<1>(from)?;
            late = Some(Box::new(Late::of_runs(Runs::load(from)?)));
        }
        let last = Last::load(from)?;
        Some(Self {
            start,
            time,
            last,
            late,
        })
    }
}

#[cfg(test)]
mod tests;
