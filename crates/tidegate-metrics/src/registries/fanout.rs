// SPDX-License-Identifier: Apache-2.0

//! Passes everything on to several registries.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::catalog::Catalog;
use crate::description::{FamilySpec, Kind};
use crate::family::{AnyFamily, Family, Made, Make};
use crate::handle::{
    Counter, CounterFn, FloatCounter, FloatCounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Instrument,
    UpDownCounter, UpDownCounterFn,
};
use crate::registry::typed;
use crate::span::SpanRef;
use crate::value::FamilyValues;
use crate::{ExportError, MetricsRegistry, RegisterError, Tracer};

/// Passes everything on to several registries. Reads return the values of the first registry that keeps values.
///
/// Recording costs as much as in all of them together; around a single registry it costs nothing.
pub struct Fanout {
    registries: Vec<Arc<dyn MetricsRegistry>>,
    catalog: Catalog,
}

impl Fanout {
    /// Passes on to these.
    pub fn new(registries: Vec<Arc<dyn MetricsRegistry>>) -> Self {
        Self {
            registries,
            catalog: Catalog::default(),
        }
    }

    fn fan<H: FromMany>(&self, spec: &FamilySpec) -> Result<AnyFamily, RegisterError> {
        let mut families = Vec::new();
        for registry in &self.registries {
            families.push(typed::<H>(registry.register(spec)?)?);
        }
        Ok(H::erase(Family::new(spec.clone(), Fan(families))))
    }

    fn each(
        &self,
        within: Duration,
        act: impl Fn(&dyn MetricsRegistry, Duration) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        let until = Instant::now() + within;
        let left = || until.saturating_duration_since(Instant::now());
        // All of them get their turn, whatever the first one says.
        let results: Vec<_> = self
            .registries
            .iter()
            .map(|registry| act(registry, left()))
            .collect();
        results.into_iter().collect()
    }
}

impl MetricsRegistry for Fanout {
    fn register(&self, spec: &FamilySpec) -> Result<AnyFamily, RegisterError> {
        self.catalog.get_or_make(spec, &|| match spec.kind {
            Kind::Counter => self.fan::<Counter>(spec),
            Kind::FloatCounter => self.fan::<FloatCounter>(spec),
            Kind::UpDownCounter => self.fan::<UpDownCounter>(spec),
            Kind::Gauge(_) => self.fan::<Gauge>(spec),
            Kind::Histogram { .. } | Kind::ExponentialHistogram { .. } => self.fan::<Histogram>(spec),
            Kind::Summary => Err(RegisterError::Summary(spec.name.clone())),
        })
    }

    fn gather(&self) -> Vec<FamilyValues> {
        self.catalog.gather()
    }

    /// That of the first registry with a way for spans.
    fn tracer(&self) -> Tracer {
        let mut tracers = self.registries.iter().map(MetricsRegistry::tracer);
        tracers.find(Tracer::is_real).unwrap_or_default()
    }

    fn flush(&self, within: Duration) -> Result<(), ExportError> {
        self.each(within, |registry, left| registry.flush(left))
    }

    fn shutdown(&self, within: Duration) -> Result<(), ExportError> {
        self.each(within, |registry, left| registry.shutdown(left))
    }
}

/// Makes one handle of several.
trait FromMany: Instrument {
    fn dynamic(many: Many<Self>) -> Self;

    fn from_many(many: Box<[Self]>) -> Self {
        match &*many {
            [] => Self::null(),
            [only] => only.clone(),
            _ => Self::dynamic(Many(many)),
        }
    }
}

/// The families of one metric in all registries.
struct Fan<H>(Vec<Family<H>>);

impl<H: FromMany> Make<H> for Fan<H> {
    fn make(&self, values: &[&str]) -> Made<H> {
        let (mut handles, mut is_own) = (Vec::new(), false);
        for family in &self.0 {
            let made = family.find(values);
            is_own |= matches!(made, Made::Own(_));
            let (Made::Own(handle) | Made::Shared(handle)) = made;
            handles.push(handle);
        }
        let handle = H::from_many(handles.into());
        if is_own {
            Made::Own(handle)
        } else {
            Made::Shared(handle)
        }
    }

    fn overflow(&self) -> Option<H> {
        let handles: Box<[H]> = self.0.iter().filter_map(Family::overflow).collect();
        (!handles.is_empty()).then(|| H::from_many(handles))
    }

    fn remove(&self, values: &[&str]) {
        self.0.iter().for_each(|family| {
            family.remove(values);
        });
    }
}

/// The handles of one series in all registries.
struct Many<H>(Box<[H]>);

impl<H: Instrument> Many<H> {
    /// The first that keeps values.
    fn kept(&self) -> Option<&H> {
        self.0.iter().find(|handle| handle.info().is_some())
    }
}

macro_rules! many_sums {
    ($handle:ty, $behaviour:ident, $number:ty) => {
        impl $behaviour for Many<$handle> {
            fn add(&self, amount: $number) {
                self.0.iter().for_each(|handle| handle.add(amount));
            }

            fn add_in(&self, amount: $number, span: SpanRef) {
                self.0.iter().for_each(|handle| handle.add_in(amount, span));
            }

            fn local(&self) -> Option<&$handle> {
                self.kept()
            }
        }

        impl FromMany for $handle {
            fn dynamic(many: Many<Self>) -> Self {
                Self::of(Arc::new(many))
            }
        }
    };
}

many_sums!(Counter, CounterFn, u64);
many_sums!(FloatCounter, FloatCounterFn, f64);
many_sums!(UpDownCounter, UpDownCounterFn, i64);

impl GaugeFn for Many<Gauge> {
    fn set(&self, value: f64) {
        self.0.iter().for_each(|handle| handle.set(value));
    }

    fn add(&self, amount: f64) {
        self.0.iter().for_each(|handle| handle.add(amount));
    }

    fn local(&self) -> Option<&Gauge> {
        self.kept()
    }
}

impl FromMany for Gauge {
    fn dynamic(many: Many<Self>) -> Self {
        Self::of(Arc::new(many))
    }
}

impl HistogramFn for Many<Histogram> {
    fn observe(&self, value: f64) {
        self.0.iter().for_each(|handle| handle.observe(value));
    }

    fn observe_in(&self, value: f64, span: SpanRef) {
        self.0.iter().for_each(|handle| handle.observe_in(value, span));
    }

    fn local(&self) -> Option<&Histogram> {
        self.kept()
    }
}

impl FromMany for Histogram {
    fn dynamic(many: Many<Self>) -> Self {
        Self::of(Arc::new(many))
    }
}
