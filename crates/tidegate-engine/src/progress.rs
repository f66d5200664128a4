//! How far an input stream has come: what each of its points adds, in order, across resets and repetitions.

mod astray;
mod last;
mod late;
mod runs;

pub(crate) use last::Last;
use late::Late;
pub use runs::Collision;
use runs::Runs;

use crate::bytes::take;

use crate::{
    Data, Exemplar, ExponentialHistogram, Histogram, Number, Stray, Summary, Temporality, UnixNanos, Value,
    clock,
};

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

/// What a point adds to the state of its group.
#[derive(Clone, Debug)]
pub(crate) enum Change<'a> {
    /// An increase of a sum, or the value of a gauge.
    Number(Number),
    Histogram(Increase<'a, Histogram>),
    Exponential(Increase<'a, ExponentialHistogram>),
    /// Of a summary only what adds up; its quantiles do not.
    Summary(Moments),
    /// The stream says that it has ended.
    End,
}

/// A distribution that is borrowed where it is all new, and computed where it is a difference.
#[derive(Clone, Debug)]
pub(crate) enum Increase<'a, T> {
    All(&'a T),
    Part(Box<T>),
}

impl<T> std::ops::Deref for Increase<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::All(all) => all,
            Self::Part(part) => part,
        }
    }
}

impl<T: Clone> Increase<'_, T> {
    pub(crate) fn into_owned(self) -> Box<T> {
        match self {
            Self::All(all) => Box::new(all.clone()),
            Self::Part(part) => part,
        }
    }
}

/// What of a summary adds up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Moments {
    pub(crate) count: u64,
    pub(crate) sum: f64,
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

/// Where in its stream a point stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Behind everything so far.
    Next,
    /// The first of a new run.
    Restart,
    /// In a gap that was left by deltas: it comes late, and counts.
    Gap,
    /// Of a run that began before the newest: it adds what it has gained.
    OtherRun,
    /// Of such a run that was forgotten, or may have been: increases are counted from here.
    ForgottenRun,
    /// Of a run that was folded when the stream was forgotten: increases are counted from here.
    Folded,
}

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

    /// Notes that a point was not taken which came at `now`: it lies behind the newest, or too far ahead. `shown` is the
    /// number or count that the state shows, where nothing is kept of what the stream said.
    #[cold]
    pub(crate) fn stray(
        &mut self,
        data: Data,
        sample: &Sample<'_>,
        now: UnixNanos,
        shown: Option<f64>,
    ) -> Option<Stray> {
        let is_ahead = sample.time > self.newest();
        if sample.time == self.newest() || self.time == 0 {
            return None;
        }
        let astray = &mut self.late.get_or_insert_default().astray;
        let is_news = astray.note(sample.time, now);
        if is_ahead {
            return is_news.then_some(Stray::Ahead);
        }
        if astray.is_set_back(now) && self.goes_on(data, sample, shown) {
            self.set_back(data, sample, now);
            return Some(Stray::Reanchored);
        }
        is_news.then_some(Stray::Behind)
    }

    /// Whether a point can be the next word of its stream by another clock. What fell was said before, and adding it
    /// again would count it twice; so would deltas, of which nobody can tell whether they were added.
    fn goes_on(&self, data: Data, sample: &Sample<'_>, shown: Option<f64>) -> bool {
        if data == Data::Gauge || matches!(data, Data::Sum { monotonic: false, .. }) {
            return data.temporality() != Temporality::Delta || data == Data::Gauge;
        }
        let run = self.late.as_ref().and_then(|late| late.runs.find(sample.start));
        let is_current = sample.start == self.start || sample.start == 0 || self.start == 0;
        let then = match run {
            _ if is_current => self.last.weight().or(shown),
            Some(run) => run.last.weight(),
            None => None,
        };
        let now = Last::weight_of(sample.value);
        data.temporality() == Temporality::Cumulative && then.zip(now).is_none_or(|(then, now)| now >= then)
    }

    fn set_back(&mut self, data: Data, sample: &Sample<'_>, now: UnixNanos) {
        let before = sample.time.saturating_sub(1);
        let falls = matches!(data, Data::Sum { monotonic: false, .. });
        let is_of_older_run = sample.start != 0 && sample.start < self.start;
        let late = self.late.get_or_insert_default();
        late.set_back(before);
        late.astray.lag = clock::wall(now).saturating_sub(sample.time);
        if falls && is_of_older_run && sample.time <= self.start {
            // A process began anew by the new clock: its level takes the place of the one before.
            late.runs.remove(sample.start);
            self.start = sample.start;
        }
        self.time = self.time.min(before);
    }

    /// Whether its latest points were not taken, so that what it has said is not what is.
    pub(crate) fn stands_still(&self) -> bool {
        self.late.as_ref().is_some_and(|late| late.astray.stands_still())
    }

    /// When its newest point was true by our clock, where the sender's clock was set back; otherwise by the sender's.
    pub(crate) fn newest_by_our_clock(&self) -> UnixNanos {
        let lag = self.late.as_ref().map_or(0, |late| late.astray.lag);
        self.newest().saturating_add(lag)
    }

    /// Whether several runs go on side by side, so that their words are added up.
    pub(crate) fn is_interleaved(&self) -> bool {
        self.late.as_ref().is_some_and(|late| late.runs.are_interleaved)
    }

    /// Where a point stands; an error where it adds nothing.
    ///
    /// A later start time is a new run whatever the clock says. Of a run that has been heard of later than this point
    /// all is known; if it says no more than that, nothing is lost.
    fn place(&self, data: Data, sample: &Sample<'_>, lateness_ns: u64) -> Result<Place, Rejection> {
        if self.time == 0 {
            return Ok(Place::Next);
        }
        if data.temporality() == Temporality::Delta {
            return self.place_of_delta(sample);
        }
        let has_starts = data != Data::Gauge && self.start != 0 && sample.start != 0;
        if has_starts && sample.start > self.start {
            return self.place_of_new_run(sample, lateness_ns, Place::Restart);
        }
        if has_starts && sample.start < self.start {
            return self.place_of_other_run(data, sample, lateness_ns);
        }
        if self.late.as_ref().is_some_and(|late| late.is_folded) {
            let is_newer = sample.time > self.time;
            return is_newer.then_some(Place::Folded).ok_or(Rejection::Late);
        }
        match sample.time > self.time {
            true => Ok(Place::Next),
            false => Err(self.is_repeated(data, sample)),
        }
    }

    fn is_repeated(&self, data: Data, sample: &Sample<'_>) -> Rejection {
        let is_same = sample.time == self.time && self.says(sample.value);
        let is_covered = sample.time < self.time && self.last.covers(data, sample.value);
        match is_same || is_covered {
            true => Rejection::Duplicate,
            false => Rejection::Late,
        }
    }

    fn place_of_new_run(
        &self,
        sample: &Sample<'_>,
        lateness_ns: u64,
        place: Place,
    ) -> Result<Place, Rejection> {
        let oldest = self.newest().max(sample.time).saturating_sub(lateness_ns);
        let is_full = |late: &Late| late.runs.are_full(oldest);
        match self.late.as_deref().is_some_and(is_full) {
            true => Err(Rejection::Limit),
            false => Ok(place),
        }
    }

    /// A run that was never heard of counts in full, however old its point: nobody else has counted it. One that may
    /// have been forgotten can't be told from one that was counted already.
    fn place_of_other_run(
        &self,
        data: Data,
        sample: &Sample<'_>,
        lateness_ns: u64,
    ) -> Result<Place, Rejection> {
        let falls = matches!(data, Data::Sum { monotonic: false, .. });
        let runs = self.late.as_ref().map(|late| &late.runs);
        let is_in_order = sample.time > self.newest();
        // What it gained is part of its next word.
        let is_too_late = lateness_ns == 0 && !is_in_order;
        // A level that was true before its successor began.
        let is_replaced = falls && sample.time <= self.start;
        if is_too_late || is_replaced {
            return Err(Rejection::Late);
        }
        match runs.and_then(|runs| runs.find(sample.start)) {
            Some(run) if sample.time > run.time => Ok(Place::OtherRun),
            Some(run) if run.last.covers(data, sample.value) => Err(Rejection::Duplicate),
            Some(_) => Err(Rejection::Late),
            None if !falls && runs.is_some_and(|runs| runs.may_have_forgotten(sample.start)) => {
                is_in_order.then_some(Place::ForgottenRun).ok_or(Rejection::Late)
            }
            None => self.place_of_new_run(sample, lateness_ns, Place::OtherRun),
        }
    }

    fn place_of_delta(&self, sample: &Sample<'_>) -> Result<Place, Rejection> {
        if sample.time > self.time {
            return Ok(Place::Next);
        }
        if (sample.start, sample.time) == (self.start, self.time) {
            return Err(Rejection::Duplicate);
        }
        let late = self.late.as_ref();
        match late.is_some_and(|late| late.gap(sample.start, sample.time).is_some()) {
            true => Ok(Place::Gap),
            false => Err(Rejection::Late),
        }
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

    fn says(&self, value: &Value) -> bool {
        match (&self.last, value) {
            (Last::Number(last), _) => value.number().is_some_and(|number| number.same(*last)),
            (Last::Histogram(last), Value::Histogram(now)) => last == now,
            (Last::Exponential(last), Value::ExponentialHistogram(now)) => last == now,
            (Last::Summary(last), Value::Summary(now)) => **last == Moments::of(now),
            (Last::Nothing, _) => true,
            _ => false,
        }
    }

    fn change<'a>(&mut self, data: Data, value: &'a Value) -> Result<Change<'a>, Rejection> {
        let cumulative = data.temporality() == Temporality::Cumulative;
        Ok(match value {
            Value::Int(_) | Value::Double(_) => {
                let number = value.number().ok_or(Rejection::Invalid)?;
                Change::Number(self.number(data, cumulative, number))
            }
            Value::Histogram(now) if cumulative => Change::Histogram(self.histogram(now)),
            Value::Histogram(now) => Change::Histogram(Increase::All(now)),
            Value::ExponentialHistogram(now) if cumulative => Change::Exponential(self.exponential(now)),
            Value::ExponentialHistogram(now) => Change::Exponential(Increase::All(now)),
            Value::Summary(now) => Change::Summary(self.summary(Moments::of(now))),
            Value::NoRecordedValue => Change::End,
        })
    }

    fn number(&mut self, data: Data, cumulative: bool, now: Number) -> Number {
        let Data::Sum { monotonic, .. } = data else {
            self.last = Last::Number(now);
            return now;
        };
        let then = match &self.last {
            Last::Number(then) => *then,
            _ => Number::ZERO,
        };
        if !cumulative {
            if !monotonic {
                self.last = Last::Number(then.plus(now));
            }
            return now;
        }
        self.last = Last::Number(now);
        match monotonic && now.less(then) {
            true => now,
            false => now.minus(then),
        }
    }

    fn histogram<'a>(&mut self, now: &'a Histogram) -> Increase<'a, Histogram> {
        let increase = match &self.last {
            Last::Histogram(then) => now.since(then),
            _ => None,
        };
        match &mut self.last {
            Last::Histogram(last) => last.as_mut().clone_from(now),
            last => *last = Last::Histogram(Box::new(now.clone())),
        }
        increase.map_or(Increase::All(now), |part| Increase::Part(Box::new(part)))
    }

    fn exponential<'a>(&mut self, now: &'a ExponentialHistogram) -> Increase<'a, ExponentialHistogram> {
        let increase = match &self.last {
            Last::Exponential(then) => now.since(then),
            _ => None,
        };
        match &mut self.last {
            Last::Exponential(last) => last.as_mut().clone_from(now),
            last => *last = Last::Exponential(Box::new(now.clone())),
        }
        increase.map_or(Increase::All(now), |part| Increase::Part(Box::new(part)))
    }

    fn summary(&mut self, now: Moments) -> Moments {
        let then = match &self.last {
            Last::Summary(then) if then.count <= now.count => **then,
            _ => Moments::default(),
        };
        self.last = Last::Summary(Box::new(now));
        Moments {
            count: now.count - then.count,
            sum: now.sum - then.sum,
        }
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

impl Moments {
    pub(crate) fn of(summary: &Summary) -> Self {
        Self {
            count: summary.count,
            sum: summary.sum,
        }
    }
}

/// Whether a value is one that its kind of data can have.
fn check(data: Data, value: &Value) -> Result<(), Rejection> {
    let sound = match (data, value) {
        (_, Value::NoRecordedValue) => true,
        (_, _) if data.temporality() == Temporality::Unspecified => return Err(Rejection::Unsupported),
        (Data::Gauge, Value::Int(_) | Value::Double(_)) => true,
        (Data::Sum { monotonic, .. }, Value::Int(_) | Value::Double(_)) => value
            .number()
            .is_some_and(|number| number.is_finite() && !(monotonic && number.less(Number::ZERO))),
        (Data::Histogram { .. }, Value::Histogram(histogram)) => histogram.is_sound(),
        (Data::ExponentialHistogram { .. }, Value::ExponentialHistogram(histogram)) => histogram.is_sound(),
        (Data::Summary, Value::Summary(_)) => true,
        _ => false,
    };
    if sound { Ok(()) } else { Err(Rejection::Invalid) }
}

#[cfg(test)]
mod tests;
