// SPDX-License-Identifier: Apache-2.0

//! The meter of OpenTelemetry: its instruments record here.

use std::borrow::Cow;
use std::sync::Arc;

use opentelemetry::metrics::{
    Counter as OtelCounter, Gauge as OtelGauge, Histogram as OtelHistogram, HistogramBuilder,
    InstrumentBuilder, InstrumentProvider, Meter, MeterProvider, SyncInstrument,
    UpDownCounter as OtelUpDownCounter,
};
use opentelemetry::{InstrumentationScope, KeyValue};

use super::names::{Lazy, metric_name};
use crate::{
    Counter, Description, FloatCounter, Gauge, Histogram, Instrument, MetricsRegistry, UpDownCounter,
};

/// Meters of OpenTelemetry whose instruments record in a registry; give it to
/// `opentelemetry::global::set_meter_provider`.
///
/// All series of a metric have the attribute names of its first one: names that come later are omitted and counted as
/// [misuse](crate::misused). Observable instruments do nothing: there is no collection. Fractional up-down counters are gauges to
/// which is added.
#[derive(Clone)]
pub struct Meters(Arc<dyn MetricsRegistry>);

impl Meters {
    /// Records in this registry.
    pub fn new(registry: Arc<dyn MetricsRegistry>) -> Self {
        Self(registry)
    }

    fn instrument<H: Instrument>(&self, name: &str, help: Option<&str>, unit: Option<&str>) -> Passed<H> {
        Passed {
            registry: self.0.clone(),
            description: Description::new(metric_name(name), help.unwrap_or_default())
                .unit(unit.unwrap_or_default()),
            family: Lazy::new(),
        }
    }

    fn plain<H: Instrument, I>(&self, builder: InstrumentBuilder<'_, I>) -> Arc<Passed<H>> {
        let (help, unit) = (builder.description.as_deref(), builder.unit.as_deref());
        Arc::new(self.instrument(&builder.name, help, unit))
    }

    fn histogram<I>(&self, builder: HistogramBuilder<'_, I>) -> Arc<Passed<Histogram>> {
        let (help, unit) = (builder.description.as_deref(), builder.unit.as_deref());
        let mut passed = self.instrument(&builder.name, help, unit);
        if let Some(bounds) = builder.boundaries {
            passed.description = passed.description.bounds(bounds);
        }
        Arc::new(passed)
    }
}

impl MeterProvider for Meters {
    fn meter_with_scope(&self, _: InstrumentationScope) -> Meter {
        Meter::new(Arc::new(self.clone()))
    }
}

impl InstrumentProvider for Meters {
    fn u64_counter(&self, builder: InstrumentBuilder<'_, OtelCounter<u64>>) -> OtelCounter<u64> {
        OtelCounter::new(self.plain::<Counter, _>(builder))
    }

    fn f64_counter(&self, builder: InstrumentBuilder<'_, OtelCounter<f64>>) -> OtelCounter<f64> {
        OtelCounter::new(self.plain::<FloatCounter, _>(builder))
    }

    fn i64_up_down_counter(
        &self,
        builder: InstrumentBuilder<'_, OtelUpDownCounter<i64>>,
    ) -> OtelUpDownCounter<i64> {
        OtelUpDownCounter::new(self.plain::<UpDownCounter, _>(builder))
    }

    fn f64_up_down_counter(
        &self,
        builder: InstrumentBuilder<'_, OtelUpDownCounter<f64>>,
    ) -> OtelUpDownCounter<f64> {
        let gauge = self.plain::<Gauge, _>(builder);
        OtelUpDownCounter::new(Arc::new(Adding(gauge)))
    }

    fn u64_gauge(&self, builder: InstrumentBuilder<'_, OtelGauge<u64>>) -> OtelGauge<u64> {
        OtelGauge::new(self.plain::<Gauge, _>(builder))
    }

    fn i64_gauge(&self, builder: InstrumentBuilder<'_, OtelGauge<i64>>) -> OtelGauge<i64> {
        OtelGauge::new(self.plain::<Gauge, _>(builder))
    }

    fn f64_gauge(&self, builder: InstrumentBuilder<'_, OtelGauge<f64>>) -> OtelGauge<f64> {
        OtelGauge::new(self.plain::<Gauge, _>(builder))
    }

    fn u64_histogram(&self, builder: HistogramBuilder<'_, OtelHistogram<u64>>) -> OtelHistogram<u64> {
        OtelHistogram::new(self.histogram(builder))
    }

    fn f64_histogram(&self, builder: HistogramBuilder<'_, OtelHistogram<f64>>) -> OtelHistogram<f64> {
        OtelHistogram::new(self.histogram(builder))
    }
}

/// An instrument whose family is made with its first series.
struct Passed<H> {
    registry: Arc<dyn MetricsRegistry>,
    description: Description,
    family: Lazy<H>,
}

impl<H: Instrument> Passed<H> {
    fn with(&self, attributes: &[KeyValue]) -> H {
        let labels: Vec<(&str, Cow<'_, str>)> = attributes
            .iter()
            .map(|attribute| (attribute.key.as_str(), attribute.value.as_str()))
            .collect();
        self.family.with(&*self.registry, &self.description, &labels)
    }
}

macro_rules! measured {
    ($($handle:ty, $number:ty, $record:expr;)*) => {$(
        impl SyncInstrument<$number> for Passed<$handle> {
            fn measure(&self, value: $number, attributes: &[KeyValue]) {
                let record: fn(&$handle, $number) = $record;
                record(&self.with(attributes), value);
            }
        }
    )*};
}

measured! {
    Counter, u64, |handle, value| handle.add(value);
    FloatCounter, f64, |handle, value| handle.add(value);
    UpDownCounter, i64, |handle, value| handle.add(value);
    Gauge, u64, |handle, value| handle.set(value as f64);
    Gauge, i64, |handle, value| handle.set(value as f64);
    Gauge, f64, |handle, value| handle.set(value);
    Histogram, u64, |handle, value| handle.observe(value as f64);
    Histogram, f64, |handle, value| handle.observe(value);
}

/// A gauge to which is added.
struct Adding(Arc<Passed<Gauge>>);

impl SyncInstrument<f64> for Adding {
    fn measure(&self, value: f64, attributes: &[KeyValue]) {
        self.0.with(attributes).add(value);
    }
}
