// SPDX-License-Identifier: Apache-2.0

//! `temporality`: the temporality of sums and histograms that a destination wants.
//!
//! A batch is converted when it is committed to the destination's queue. So data that a full queue drops stays
//! part of the next delta. If every batch is stored, the positions of its streams are stored with it.

use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{RwLock, RwLockReadGuard};
use tidegate_engine::{
    Bounds, Converted, Converter, ConverterLimits, Data, Events, Future, Key, Point, PointArrival,
    PointSample, Rejection, Series, Temporality,
};
use tidegate_wal::{Joins, Saving, State};

use super::config::Delivery;
use super::stored;
use crate::batch::wire::points::{PointVisitor, WirePoint};
use crate::batch::{Batch, Encoded, Payload, Signal, convert, stream_id, wire};
use crate::component::{Flow, Ledger, Reason, unix_now, wall_now};

tidegate_config::choices! {
    /// The time that points of sums and histograms cover.
    pub enum TemporalityChoice {
        /// The same time as in the data that arrived.
        Preserve = "preserve",
        /// The whole time since a start time.
        Cumulative = "cumulative",
        /// The time since the previous point.
        Delta = "delta",
    }
}

/// The most streams of one destination. Points of further streams are dropped and counted. The same applies to
/// streams without free memory: the streams of a destination may take as much as a table.
const MAX_STREAMS: usize = 1_000_000;

/// A stream without points for this long is forgotten. It is longer than any export interval.
const EXPIRY_NS: u64 = 3600 * 1_000_000_000;

/// The conversion of a destination, with its position in every stream.
pub(super) struct Conversion {
    converter: Converter,
    /// Whether sums of deltas that may fall stay unconverted.
    refuses_falling: bool,
    ledger: Arc<Ledger>,
    /// Held from the conversion of a batch until the log has it.
    passing: RwLock<()>,
    /// Nanoseconds by which a test moves the clock of the expiry forward.
    #[cfg(test)]
    pub(super) ahead: AtomicU64,
}

impl Conversion {
    /// Creates a conversion; `None` if points stay unconverted.
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

    /// Whether the destination wants deltas.
    pub(super) fn wants_deltas(&self) -> bool {
        self.converter.wanted() == Temporality::Delta
    }

    /// Keeps the positions of silent streams: nothing passes while another replica leads.
    pub(super) fn keep_silent(&self) {
        self.converter.keep_silent();
    }

    /// Forgets streams that have been silent for long, even without new batches.
    pub(super) fn expire(&self) {
        // While the positions are frozen, the next call expires streams.
        if let Some(_passing) = self.passing.try_read() {
            #[cfg(not(test))]
            let ahead = 0;
            #[cfg(test)]
            let ahead = self.ahead.load(Relaxed);
            self.converter.expire(unix_now() + ahead);
        }
    }

    /// The number of streams.
    #[cfg(test)]
    pub(super) fn streams(&self) -> usize {
        self.converter.len()
    }

    /// Counts and logs the positions of a previous run that found no memory. Each costs an increase of its stream.
    pub(super) fn note_lost(&self, component: &str) {
        let places = self.converter.take_lost();
        if places == 0 {
            return;
        }
        // They come from disk, like the items of a previous run.
        self.ledger.restore(places);
        self.ledger.drop_items(Reason::Limit, places);
        tracing::warn!(
            component,
            streams = places,
            "stored streams do not fit after the restart: their increases since the stop are lost. Raise the memory limit, \
             or the limit of streams"
        );
    }

    /// The guard that a caller holds from the conversion until the append.
    pub(super) fn pass(&self) -> RwLockReadGuard<'_, ()> {
        self.passing.read()
    }

    /// Converts the points that need it. With `cursor`, appends the new positions of their streams.
    pub(super) fn convert(&self, batch: Batch, cursor: Option<&mut Vec<u8>>, flow: &mut Flow) -> Batch {
        if batch.signal() != Signal::Metrics {
            return batch;
        }
        let mut converting = Converting {
            conversion: self,
            arrival: PointArrival {
                now: unix_now(),
                is_snapshot: batch.is_snapshot,
            },
            taken: 0,
            made: Vec::new(),
            cursor,
            // The gateway itself adds up events, so they are always converted.
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

/// A batch during its conversion.
struct Converting<'a> {
    conversion: &'a Conversion,
    arrival: PointArrival,
    /// Points that are converted.
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

    /// Converts an encoded payload, and returns the unconverted rest.
    fn encoded(&mut self, encoded: &Encoded) -> Encoded {
        let before = self.taken;
        wire::points::visit(encoded, self).unwrap_or_else(|_| {
            // The gateway checked it on arrival, so a processor has damaged it. Points that were not converted are
            // counted.
            let lost = encoded.items().saturating_sub(self.taken - before);
            self.conversion.ledger.drop_items(Reason::Invalid, lost);
            self.taken += lost;
            Encoded {
                signal: Signal::Metrics,
                parts: Default::default(),
            }
        })
    }

    /// Converts events. Events from the future are removed before they become part of a point.
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
            let sample = PointSample {
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
        sample: PointSample<'_>,
        name: &str,
        series: &mut dyn FnMut() -> Option<Arc<Series>>,
    ) {
        self.taken += 1;
        let Conversion {
            converter, ledger, ..
        } = self.conversion;
        let cursor = self.cursor.as_deref_mut();
        match converter.convert(key, sample, self.arrival, series, &stream_id, cursor) {
            Converted::Point(point) => self.made.push(point),
            // The point is already part of the state, or a duplicate of it.
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
        let _alone = self.passing.write();
        between();
        let frozen = self.converter.freeze();
        Box::new(move |to| frozen.write(to))
    }
}
