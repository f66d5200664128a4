//! `temporality`: what a destination wants points of sums and histograms to cover.
//!
//! A batch is converted when it is committed to the destination's queue, not before: what a full queue drops stays
//! part of the next delta. Where every batch is stored, how far each of its streams has come is stored with it.

use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{RwLock, RwLockReadGuard};
use tidegate_engine::{
    Bounds, Converted, Converter, ConverterLimits, Data, Events, Future, Key, Point, Rejection, Sample,
    Series, Temporality, UnixNanos,
};
use tidegate_wal::{Joins, Saving, State};

use super::config::Delivery;
use super::stored;
use crate::batch::wire::points::{PointVisitor, WirePoint};
use crate::batch::{Batch, Encoded, Payload, Signal, convert, stream_id, wire};
use crate::component::{Flow, Ledger, Reason, unix_now, wall_now};

crate::choices! {
    /// What points of sums and histograms cover.
    pub enum TemporalityChoice {
        /// Whatever they covered when they came.
        Preserve = "preserve",
        /// Everything since a start time.
        Cumulative = "cumulative",
        /// The time since the point before.
        Delta = "delta",
    }
}

/// Streams of one destination; beyond, points of new streams are dropped and counted. So are those of streams for which
/// there is no memory: a destination's streams may take as much as a table.
const MAX_STREAMS: usize = 1_000_000;

/// A stream that says nothing for so long is forgotten: longer than any export interval.
const EXPIRY_NS: u64 = 3600 * 1_000_000_000;

/// A destination's conversion, and its place in every stream.
pub(super) struct Conversion {
    converter: Converter,
    /// Sums of deltas that may fall stay as they are.
    refuses_falling: bool,
    ledger: Arc<Ledger>,
    /// Held while a batch is on its way from the conversion to the log.
    passing: RwLock<()>,
    /// By how many nanoseconds a test looks through the streams too early.
    #[cfg(test)]
    pub(super) ahead: AtomicU64,
}

impl Conversion {
    /// `None`: points stay as they are.
    pub(super) fn new(
        delivery: &Delivery,
        ledger: Option<&Arc<Ledger>>,
        bounds: Arc<Bounds>,
    ) -> Option<Self> {
        let wanted = match delivery.temporality {
            TemporalityChoice::Preserve => return None,
            TemporalityChoice::Cumulative => Temporality::Cumulative,
            TemporalityChoice::Delta => Temporality::Delta,
        };
        let limits = ConverterLimits {
            streams: MAX_STREAMS,
            expiry_ns: EXPIRY_NS,
            future: Future::default(),
        };
        Some(Self {
            converter: Converter::new(wanted, wall_now(), limits).bounded_by(bounds),
            refuses_falling: delivery.refuses_falling,
            ledger: ledger?.clone(),
            passing: RwLock::default(),
            #[cfg(test)]
            ahead: AtomicU64::new(0),
        })
    }

    /// Forgets streams that have been silent for long, also while nothing comes.
    pub(super) fn expire(&self) {
        // While the places are frozen, the next look does.
        if let Some(_passing) = self.passing.try_read() {
            #[cfg(not(test))]
            let ahead = 0;
            #[cfg(test)]
            let ahead = self.ahead.load(Relaxed);
            self.converter.expire(unix_now() + ahead);
        }
    }

    /// Streams that it follows.
    #[cfg(test)]
    pub(super) fn streams(&self) -> usize {
        self.converter.len()
    }

    /// Counts the places of a former run that found no room, and says so. Each costs an increase of its stream.
    pub(super) fn note_lost(&self, component: &str) {
        let places = self.converter.take_lost();
        if places == 0 {
            return;
        }
        // They come from the disk, as items of a former run do.
        self.ledger.restore(places);
        self.ledger.drop_items(Reason::Limit, places);
        tracing::warn!(
            component,
            places,
            "streams of the last run find no memory: their increases since then are lost. Raise the memory limit"
        );
    }

    /// To be held from the conversion until the batch is appended.
    pub(super) fn pass(&self) -> RwLockReadGuard<'_, ()> {
        self.passing.read()
    }

    /// Converts what needs it. With `cursor`, the new places of its streams are appended there.
    pub(super) fn convert(&self, batch: Batch, cursor: Option<&mut Vec<u8>>, flow: &mut Flow) -> Batch {
        if batch.signal() != Signal::Metrics {
            return batch;
        }
        let mut converting = Converting {
            conversion: self,
            now: unix_now(),
            taken: 0,
            made: Vec::new(),
            cursor,
            // Events are ours to add up.
            refuses_falling: self.refuses_falling && !matches!(batch.payload, Payload::Events(_)),
            flow,
        };
        let rest = match &batch.payload {
            Payload::Encoded(encoded) => converting.encoded(encoded),
            Payload::Points(points) => converting.points(&points.points),
            Payload::Events(events) => converting.events(events),
        };
        match (converting.taken, converting.made) {
            (0, _) => batch,
            (_, made) => {
                let mut whole = rest;
                if !made.is_empty() {
                    whole.parts.extend(convert::encode_points(&made).parts);
                }
                batch.with(whole)
            }
        }
    }
}

/// One batch under conversion.
struct Converting<'a> {
    conversion: &'a Conversion,
    now: UnixNanos,
    /// Points that do not stay as they are.
    taken: usize,
    made: Vec<Point>,
    cursor: Option<&'a mut Vec<u8>>,
    refuses_falling: bool,
    flow: &'a mut Flow,
}

impl Converting<'_> {
    fn concerns(&self, data: Data) -> bool {
        self.conversion.converter.concerns(data) && !(self.refuses_falling && data.is_falling_delta())
    }

    /// What stays.
    fn encoded(&mut self, encoded: &Encoded) -> Encoded {
        let before = self.taken;
        wire::points::visit(encoded, self).unwrap_or_else(|_| {
            // Checked when it came in, so this is a processor's doing; what was not converted is counted.
            let lost = encoded.items().saturating_sub(self.taken - before);
            self.conversion.ledger.drop_items(Reason::Invalid, lost);
            self.taken += lost;
            Encoded {
                signal: Signal::Metrics,
                parts: Default::default(),
            }
        })
    }

    /// The same of events. Those from the future are cut out before they become part of a point.
    fn events(&mut self, events: &Events) -> Encoded {
        let Conversion {
            converter, ledger, ..
        } = self.conversion;
        let kept = converter.without_future(events);
        let (events, cut) = kept.as_ref().map_or((events, 0), |(kept, cut)| (kept, *cut));
        ledger.drop_items(Reason::Future, cut);
        self.taken += cut;
        self.points(&convert::events_to_points(events))
    }

    fn points(&mut self, points: &[Point]) -> Encoded {
        let mut rest = Vec::new();
        for point in points {
            let series = &point.series;
            let sample = Sample {
                start: point.start,
                time: point.time,
                value: &point.value,
                exemplars: &point.exemplars,
            };
            let data = series.metric.data;
            if self.concerns(data) {
                self.take(Key::of(series), sample, &series.metric.name, &mut || {
                    Some(series.clone())
                });
            } else {
                rest.push(point.clone());
            }
        }
        convert::encode_points(&rest)
    }

    fn take(
        &mut self,
        key: Key,
        sample: Sample<'_>,
        name: &str,
        series: &mut dyn FnMut() -> Option<Arc<Series>>,
    ) {
        self.taken += 1;
        let Conversion {
            converter, ledger, ..
        } = self.conversion;
        let cursor = self.cursor.as_deref_mut();
        match converter.convert(key, sample, self.now, series, &stream_id, cursor) {
            Converted::Point(point) => self.made.push(point),
            // It is part of the state, as is what was said before.
            Converted::Baseline | Converted::Rejected(Rejection::Duplicate) => ledger.absorb_unsent(1),
            Converted::Unreadable => ledger.drop_items(Reason::Invalid, 1),
            Converted::Rejected(rejection) => {
                ledger.drop_items(rejection.into(), 1);
                self.flow.reject(1, || format!("`{name}`: {rejection}"));
            }
        }
    }
}

impl PointVisitor for Converting<'_> {
    fn wants(&mut self, _: &str) -> bool {
        true
    }

    fn wants_data(&mut self, data: Data) -> bool {
        self.concerns(data)
    }

    fn point(&mut self, point: &WirePoint<'_>) -> bool {
        self.take(point.key, point.sample, point.name, &mut || (point.series)());
        false
    }
}

impl State for Conversion {
    fn joins(&self) -> Joins {
        Joins::BeforeAppend
    }

    fn restore(&self, snapshot: &[u8]) {
        self.converter.restore(snapshot);
    }

    fn replay(&self, payload: &[u8]) {
        stored::cursor(payload).map(|cursor| self.converter.restore(cursor));
    }

    fn save(&self, between: &mut dyn FnMut()) -> Saving {
        let _nobody = self.passing.write();
        between();
        let frozen = self.converter.freeze();
        Box::new(move |to| frozen.write(to))
    }
}
