// SPDX-License-Identifier: Apache-2.0

//! The `metrics` facade: its macros record here.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{CounterFn, GaugeFn, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};

use super::names::{Lazy, metric_name};
use crate::{Counter, Description, Gauge, Histogram, Instrument, MetricsRegistry};

/// A recorder of the `metrics` facade: `metrics::counter!("requests", "model" => "m").increment(1)` records in the
/// registry.
///
/// All series of a metric have the label names of its first one: labels that come later are omitted and counted as
/// [misuse](crate::misused), since no registry can show them.
pub struct Facade {
    registry: Arc<dyn MetricsRegistry>,
    state: Mutex<FacadeState>,
}

#[derive(Default)]
struct FacadeState {
    /// Unit and help, by name.
    described: HashMap<String, (String, String)>,
    counters: HashMap<String, Arc<Lazy<Counter>>>,
    gauges: HashMap<String, Arc<Lazy<Gauge>>>,
    histograms: HashMap<String, Arc<Lazy<Histogram>>>,
}

impl Facade {
    /// Records in this registry; give it to [`metrics::set_global_recorder`].
    pub fn new(registry: Arc<dyn MetricsRegistry>) -> Self {
        Self {
            registry,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, FacadeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn describe(&self, key: &KeyName, unit: Option<Unit>, help: &str) {
        let unit = unit.map_or("", ucum).to_owned();
        self.lock()
            .described
            .insert(key.as_str().to_owned(), (unit, help.to_owned()));
    }

    fn find<H: Instrument>(
        &self,
        key: &Key,
        families: impl Fn(&mut FacadeState) -> &mut HashMap<String, Arc<Lazy<H>>>,
    ) -> H {
        let (family, description) = {
            let mut state = self.lock();
            let (unit, help) = state.described.get(key.name()).cloned().unwrap_or_default();
            let new = || Arc::new(Lazy::new());
            let family = families(&mut state)
                .entry(key.name().to_owned())
                .or_insert_with(new)
                .clone();
            (family, Description::new(metric_name(key.name()), help).unit(unit))
        };
        let labels: Vec<(&str, Cow<'_, str>)> = key
            .labels()
            .map(|label| (label.key(), Cow::Borrowed(label.value())))
            .collect();
        family.with(&*self.registry, &description, &labels)
    }
}

/// Units of the facade in UCUM.
fn ucum(unit: Unit) -> &'static str {
    match unit {
        Unit::Seconds => "s",
        Unit::Milliseconds => "ms",
        Unit::Microseconds => "us",
        Unit::Nanoseconds => "ns",
        Unit::Bytes => "By",
        Unit::Kibibytes => "KiBy",
        Unit::Mebibytes => "MiBy",
        Unit::Gibibytes => "GiBy",
        Unit::Tebibytes => "TiBy",
        Unit::Percent => "%",
        _ => "",
    }
}

struct Passed<H>(H);

impl CounterFn for Passed<Counter> {
    fn increment(&self, value: u64) {
        self.0.add(value);
    }

    fn absolute(&self, value: u64) {
        // Between two threads that do so at the same time the sum may be too large; the facade has no way to say it once.
        self.0.add(value.saturating_sub(self.0.get()));
    }
}

impl GaugeFn for Passed<Gauge> {
    fn increment(&self, value: f64) {
        self.0.add(value);
    }

    fn decrement(&self, value: f64) {
        self.0.sub(value);
    }

    fn set(&self, value: f64) {
        self.0.set(value);
    }
}

impl HistogramFn for Passed<Histogram> {
    fn record(&self, value: f64) {
        self.0.observe(value);
    }
}

impl Recorder for Facade {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(&key, unit, &description);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(&key, unit, &description);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(&key, unit, &description);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> metrics::Counter {
        metrics::Counter::from_arc(Arc::new(Passed(self.find(key, |state| &mut state.counters))))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> metrics::Gauge {
        metrics::Gauge::from_arc(Arc::new(Passed(self.find(key, |state| &mut state.gauges))))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> metrics::Histogram {
        metrics::Histogram::from_arc(Arc::new(Passed(self.find(key, |state| &mut state.histograms))))
    }
}
