// SPDX-License-Identifier: Apache-2.0

//! The totals of senders since the last update. They are published as streams: a sender may report to this gateway or to
//! another one, and counts once.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_cluster::SentItem;
use tidegate_engine::{
    Bounds, Data, Key, Outcome, Point, PointSample, Rejection, Series, StreamTotal, UnixNanos, Value,
    identity_bytes,
};

use crate::component::unix_now;
use crate::exporters::tables::TakesPoints;

/// The most bytes of totals between two updates, and of known spellings: a fourth of the bounds, but within these.
const BUFFERED_BYTES: [usize; 2] = [32 << 20, 256 << 20];

/// The bytes of an entry without its series and value, estimated.
const ENTRY_BYTES: usize = 256;

/// The newest total of a stream and start.
struct ReportedStream {
    series: Arc<Series>,
    total: StreamTotal,
}

#[derive(Default)]
struct StreamState {
    /// The series by the key of its spelling. It only saves decoding, and forgets all when it is full.
    known: HashMap<Key, (Key, Arc<Series>)>,
    known_bytes: usize,
    reported: HashMap<(Key, UnixNanos), ReportedStream>,
    bytes: usize,
    fallen: u64,
}

/// Takes totals of streams until the next update.
pub(super) struct StreamBuffer {
    max_series: usize,
    max_value_bytes: usize,
    /// While memory is short, it takes no new streams.
    memory: Arc<Bounds>,
    state: Mutex<StreamState>,
}

impl StreamBuffer {
    pub(super) fn new(max_series: usize, max_value_bytes: usize, memory: Arc<Bounds>) -> Self {
        Self {
            max_series,
            max_value_bytes,
            memory,
            state: Mutex::default(),
        }
    }

    /// The most bytes that the values of all streams may take.
    pub(super) fn max_bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// The most bytes of totals between two updates, and of known spellings.
    fn max_buffered_bytes(&self) -> usize {
        let [least, most] = BUFFERED_BYTES;
        (self.memory.bytes() / 4).clamp(least, most)
    }

    /// Removes what was reported since the last call, and counts the totals that were smaller than earlier ones.
    pub(super) fn take_all(&self) -> (Vec<SentItem>, u64) {
        let mut state = self.state.lock();
        let reported = std::mem::take(&mut state.reported);
        state.bytes = 0;
        let fallen = std::mem::take(&mut state.fallen);
        drop(state);
        let items = reported.into_iter().map(|((_, start), reported)| {
            SentItem::Stream(Point {
                series: reported.series,
                start,
                time: reported.total.time,
                value: reported.total.value,
                exemplars: Vec::new(),
            })
        });
        (items.collect(), fallen)
    }

    fn add(
        &self,
        key: Key,
        sample: PointSample<'_>,
        identify: &mut dyn FnMut() -> Option<Arc<Series>>,
    ) -> Result<(), Rejection> {
        if sample.value.bytes() > self.max_value_bytes {
            return Err(Rejection::Limit);
        }
        let time = if sample.time == 0 { unix_now() } else { sample.time };
        let total = StreamTotal::new(time, sample.value.clone()).ok_or(Rejection::Invalid)?;
        let mut state = self.state.lock();
        let (key, series) = self.series(&mut state, key, identify)?;
        let limits = (self.max_series, self.max_buffered_bytes());
        state.put((key, sample.start), series, total, limits)
    }

    fn series(
        &self,
        state: &mut StreamState,
        key: Key,
        identify: &mut dyn FnMut() -> Option<Arc<Series>>,
    ) -> Result<(Key, Arc<Series>), Rejection> {
        if let Some(known) = state.known.get(&key) {
            return Ok(known.clone());
        }
        if self.memory.is_tight() {
            return Err(Rejection::Limit);
        }
        let series = identify().ok_or(Rejection::Invalid)?;
        let identity = (Key::of(&series), series);
        let bytes = ENTRY_BYTES + identity_bytes(&identity.1);
        if state.known.len() >= self.max_series || state.known_bytes + bytes > self.max_buffered_bytes() {
            state.known.clear();
            state.known_bytes = 0;
        }
        state.known_bytes += bytes;
        state.known.insert(key, identity.clone());
        Ok(identity)
    }
}

impl StreamState {
    fn put(
        &mut self,
        place: (Key, UnixNanos),
        series: Arc<Series>,
        total: StreamTotal,
        (max_series, max_bytes): (usize, usize),
    ) -> Result<(), Rejection> {
        let known = self.reported.get_mut(&place);
        let old = known.as_ref().map(|known| known.total.value.bytes());
        let new = total.value.bytes();
        let more = match old {
            Some(old) => new.saturating_sub(old),
            None => ENTRY_BYTES + identity_bytes(&series) + new,
        };
        if more > 0 && self.bytes + more > max_bytes {
            return Err(Rejection::Limit);
        }
        if let Some(known) = known {
            let is_later = total.time > known.total.time;
            let order = known.total.join(total);
            self.fallen += u64::from(order.is_lt() && is_later);
        } else if self.reported.len() < max_series {
            self.reported.insert(place, ReportedStream { series, total });
        } else {
            return Err(Rejection::Limit);
        }
        self.bytes += more;
        Ok(())
    }
}

impl TakesPoints for StreamBuffer {
    fn take(
        &self,
        data: Data,
        key: Key,
        sample: PointSample<'_>,
        identify: &mut dyn FnMut() -> Option<Arc<Series>>,
    ) -> Option<Outcome> {
        if !StreamTotal::is_known_by(data, sample.start) {
            return None;
        }
        // A stream that has ended keeps its total.
        let has_ended = matches!(sample.value, Value::NoRecordedValue);
        let taken = if has_ended {
            Ok(())
        } else {
            self.add(key, sample, identify)
        };
        Some(taken.map_or_else(Outcome::Rejected, |()| Outcome::Absorbed))
    }
}
