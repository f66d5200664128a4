// SPDX-License-Identifier: Apache-2.0

//! The recorder of a push: it keeps values in the form that OpenTelemetry's SDK needs.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire};

use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;
use parking_lot::Mutex;

use super::catalogue::{MetricKind, find};

/// The instruments of a meter, created when a component first uses them.
pub(super) struct Instruments {
    meter: Meter,
    families: Mutex<HashMap<String, InstrumentFamily>>,
}

/// The series of one name: attributes, and the value in the form of `metrics`.
type ObservedSeries = Arc<Mutex<HashMap<Key, (Vec<KeyValue>, Arc<AtomicU64>)>>>;

enum InstrumentFamily {
    /// An observable instrument, which reads these series.
    Observable(ObservedSeries),
    /// A histogram, which receives every value.
    Histogram(opentelemetry::metrics::Histogram<f64>),
}

impl Instruments {
    pub(super) fn new(meter: Meter) -> Self {
        Self {
            meter,
            families: Mutex::default(),
        }
    }

    /// The value of a series. The first call creates its instrument.
    fn value(&self, key: &Key, kind: MetricKind) -> Option<Arc<AtomicU64>> {
        let mut families = self.families.lock();
        let make = || self.make(key.name(), kind);
        let family = families.entry(key.name().to_owned()).or_insert_with(make);
        let InstrumentFamily::Observable(series) = family else {
            return None;
        };
        let mut series = series.lock();
        let (_, value) = series
            .entry(key.clone())
            .or_insert_with(|| (attributes(key), Arc::default()));
        Some(value.clone())
    }

    fn make(&self, name: &str, kind: MetricKind) -> InstrumentFamily {
        let described = find(name);
        let kind = described.map_or(kind, |described| described.kind);
        let (unit, help) = described.map_or(("", ""), |described| (described.unit, described.help));
        let series = ObservedSeries::default();
        let read = series.clone();
        let name = name.to_owned();
        // The meter keeps its instruments. The handles of observable ones are not needed.
        match kind {
            MetricKind::Counter => {
                let builder = self.meter.u64_observable_counter(name);
                let _ = builder
                    .with_unit(unit)
                    .with_description(help)
                    .with_callback(move |instrument| {
                        each(&read, |attributes, count| instrument.observe(count, attributes));
                    })
                    .build();
            }
            MetricKind::FractionCounter => {
                let builder = self.meter.f64_observable_counter(name);
                let _ = builder
                    .with_unit(unit)
                    .with_description(help)
                    .with_callback(move |instrument| {
                        each(&read, |attributes, bits| {
                            instrument.observe(f64::from_bits(bits), attributes);
                        });
                    })
                    .build();
            }
            MetricKind::Gauge => {
                let builder = self.meter.f64_observable_gauge(name);
                let _ = builder
                    .with_unit(unit)
                    .with_description(help)
                    .with_callback(move |instrument| {
                        each(&read, |attributes, bits| {
                            let value = f64::from_bits(bits);
                            // A series without a value is not shown.
                            if !value.is_nan() {
                                instrument.observe(value, attributes);
                            }
                        });
                    })
                    .build();
            }
            MetricKind::Histogram(bounds) => {
                let builder = self.meter.f64_histogram(name);
                let builder = builder.with_unit(unit).with_description(help);
                return InstrumentFamily::Histogram(builder.with_boundaries(bounds.to_vec()).build());
            }
        }
        InstrumentFamily::Observable(series)
    }
}

fn each(series: &ObservedSeries, mut observe: impl FnMut(&[KeyValue], u64)) {
    for (attributes, value) in series.lock().values() {
        observe(attributes, value.load(Acquire));
    }
}

fn attributes(key: &Key) -> Vec<KeyValue> {
    let label = |label: &metrics::Label| KeyValue::new(label.key().to_owned(), label.value().to_owned());
    key.labels().map(label).collect()
}

impl Recorder for Instruments {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.value(key, MetricKind::Counter)
            .map_or_else(Counter::noop, Counter::from_arc)
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.value(key, MetricKind::Gauge)
            .map_or_else(Gauge::noop, Gauge::from_arc)
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let mut families = self.families.lock();
        let make = || self.make(key.name(), MetricKind::Histogram(super::catalogue::ITEMS));
        let family = families.entry(key.name().to_owned()).or_insert_with(make);
        let InstrumentFamily::Histogram(histogram) = family else {
            return Histogram::noop();
        };
        Histogram::from_arc(Arc::new(HistogramSeries {
            histogram: histogram.clone(),
            attributes: attributes(key),
        }))
    }
}

/// A series of a histogram.
struct HistogramSeries {
    histogram: opentelemetry::metrics::Histogram<f64>,
    attributes: Vec<KeyValue>,
}

impl HistogramFn for HistogramSeries {
    fn record(&self, value: f64) {
        self.histogram.record(value, &self.attributes);
    }
}
