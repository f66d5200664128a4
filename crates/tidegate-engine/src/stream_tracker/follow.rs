// SPDX-License-Identifier: Apache-2.0

//! The order of points for a state that shows them unchanged.

use super::change::{Change, check};
use super::{Collision, LastValue, PointSample, Rejection, StreamTracker};
use crate::{Data, Temporality, Value};

/// The treatment of a point by a state that shows points unchanged.
#[derive(Clone, Debug)]
pub(crate) enum Followed<'a> {
    /// It shows the point.
    AsItIs,
    /// Several epochs are alive: the state adds the increase of one of them.
    Adds(Change<'a>),
}

impl StreamTracker {
    /// Takes a sample for a state that shows points unchanged. It checks the order, and stores no value while one
    /// process reports. From the moment when two epochs are alive, the increases of both are added to `shown`, the
    /// value that the state shows.
    pub(crate) fn follow<'a>(
        &mut self,
        data: Data,
        sample: &PointSample<'a>,
        lateness_ns: u64,
        shown: &mut dyn FnMut() -> Option<LastValue>,
    ) -> Result<Followed<'a>, Rejection> {
        let is_total = data != Data::Gauge && data.temporality() == Temporality::Cumulative;
        let has_starts = is_total && self.start != 0 && sample.start != 0;
        if self.is_interleaved() {
            return self.advance(data, sample, lateness_ns).map(Followed::Adds);
        }
        check(data, sample.value)?;
        self.position(data, sample, 0)?;
        self.note_taken();
        if has_starts && sample.start != self.start {
            let epochs = &mut self.out_of_order.get_or_insert_default().epochs;
            if epochs.remove(sample.start) {
                epochs.are_interleaved = true;
                epochs.note(Collision::Interleaved);
                self.last = shown().unwrap_or_default();
                return self.advance(data, sample, lateness_ns).map(Followed::Adds);
            }
            let newest = self.time.max(sample.time);
            epochs.entry(self.start, newest).time = self.time;
        }
        (self.start, self.time) = (sample.start, sample.time);
        Ok(Followed::AsItIs)
    }

    /// Looks for signs of other processes in a state that shows points as they are: `now` follows `shown`.
    pub(crate) fn note_shown(&mut self, data: Data, shown: &Value, now: &Value) {
        let falls = matches!(data, Data::Gauge | Data::Sum { monotonic: false, .. });
        if falls || data.temporality() != Temporality::Cumulative {
            return;
        }
        let (then, now) = (LastValue::weight_of(shown), LastValue::weight_of(now));
        let fell = then.zip(now).is_some_and(|(then, now)| now < then);
        if fell || self.out_of_order.is_some() {
            self.out_of_order
                .get_or_insert_default()
                .epochs
                .note_value(then, now, fell);
        }
    }
}
