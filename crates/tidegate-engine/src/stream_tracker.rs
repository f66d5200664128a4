// SPDX-License-Identifier: Apache-2.0

//! Trackers of input streams: the increase that each point adds, across resets, repetitions and points out
//! of order.
//!
//! An epoch is the time between two resets of a cumulative stream: one life of its process, identified by its start
//! time. A stream that one process reports is in one epoch. Several epochs live at once if several processes report as
//! one series.
//!
//! - `position` places a point: next, restart, gap, other epoch. It refuses the rest.
//! - `change` computes the increase over the last value, and stores the new value.
//! - `OutOfOrder` has the rare state: gaps, other epochs, refused points. Most streams allocate none.
//!
//! Invariant: each increase counts once. `time` grows, except when the sender's clock is set back.
//!
//! Ownership: the tracker of a stream is in the slot of the stream, and the lock of the chunk of slots guards it.
//! Nothing here locks or blocks.

mod change;
mod epochs;
mod follow;
mod last;
mod out_of_order;
mod position;
mod sample;
mod stall;

use change::check;
pub(crate) use change::{Change, Moments};
pub use epochs::Collision;
use epochs::Epochs;
pub(crate) use follow::Followed;
pub(crate) use last::LastValue;
use out_of_order::OutOfOrder;
use position::Position;
pub use sample::{PointSample, Rejection};

use crate::bytes::take;
use crate::{Data, Number, Temporality, UnixNanos, Value};

/// The state of one input stream: its last values, from which the increase of the next point is computed.
///
/// `start`, `time` and `last` are of the epoch that began last; the other epochs are in `out_of_order`.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamTracker {
    /// The start of the newest epoch, Unix time; 0: unknown.
    pub(crate) start: UnixNanos,
    /// The time of its last point; 0: no point came yet.
    pub(crate) time: UnixNanos,
    /// Its last value.
    last: LastValue,
    /// `None`: one epoch, no gap and no refused point.
    out_of_order: Option<Box<OutOfOrder>>,
}

/// The tag of several epochs in saved state. The kinds of a last value have the tags below it.
const SEVERAL_EPOCHS: u8 = 6;

impl StreamTracker {
    /// A tracker in the state that another process saved.
    pub(crate) fn at(start: UnixNanos, time: UnixNanos, last: LastValue) -> Self {
        Self {
            start,
            time,
            last,
            out_of_order: None,
        }
    }

    /// A tracker of a stream that came back after it was forgotten. The series has the counts of its epochs
    /// up to the one that began at `start`: they add nothing again.
    pub(crate) fn folded(start: UnixNanos, time: UnixNanos) -> Self {
        Self {
            out_of_order: Some(Box::new(OutOfOrder::folded(start))),
            ..Self::at(start, time, LastValue::Nothing)
        }
    }

    /// The last value of the newest epoch.
    pub(crate) fn last(&self) -> &LastValue {
        &self.last
    }

    /// Bytes that it has allocated.
    pub(crate) fn bytes(&self) -> usize {
        let are_numbers = matches!(self.last, LastValue::Number(_));
        let out_of_order = self.out_of_order.as_ref().map_or(0, |out_of_order| {
            size_of::<OutOfOrder>() + out_of_order.epochs.bytes(are_numbers)
        });
        self.last.bytes() + out_of_order
    }

    /// Bytes that it allocates more for this sample.
    pub(crate) fn growth(&self, data: Data, sample: &PointSample<'_>) -> usize {
        let has_epochs = data != Data::Gauge && data.temporality() == Temporality::Cumulative;
        if !has_epochs || self.time == 0 {
            return 0;
        }
        let value = LastValue::bytes_of(sample.value);
        if !self.knows(sample.start) {
            return value + epochs::EPOCH_BYTES;
        }
        if value == 0 {
            return 0;
        }
        let other = self.epochs().and_then(|epochs| epochs.find(sample.start));
        let last = other.map_or(&self.last, |epoch| &epoch.last);
        value.saturating_sub(last.bytes())
    }

    /// The sample of a table's total, whose start is not earlier than the known one. A total of a table has one writer. If its
    /// start moves back, the table has come to know an earlier process, and the total contains all processes. A start that is
    /// known stays: an edit may have given several totals one identity.
    pub(crate) fn continued<'a>(&self, sample: &PointSample<'a>) -> PointSample<'a> {
        let start = match sample.start {
            start if self.knows(start) => start,
            start => start.max(self.start),
        };
        PointSample { start, ..*sample }
    }

    /// The fast path of `advance` for nearly every point: the next value of an integer counter. `None`: the
    /// point needs `advance`, and nothing has changed.
    #[inline]
    pub(crate) fn next_total(&mut self, data: Data, sample: &PointSample<'_>) -> Option<Number> {
        let (LastValue::Number(Number::Int(then)), Value::Int(now)) = (&mut self.last, sample.value) else {
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
        let is_plain = match &self.out_of_order {
            None => true,
            // Levels of other epochs may be overdue.
            Some(out_of_order) => {
                monotonic
                    && !out_of_order.is_folded
                    && !out_of_order.stall.has_begun()
                    && out_of_order.epochs.are_at_rest(self.time)
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

    /// Takes a sample and returns the increase that it adds.
    ///
    /// The first sample of a cumulative epoch adds its whole value; each later one adds the increase of its
    /// epoch. A delta out of order counts when it fills a gap and is at most `lateness_ns` older than the
    /// newest; 0: none counts.
    pub(crate) fn advance<'a>(
        &mut self,
        data: Data,
        sample: &PointSample<'a>,
        lateness_ns: u64,
    ) -> Result<Change<'a>, Rejection> {
        check(data, sample.value)?;
        let position = self.position(data, sample, lateness_ns)?;
        self.note_taken();
        match position {
            Position::Next => {
                self.note_gap(data, sample, lateness_ns);
                self.note_next(data, sample);
            }
            Position::Restart => self.restart(data, sample),
            Position::Gap => return self.fill(data, sample),
            Position::OtherEpoch => return self.advance_epoch(data, sample, false),
            Position::ForgottenEpoch => return self.advance_epoch(data, sample, true),
            Position::Folded => {
                if let Some(out_of_order) = &mut self.out_of_order {
                    out_of_order.is_folded = false;
                }
                // The first value is the baseline: the series has it already.
                self.change(data, sample.value)?;
            }
        }
        let change = self.change(data, sample.value)?;
        (self.start, self.time) = (sample.start, sample.time);
        Ok(self.without_overdue(data, change))
    }

    /// Notes that a point was taken. Frees the rare state when nothing is in it.
    fn note_taken(&mut self) {
        if let Some(out_of_order) = &mut self.out_of_order {
            out_of_order.stall.clear();
            if out_of_order.holds_nothing() {
                self.out_of_order = None;
            }
        }
    }

    /// Whether several epochs go on side by side, so that their values are added up.
    pub(crate) fn is_interleaved(&self) -> bool {
        self.epochs().is_some_and(|epochs| epochs.are_interleaved)
    }

    /// Remembers the interval that the next delta skips, so that late deltas can fill it.
    fn note_gap(&mut self, data: Data, sample: &PointSample<'_>, lateness_ns: u64) {
        let delta = data.temporality() == Temporality::Delta;
        if !delta || lateness_ns == 0 || sample.start == 0 {
            return;
        }
        let oldest = sample.time.saturating_sub(lateness_ns);
        let from = if self.time == 0 { oldest } else { self.time };
        if from < sample.start {
            let out_of_order = self.out_of_order.get_or_insert_default();
            out_of_order.add_gap(from, sample.start, oldest);
        }
    }

    /// Looks for signs of other processes in the next value of the newest epoch.
    fn note_next(&mut self, data: Data, sample: &PointSample<'_>) {
        if data.temporality() != Temporality::Cumulative || data == Data::Gauge {
            return;
        }
        let falls = matches!(data, Data::Sum { monotonic: false, .. });
        let (then, now) = (self.last.weight(), LastValue::weight_of(sample.value));
        let fell = !falls && then.zip(now).is_some_and(|(then, now)| now < then);
        if fell && self.out_of_order.is_none() {
            self.out_of_order = Some(Box::default());
        }
        let Some(out_of_order) = &mut self.out_of_order else {
            return;
        };
        let newest = out_of_order.epochs.newest;
        out_of_order
            .epochs
            .note_overlap(self.time, &[newest], sample.time);
        out_of_order.epochs.note_value(then, now, fell);
        if falls {
            out_of_order.epochs.current_gap = sample.time.saturating_sub(self.time);
        }
    }

    /// Begins a new epoch. The newest one so far moves to the others.
    fn restart(&mut self, data: Data, sample: &PointSample<'_>) {
        let falls = matches!(data, Data::Sum { monotonic: false, .. });
        let is_known = self.holds_total();
        if !is_known {
            return;
        }
        let newest = self.newest().max(sample.time);
        let epochs = &mut self.out_of_order.get_or_insert_default().epochs;
        let (are_interleaved, gap) = (epochs.are_interleaved, std::mem::take(&mut epochs.current_gap));
        let epoch = epochs.entry(self.start, newest);
        (epoch.time, epoch.gap) = (self.time, gap);
        // The level of the new process replaces the old one, until both are known to be alive.
        if !falls || are_interleaved {
            epoch.last = std::mem::take(&mut self.last);
        }
        epochs.note_time(self.time);
    }

    fn fill<'a>(&mut self, data: Data, sample: &PointSample<'a>) -> Result<Change<'a>, Rejection> {
        let change = self.change(data, sample.value)?;
        if let Some(out_of_order) = &mut self.out_of_order {
            out_of_order.fill(sample.start, sample.time);
        }
        Ok(change)
    }

    /// Takes a sample of an epoch that is not the newest. `change` works on `last`, so the last values
    /// change places.
    fn advance_epoch<'a>(
        &mut self,
        data: Data,
        sample: &PointSample<'a>,
        is_baseline: bool,
    ) -> Result<Change<'a>, Rejection> {
        let newest = self.newest();
        let mut out_of_order = self.out_of_order.take().unwrap_or_default();
        let epoch = out_of_order.epochs.entry(sample.start, newest.max(sample.time));
        let said = epoch.time;
        std::mem::swap(&mut epoch.last, &mut self.last);
        if is_baseline {
            // The first value is the baseline: the series may have it already.
            let _ = self.change(data, sample.value);
        }
        let change = self.change(data, sample.value);
        std::mem::swap(&mut epoch.last, &mut self.last);
        if said != 0 {
            epoch.gap = sample.time.saturating_sub(said);
        }
        epoch.time = sample.time;
        if said != 0 {
            out_of_order
                .epochs
                .note_overlap(said, &[self.time, newest], sample.time);
        }
        if is_baseline {
            out_of_order.epochs.note(Collision::Forgotten);
        }
        out_of_order.epochs.note_time(sample.time);
        self.out_of_order = Some(out_of_order);
        Ok(self.without_overdue(data, change?))
    }

    /// Takes back the levels of silent epochs, for a sum that may fall.
    fn without_overdue<'a>(&mut self, data: Data, change: Change<'a>) -> Change<'a> {
        let falls = matches!(
            data,
            Data::Sum {
                monotonic: false,
                temporality: Temporality::Cumulative
            }
        );
        let newest = self.newest();
        match (&mut self.out_of_order, change) {
            (Some(out_of_order), Change::Number(number)) if falls => {
                let mut gone = out_of_order.epochs.take_overdue(newest);
                if epochs::is_overdue(self.time, out_of_order.epochs.current_gap, newest)
                    && let LastValue::Number(level) = std::mem::take(&mut self.last)
                {
                    gone = gone.plus(level);
                }
                Change::Number(number.minus(gone))
            }
            (_, change) => change,
        }
    }

    /// Notes that a sum has the value that a state showed unchanged until now. From now on, increases add to that sum.
    pub(crate) fn note_added(&mut self, shown: &Value) {
        // Several epochs have their last values already.
        if self.time == 0 || self.is_interleaved() {
            return;
        }
        self.last = LastValue::of(shown).unwrap_or_default();
        if let Some(out_of_order) = &mut self.out_of_order {
            out_of_order.is_folded = false;
        }
    }

    /// The time of the latest sample of any epoch; 0: none.
    pub(crate) fn newest(&self) -> UnixNanos {
        let of_others = self.epochs().map_or(0, |epochs| epochs.newest);
        self.time.max(of_others)
    }

    /// Whether the epoch that began at `start` has a sample.
    pub(crate) fn knows(&self, start: UnixNanos) -> bool {
        let is_current = start == self.start || start == 0 || self.start == 0;
        let is_other = || self.epochs().is_some_and(|epochs| epochs.find(start).is_some());
        self.time != 0 && (is_current || is_other())
    }

    /// The epochs beside the newest.
    fn epochs(&self) -> Option<&Epochs> {
        self.out_of_order
            .as_deref()
            .map(|out_of_order| &out_of_order.epochs)
    }

    /// Forgets the values of all epochs. The start and the time of the newest stay.
    pub(crate) fn forget_epochs(&mut self) {
        self.out_of_order = None;
        self.last = LastValue::Nothing;
    }

    /// A collision of epochs that no call has returned yet.
    pub(crate) fn take_collision(&mut self) -> Option<Collision> {
        self.out_of_order.as_mut()?.epochs.take_unreported()
    }

    /// Whether it has a last value.
    pub(crate) fn holds_total(&self) -> bool {
        !matches!(self.last, LastValue::Nothing)
    }

    /// Removes and returns the sum of all levels: a stream that ends takes it back from a sum that may fall.
    pub(crate) fn withdraw(&mut self) -> Option<Number> {
        let others = self
            .out_of_order
            .as_mut()
            .map(|out_of_order| out_of_order.epochs.take_all());
        match (std::mem::take(&mut self.last), others) {
            (LastValue::Number(number), Some(others)) => Some(number.plus(others)),
            (LastValue::Number(number), None) => Some(number),
            (_, others) => others.filter(|others| others.as_f64() != 0.0),
        }
    }

    /// Writes the last value for another process, and before it the other epochs if there are any.
    pub(crate) fn save(&self, to: &mut Vec<u8>) {
        let out_of_order = self.out_of_order.as_ref();
        if let Some(out_of_order) = out_of_order.filter(|out_of_order| out_of_order.epochs.is_worth_saving())
        {
            to.push(SEVERAL_EPOCHS);
            out_of_order.epochs.save(to);
        }
        self.last.save(to);
    }

    /// Reads the bytes of [`Self::save`]. Those of older builds have the last value only.
    pub(crate) fn load(start: UnixNanos, time: UnixNanos, from: &mut &[u8]) -> Option<Self> {
        let mut out_of_order = None;
        if from.first() == Some(&SEVERAL_EPOCHS) {
            take::<1>(from)?;
            out_of_order = Some(Box::new(OutOfOrder::of_epochs(Epochs::load(from)?)));
        }
        let last = LastValue::load(from)?;
        Some(Self {
            start,
            time,
            last,
            out_of_order,
        })
    }
}

#[cfg(test)]
mod tests;
