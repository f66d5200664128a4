// SPDX-License-Identifier: Apache-2.0

//! Conversion to one temporality: a reader that wants deltas, or totals, gets them from every stream.
//!
//! A converter is the position of one reader in all streams. For deltas it keeps the last value passed on; for totals
//! it keeps the sum of all deltas. A caller must count each result that it loses: the next delta begins where that one
//! ends.

mod positions;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::budget::{Reservation, SeriesInterner};
use crate::key::Key;
use crate::restored::RestoredStates;
use crate::saved::StreamId;
use crate::stream_tracker::{Change, LastValue, StreamTracker};
use crate::streams::{Streams, Sweep};
use crate::{
    Bounds, Budget, Data, Events, Future, FutureAction, Instrument, Metric, Point, PointSample, Rejection,
    Series, Temporality, TimestampAnomaly, UnixNanos, Value, clock,
};

pub use positions::FrozenPositions;

/// The limits of a converter: streams, expiry, and the policy for future points.
#[derive(Clone, Copy, Debug)]
pub struct ConverterLimits {
    /// Streams at one time.
    pub streams: usize,
    /// A silent stream expires after this time, in nanoseconds.
    pub expiry_ns: u64,
    /// The policy for points from the future.
    pub future: Future,
}

/// Each delta begins where the one before it ended: nothing may come in between afterwards.
const IN_ORDER: u64 = 0;

/// The bytes of a stream beside its series and its position: index entries and timer.
const STREAM_BYTES: usize = size_of::<ConvertedStream>() + 160;

/// The same of a place that a previous process saved.
const RESTORED_BYTES: usize = size_of::<Restored>() + 64;

/// A reader's place in all streams.
#[derive(Debug)]
pub struct Converter {
    wanted: Temporality,
    /// Another process counted the epochs that began before this.
    born: UnixNanos,
    limits: ConverterLimits,
    streams: Arc<Streams<ConvertedStream>>,
    /// Places that a previous process saved, until their streams are seen again.
    restored: Arc<RestoredStates<Restored>>,
    /// When the first sweep came that saw them; 0: none has.
    restored_at: AtomicU64,
    /// The number of positions of a previous process that found no room since the last call.
    lost: AtomicUsize,
    /// The memory budget of streams and positions.
    budget: Arc<Budget>,
    shared: SeriesInterner,
    swept: AtomicU64,
    /// Whether silent streams stay.
    keeps_silent: AtomicBool,
}

#[derive(Debug)]
struct ConvertedStream {
    id: StreamId,
    /// The series in the output.
    series: Arc<Series>,
    saved: Saved,
    /// A previous process knew it.
    is_restored: bool,
    /// The budget's reservation for the series and for the position.
    reservation: Reservation,
}

/// A place that a previous process saved.
#[derive(Debug)]
struct Restored {
    saved: Saved,
    /// The budget's reservation, until the position is restored or forgotten.
    _reservation: Reservation,
}

/// A stream's place.
#[derive(Clone, Debug, Default)]
struct Saved {
    tracker: StreamTracker,
    /// The sum of all deltas, and its start time.
    total: LastValue,
    since: UnixNanos,
}

/// When a point comes to a converter, and whether a table has it.
#[derive(Clone, Copy, Debug)]
pub struct PointArrival {
    /// The time of our clock.
    pub now: UnixNanos,
    /// Whether the point is a total of a table. If its start moves back, the total has another part and no other writer.
    pub is_snapshot: bool,
}

/// The result of a conversion.
#[derive(Clone, Debug, PartialEq)]
pub enum Converted {
    /// Hand this on instead.
    Point(Point),
    /// The first point of a stream that began before this reader: increases count from here.
    Baseline,
    /// It can't be converted; `Duplicate`: nothing is lost.
    Rejected(Rejection),
    /// The identity of the series can't be decoded.
    Unreadable,
}

impl Converter {
    /// For a reader that wants `Delta` or `Cumulative`, from `born` on.
    pub fn new(wanted: Temporality, born: UnixNanos, limits: ConverterLimits) -> Self {
        Self {
            wanted,
            born,
            limits,
            streams: Arc::new(Streams::new(limits.streams, limits.expiry_ns)),
            restored: Arc::default(),
            restored_at: AtomicU64::new(0),
            lost: AtomicUsize::new(0),
            budget: Arc::default(),
            shared: SeriesInterner::default(),
            swept: AtomicU64::new(born),
            keeps_silent: AtomicBool::new(false),
        }
    }

    /// Bounds the memory of the streams. `bounds` may change at any time.
    #[must_use]
    pub fn bounded_by(self, bounds: Arc<Bounds>) -> Self {
        Self {
            budget: Arc::new(Budget::of(bounds)),
            ..self
        }
    }

    /// The temporality of the converted points.
    pub fn wanted(&self) -> Temporality {
        self.wanted
    }

    /// Keeps silent streams: the limit of streams bounds them. Nothing passes a replica while another one leads.
    pub fn keep_silent(&self) {
        self.keeps_silent.store(true, Relaxed);
    }

    /// Bytes of streams and of places of a previous process, estimated.
    pub fn bytes(&self) -> usize {
        self.budget.bytes()
    }

    /// Whether the converter converts this kind of data. Sums that may fall stay totals for a reader of deltas, as in
    /// the OpenTelemetry SDKs.
    pub fn concerns(&self, data: Data) -> bool {
        let has_one = !matches!(data, Data::Gauge | Data::Summary);
        let stays = matches!(data, Data::Sum { monotonic: false, .. }) && self.wanted == Temporality::Delta;
        let other = match self.wanted {
            Temporality::Delta => Temporality::Cumulative,
            _ => Temporality::Delta,
        };
        has_one && !stays && data.temporality() == other
    }

    /// Applies the policy for future events to the events that this converter converts. Gives the remaining events and
    /// the number of removed ones; `None`: all stay.
    pub fn without_future(&self, events: &Events) -> Option<(Events, usize)> {
        let becomes_delta = |kind: u16| {
            let kind = events.schema.kinds.get(usize::from(kind));
            kind.is_some_and(|kind| kind.instrument != Instrument::Gauge)
        };
        match self.wanted {
            Temporality::Cumulative => self.limits.future.apply(events, becomes_delta),
            _ => None,
        }
    }

    /// Converts a point of data that [`Self::concerns`] it. For a new `key`, `series` decodes the identity, and `id`
    /// gives its identity for other processes. With `cursor`, the stream's new position is appended to it. A point
    /// without a time gets that of its arrival.
    pub fn convert(
        &self,
        key: Key,
        mut sample: PointSample<'_>,
        arrival: PointArrival,
        series: &mut dyn FnMut() -> Option<Arc<Series>>,
        id: &dyn Fn(&Series) -> StreamId,
        cursor: Option<&mut Vec<u8>>,
    ) -> Converted {
        let now = arrival.now;
        self.expire(now);
        if sample.time > self.limits.future.latest(now) {
            if self.limits.future.action == FutureAction::Refuse {
                return Converted::Rejected(Rejection::Future);
            }
            sample.time = 0;
        }
        if sample.time == 0 {
            sample.time = clock::wall(now);
        }
        let mut cursor = cursor;
        let mut step =
            |stream: &mut ConvertedStream| self.step(stream, &sample, arrival, cursor.as_deref_mut());
        if let Some(converted) = self.streams.known(key, now, &mut step) {
            return converted;
        }
        let Some(from) = series() else {
            return Converted::Unreadable;
        };
        let value = LastValue::bytes_of(sample.value);
        let make = || {
            let reserve = |bytes: usize| Reservation::new(&self.budget, STREAM_BYTES + bytes, value);
            let series = with_temporality(&from, self.wanted);
            let (series, reservation) = self.shared.keep(series, reserve)?;
            let id = id(&series);
            let restored = self.restored.take(id);
            Some(ConvertedStream {
                id,
                series,
                is_restored: restored.is_some(),
                saved: restored.map(|restored| restored.saved).unwrap_or_default(),
                reservation,
            })
        };
        match self.streams.try_register(key, Key::of(&from), now, make) {
            Some(home) => self
                .streams
                .known(home, now, step)
                .unwrap_or(Converted::Unreadable),
            None => Converted::Rejected(Rejection::Limit),
        }
    }

    fn step(
        &self,
        stream: &mut ConvertedStream,
        sample: &PointSample<'_>,
        PointArrival { now, is_snapshot }: PointArrival,
        cursor: Option<&mut Vec<u8>>,
    ) -> Converted {
        let continued;
        let sample = if is_snapshot {
            continued = stream.saved.tracker.continued(sample);
            &continued
        } else {
            sample
        };
        let data = with_data(stream.series.metric.data, self.unwanted());
        if !stream.reservation.may_grow(self.growth(stream, data, sample)) {
            return Converted::Rejected(Rejection::Limit);
        }
        let mut converted = self.advance(stream, data, sample);
        let is_late = matches!(converted, Err(Rejection::Late | Rejection::Duplicate));
        if is_late
            && stream.saved.tracker.note_anomaly(data, sample, now, None)
                == Some(TimestampAnomaly::Reanchored)
        {
            // The sender's clock was set back: the stream continues by the new clock.
            converted = self.advance(stream, data, sample);
        }
        stream.reservation.hold(stream.saved.bytes());
        match (converted, cursor) {
            (Ok(converted), Some(cursor)) => {
                stream.saved.save(stream.id, cursor);
                converted
            }
            (Ok(converted), None) => converted,
            (Err(rejection), _) => Converted::Rejected(rejection),
        }
    }

    /// The bytes by which the position of a stream will grow.
    fn growth(&self, stream: &ConvertedStream, data: Data, sample: &PointSample<'_>) -> usize {
        let Saved { tracker, total, .. } = &stream.saved;
        match self.wanted {
            Temporality::Delta => tracker.growth(data, sample),
            // The first one was reserved with the stream.
            _ if tracker.time == 0 => 0,
            _ => LastValue::bytes_of(sample.value).saturating_sub(total.bytes()),
        }
    }

    fn advance(
        &self,
        stream: &mut ConvertedStream,
        data: Data,
        sample: &PointSample<'_>,
    ) -> Result<Converted, Rejection> {
        match self.wanted {
            Temporality::Delta => self.delta(stream, data, sample),
            _ => total(stream, data, sample),
        }
    }

    fn unwanted(&self) -> Temporality {
        match self.wanted {
            Temporality::Delta => Temporality::Cumulative,
            _ => Temporality::Delta,
        }
    }

    fn delta(
        &self,
        stream: &mut ConvertedStream,
        data: Data,
        sample: &PointSample<'_>,
    ) -> Result<Converted, Rejection> {
        let tracker = &mut stream.saved.tracker;
        let (was, since) = (tracker.newest(), tracker.start);
        let is_new_epoch = !tracker.knows(sample.start);
        let value = match tracker.advance(data, sample, IN_ORDER)? {
            Change::Number(number) => number.into(),
            Change::Histogram(histogram) => Value::Histogram(histogram.into_owned()),
            Change::Exponential(histogram) => Value::ExponentialHistogram(histogram.into_owned()),
            // Not asked for: see `concerns`.
            Change::Summary(_) => return Err(Rejection::Unsupported),
            Change::End => Value::NoRecordedValue,
        };
        let is_first = was == 0;
        // A stream that another process counted may have begun another epoch since.
        let is_untold = is_first || (is_new_epoch && !stream.is_restored);
        if is_untold && sample.start < self.born && value != Value::NoRecordedValue {
            return Ok(Converted::Baseline);
        }
        let restarted = sample.start > since;
        let start = if is_first || restarted { sample.start } else { was };
        Ok(Converted::Point(point(
            stream,
            start.min(sample.time),
            sample,
            value,
        )))
    }

    /// Forgets streams that have been silent, now and then. Call it as often as you like, also while nothing is converted.
    pub fn expire(&self, now: UnixNanos) {
        let swept = self.swept.load(Relaxed);
        let is_due =
            !self.keeps_silent.load(Relaxed) && now.saturating_sub(swept) > self.limits.expiry_ns / 8;
        if is_due && self.swept.compare_exchange(swept, now, Relaxed, Relaxed).is_ok() {
            let is_overdue = |seen| now.saturating_sub(seen) > self.limits.expiry_ns;
            self.streams
                .expire(now, |_, seen, _| Sweep::forget_if(is_overdue(seen)));
            let first = self.restored_at.compare_exchange(0, now.max(1), Relaxed, Relaxed);
            if first.is_err_and(is_overdue) {
                self.restored.retain(|look| look(), |_| false);
            }
        }
    }

    /// Streams that are known.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn total(stream: &mut ConvertedStream, data: Data, sample: &PointSample<'_>) -> Result<Converted, Rejection> {
    let Saved {
        tracker,
        total,
        since,
    } = &mut stream.saved;
    let is_first = tracker.time == 0;
    let change = tracker.advance(data, sample, IN_ORDER)?;
    if is_first {
        *since = if sample.start == 0 {
            sample.time
        } else {
            sample.start
        };
    }
    let value = match change {
        Change::End => Value::NoRecordedValue,
        change => total.add(&change).ok_or(Rejection::Unsupported)?,
    };
    let since = *since;
    Ok(Converted::Point(point(stream, since, sample, value)))
}

fn point(stream: &ConvertedStream, start: UnixNanos, sample: &PointSample<'_>, value: Value) -> Point {
    Point {
        series: stream.series.clone(),
        start,
        time: sample.time,
        value,
        exemplars: sample.exemplars.to_vec(),
    }
}

fn with_temporality(series: &Series, temporality: Temporality) -> Series {
    Series {
        metric: Arc::new(Metric {
            data: with_data(series.metric.data, temporality),
            ..(*series.metric).clone()
        }),
        ..series.clone()
    }
}

fn with_data(data: Data, temporality: Temporality) -> Data {
    match data {
        Data::Sum { monotonic, .. } => Data::Sum {
            monotonic,
            temporality,
        },
        Data::Histogram { .. } => Data::Histogram { temporality },
        Data::ExponentialHistogram { .. } => Data::ExponentialHistogram { temporality },
        Data::Gauge | Data::Summary => data,
    }
}

impl Saved {
    /// The bytes that it has allocated.
    fn bytes(&self) -> usize {
        self.tracker.bytes() + self.total.bytes()
    }
}

#[cfg(test)]
mod tests;
