// SPDX-License-Identifier: Apache-2.0

//! Converts an export request to the arguments of one call of a plugin.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tidegate_engine::{
    Attributes, Data, Instrument, Point, Resource, Series, Temporality, UnixNanos, Value, Values,
};
use tidegate_plugin::host::{EventKind, Events, ExportBatch, Values as Column};
use tidegate_plugin::{Instrument as PluginInstrument, Signal as PluginSignal, Takes};

use crate::batch::{Payload, Signal, convert};
use crate::delivery::ExportRequest;
use crate::prom::labels::text;

/// The arguments of a call, and the number of items in a form that the plugin does not take.
pub(super) struct Converted {
    pub(super) batch: ExportBatch,
    pub(super) unsupported: usize,
}

/// The forms of a signal. A plugin must take one of them.
pub(super) fn takers(signal: Signal) -> &'static [Takes] {
    match signal {
        Signal::Metrics => &[Takes::METRICS, Takes::EVENTS],
        Signal::Traces => &[Takes::TRACES],
        Signal::Logs => &[Takes::LOGS],
    }
}

/// The content of an export request in the forms that the plugin takes.
pub(super) fn convert(export: &ExportRequest, takes: Takes) -> Converted {
    let mut parts: Vec<Bytes> = Vec::new();
    let (mut events, mut items, mut unsupported) = (Vec::new(), 0, 0);
    for batch in export.batches() {
        let as_points = !takes.has(Takes::METRICS) && batch.signal() == Signal::Metrics;
        match &batch.payload {
            Payload::Events(batch) if takes.has(Takes::EVENTS) => {
                let taken = of_events(batch);
                unsupported += batch.len() - taken.kind.len();
                events.push(taken);
            }
            payload if as_points => {
                let taken = match payload {
                    Payload::Points(points) => of_points(&points.points),
                    other => convert::points(&other.encode())
                        .map(|points| of_points(&points))
                        .unwrap_or_default(),
                };
                let count: usize = taken.iter().map(|events| events.kind.len()).sum();
                unsupported += payload.items().saturating_sub(count);
                events.extend(taken);
            }
            payload => {
                let encoded = payload.encode();
                items += encoded.items();
                parts.extend(encoded.parts.into_iter().map(|part| part.bytes));
            }
        }
    }
    events.retain(|events| !events.kind.is_empty());
    items += events.iter().map(|events| events.kind.len()).sum::<usize>();
    let batch = ExportBatch {
        signal: match export.signal() {
            Signal::Metrics => PluginSignal::Metrics,
            Signal::Traces => PluginSignal::Traces,
            Signal::Logs => PluginSignal::Logs,
        },
        items: items as u64,
        otlp: joined(parts),
        events,
    };
    Converted { batch, unsupported }
}

/// Requests one after another are one request.
fn joined(mut parts: Vec<Bytes>) -> Bytes {
    if parts.len() < 2 {
        return parts.pop().unwrap_or_default();
    }
    let mut whole = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
    parts.iter().for_each(|part| whole.extend_from_slice(part));
    whole.freeze()
}

/// Events keep their columns. The schema has only the kinds that occur. Events of unknown kinds are dropped.
fn of_events(events: &tidegate_engine::Events) -> Events {
    let mut kinds = Kinds::new(events.schema.kinds.len());
    let (mut kind, mut kept) = (Vec::with_capacity(events.len()), Vec::with_capacity(events.len()));
    for (at, number) in events.kinds.iter().enumerate() {
        let described = events.schema.kinds.get(usize::from(*number));
        let Some(described) = described.filter(|_| at < events.values.len()) else {
            continue;
        };
        kind.push(kinds.renumber(*number, || of_kind(described)));
        kept.push(at);
    }
    let source = &events.source;
    let observed = events.arrived();
    let mut attributes = pairs(&source.resource.attributes);
    attributes.extend(pairs(&source.attributes));
    Events {
        source: source_name(&source.attributes, &source.resource),
        attributes,
        kinds: kinds.kinds,
        kind,
        values: match &events.values {
            Values::U64(values) => Column::U64(picked(values, &kept, 0)),
            Values::F64(values) => Column::F64(picked(values, &kept, 0.0)),
        },
        times_ns: match &events.times {
            Some(times) => picked(times, &kept, observed),
            None => vec![observed; kept.len()],
        },
        weights: events.weights.as_ref().map(|weights| picked(weights, &kept, 1.0)),
    }
}

/// The elements at some places of a column.
fn picked<T: Copy>(column: &[T], places: &[usize], missing: T) -> Vec<T> {
    if places.len() == column.len() {
        column.to_vec()
    } else {
        let at = |place: &usize| column.get(*place).copied().unwrap_or(missing);
        places.iter().map(at).collect()
    }
}

/// The kinds of a batch, numbered in the order of their first use.
struct Kinds {
    kinds: Vec<EventKind>,
    places: Vec<Option<u16>>,
}

impl Kinds {
    fn new(schema: usize) -> Self {
        Self {
            kinds: Vec::new(),
            places: vec![None; schema],
        }
    }

    /// The new number of a kind; there are never more than old ones, which fit.
    fn renumber(&mut self, number: u16, kind: impl FnOnce() -> EventKind) -> u16 {
        let next = self.kinds.len() as u16;
        match self.places.get_mut(usize::from(number)) {
            Some(Some(place)) => *place,
            place => {
                if let Some(place) = place {
                    *place = Some(next);
                }
                self.kinds.push(kind());
                next
            }
        }
    }
}

fn of_kind(kind: &tidegate_engine::EventKind) -> EventKind {
    EventKind {
        name: kind.name.clone(),
        category: category(&kind.attributes),
        unit: kind.unit.clone(),
        description: kind.description.clone(),
        instrument: match kind.instrument {
            Instrument::Counter => PluginInstrument::Counter,
            Instrument::UpDownCounter => PluginInstrument::UpDownCounter,
            Instrument::Gauge => PluginInstrument::Gauge,
            Instrument::Histogram => PluginInstrument::Histogram,
        },
        attributes: pairs(&kind.attributes),
    }
}

/// A point with the content of an event: the measured value, or its increase.
struct MeasuredPoint<'a> {
    series: &'a Series,
    source: Arc<str>,
    instrument: PluginInstrument,
    value: Number,
    time: UnixNanos,
}

#[derive(Clone, Copy)]
enum Number {
    Whole(u64),
    Double(f64),
}

/// Gauges and delta sums, in runs of one source and one type of value.
fn of_points(points: &[Point]) -> Vec<Events> {
    let measured: Vec<_> = points.iter().filter_map(measured).collect();
    // Kinds are numbered by u16.
    let runs = measured
        .chunk_by(|a, b| belong_together(a, b))
        .flat_map(|run| run.chunks(1 << 16));
    runs.map(of_run).collect()
}

fn measured(point: &Point) -> Option<MeasuredPoint<'_>> {
    let delta = Temporality::Delta;
    let instrument = match point.series.metric.data {
        Data::Gauge => PluginInstrument::Gauge,
        Data::Sum {
            monotonic: true,
            temporality,
        } if temporality == delta => PluginInstrument::Counter,
        Data::Sum { temporality, .. } if temporality == delta => PluginInstrument::UpDownCounter,
        _ => return None,
    };
    let value = match &point.value {
        Value::Int(number) => u64::try_from(*number).map_or(Number::Double(*number as f64), Number::Whole),
        Value::Double(number) => Number::Double(*number),
        _ => return None,
    };
    Some(MeasuredPoint {
        series: &point.series,
        source: source_name(&point.series.attributes, &point.series.resource),
        instrument,
        value,
        time: point.time,
    })
}

fn belong_together(a: &MeasuredPoint<'_>, b: &MeasuredPoint<'_>) -> bool {
    let same_type = matches!(
        (a.value, b.value),
        (Number::Whole(_), Number::Whole(_)) | (Number::Double(_), Number::Double(_))
    );
    let same_resource = Arc::ptr_eq(&a.series.resource, &b.series.resource);
    same_type && a.source == b.source && (same_resource || a.series.resource == b.series.resource)
}

fn of_run(run: &[MeasuredPoint<'_>]) -> Events {
    let whole = run.iter().map(|point| match point.value {
        Number::Whole(number) => Some(number),
        Number::Double(_) => None,
    });
    let doubles = run.iter().map(|point| match point.value {
        Number::Whole(number) => number as f64,
        Number::Double(number) => number,
    });
    let values = match whole.collect() {
        Some(whole) => Column::U64(whole),
        None => Column::F64(doubles.collect()),
    };
    Events {
        source: run.first().map(|point| point.source.clone()).unwrap_or_default(),
        attributes: run
            .first()
            .map(|point| pairs(&point.series.resource.attributes))
            .unwrap_or_default(),
        kinds: run.iter().map(of_series).collect(),
        kind: (0..run.len()).map(|place| place as u16).collect(),
        values,
        times_ns: run.iter().map(|point| point.time).collect(),
        weights: None,
    }
}

fn of_series(point: &MeasuredPoint<'_>) -> EventKind {
    let (metric, attributes) = (&point.series.metric, &point.series.attributes);
    EventKind {
        name: metric.name.clone(),
        category: category(attributes),
        unit: metric.unit.clone(),
        description: metric.description.clone(),
        instrument: point.instrument,
        attributes: pairs(attributes),
    }
}

fn category(attributes: &Attributes) -> Arc<str> {
    let category = attributes.get("category");
    category.map(|value| text(value).into()).unwrap_or_default()
}

/// The source in the header.
fn source_name(attributes: &Attributes, resource: &Resource) -> Arc<str> {
    let of_resource = |key| resource.attributes.get(key);
    let found = attributes
        .get("agent_name")
        .or_else(|| of_resource("service.instance.id"))
        .or_else(|| of_resource("service.name"));
    found.map(|value| text(value).into()).unwrap_or_default()
}

fn pairs(attributes: &Attributes) -> Vec<(Arc<str>, Arc<str>)> {
    let pair = |(key, value): (&str, _)| (Arc::from(key), Arc::from(text(value)));
    attributes.iter().map(pair).collect()
}
