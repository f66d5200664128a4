// SPDX-License-Identifier: Apache-2.0

//! The trait that all registries have in common.

use std::time::Duration;

use crate::description::{Description, FamilySpec};
use crate::family::{AnyFamily, Family};
use crate::handle::{Counter, FloatCounter, Gauge, Histogram, Instrument, UpDownCounter};
use crate::text::{self, Format};
use crate::value::{FamilyDescription, FamilyValues};
use crate::{
    CounterFamily, ExportError, FloatCounterFamily, GaugeFamily, HistogramFamily, RegisterError, Tracer,
    UpDownCounterFamily,
};

/// Constant labels, or those of one series.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// Where instruments are registered, and what becomes of what they record.
///
/// To register the same family again gives the same series. A registry implements [`register`](Self::register) and
/// [`gather`](Self::gather); everything else follows.
pub trait MetricsRegistry: Send + Sync {
    /// The family, made if it was not there.
    ///
    /// # Errors
    /// A name or label is invalid, or something else has this name.
    fn register(&self, spec: &FamilySpec) -> Result<AnyFamily, RegisterError>;

    /// All values, as a reader of this registry sees them.
    fn gather(&self) -> Vec<FamilyValues>;

    /// Gets out what was recorded until now.
    ///
    /// # Errors
    /// It did not get out.
    fn flush(&self, _within: Duration) -> Result<(), ExportError> {
        Ok(())
    }

    /// Gets out what was recorded until now, and stops.
    ///
    /// # Errors
    /// It did not get out.
    fn shutdown(&self, within: Duration) -> Result<(), ExportError> {
        self.flush(within)
    }

    /// Makes spans that go where the values go; of a registry without a way for spans it makes none.
    fn tracer(&self) -> Tracer {
        Tracer::default()
    }

    /// All values in the text format of Prometheus, version 0.0.4.
    fn prometheus_format_str(&self) -> String {
        text::render(&self.gather(), Format::Prometheus)
    }

    /// The registered families: names, kinds, units, descriptions, labels.
    fn describe(&self) -> Vec<FamilyDescription> {
        self.gather().into_iter().map(FamilyDescription::from).collect()
    }

    /// Begins a composite of this name.
    #[cfg(feature = "composites")]
    fn composite(&self, name: &str) -> crate::CompositeBuilder {
        crate::composite(name)
    }

    /// A counter with these labels.
    ///
    /// # Errors
    /// See [`register`](Self::register).
    fn counter(&self, description: &Description, labels: Labels<'_>) -> Result<Counter, RegisterError> {
        Ok(self.counter_family(description, labels, &[])?.with(&[]))
    }

    /// Counters with these labels, distinguished by `by`.
    ///
    /// # Errors
    /// See [`register`](Self::register).
    fn counter_family(
        &self,
        description: &Description,
        labels: Labels<'_>,
        by: &[&str],
    ) -> Result<CounterFamily, RegisterError> {
        typed(self.register(&spec::<Counter>(description, labels, by))?)
    }

    /// A fractional counter with these labels.
    ///
    /// # Errors
    /// See [`register`](Self::register).
    fn float_counter(
        &self,
        description: &Description,
        labels: Labels<'_>,
    ) -> Result<FloatCounter, RegisterError> {
        Ok(self.float_counter_family(description, labels, &[])?.with(&[]))
    }

    /// Fractional counters with these labels, distinguished by `by`.
    ///
    /// # Errors
    /// See [`register`](Self::register).
    fn float_counter_family(
        &self,
        description: &Description,
        labels: Labels<'_>,
        by: &[&str],
    ) -> Result<FloatCounterFamily, RegisterError> {
        typed(self.register(&spec::<FloatCounter>(description, labels, by))?)
    }

    /// An up-down counter with these labels.
    ///
    /// # Errors
    /// See [`register`](Self::register).
    fn up_down_counter(
        &self,
        description: &Description,
        labels: Labels<'_>,
    ) -> Result<UpDownCounter, RegisterError> {
        Ok(self.up_down_counter_family(description, labels, &[])?.with(&[]))
    }

    /// Up-down counters with these labels, distinguished by `by`.
    ///
    /// # Errors
    /// See [`register`](Self::register).
    fn up_down_counter_family(
        &self,
        description: &Description,
        labels: Labels<'_>,
        by: &[&str],
    ) -> Result<UpDownCounterFamily, RegisterError> {
        typed(self.register(&spec::<UpDownCounter>(description, labels, by))?)
    }

    /// A gauge with these labels.
    ///
    /// # Errors
    /// See [`register`](Self::register).
    fn gauge(&self, description: &Description, labels: Labels<'_>) -> Result<Gauge, RegisterError> {
        Ok(self.gauge_family(description, labels, &[])?.with(&[]))
    }

    /// Gauges with these labels, distinguished by `by`.
    ///
    /// # Errors
    /// See [`register`](Self::register).
    fn gauge_family(
        &self,
        description: &Description,
        labels: Labels<'_>,
        by: &[&str],
    ) -> Result<GaugeFamily, RegisterError> {
        typed(self.register(&spec::<Gauge>(description, labels, by))?)
    }

    /// A histogram with these labels: exponential if it is described so.
    ///
    /// # Errors
    /// See [`register`](Self::register).
    fn histogram(&self, description: &Description, labels: Labels<'_>) -> Result<Histogram, RegisterError> {
        Ok(self.histogram_family(description, labels, &[])?.with(&[]))
    }

    /// An exponential histogram with these labels, however it is described.
    ///
    /// # Errors
    /// See [`register`](Self::register).
    fn exponential_histogram(
        &self,
        description: &Description,
        labels: Labels<'_>,
    ) -> Result<Histogram, RegisterError> {
        self.histogram(&description.clone().exponential(), labels)
    }

    /// Histograms with these labels, distinguished by `by`.
    ///
    /// # Errors
    /// See [`register`](Self::register).
    fn histogram_family(
        &self,
        description: &Description,
        labels: Labels<'_>,
        by: &[&str],
    ) -> Result<HistogramFamily, RegisterError> {
        typed(self.register(&spec::<Histogram>(description, labels, by))?)
    }

    /// A counter by name, description and labels, as Dynamo's registries make them. Suffixes in the name that the page
    /// adds (`_total`) are there once.
    ///
    /// # Errors
    /// See [`register`](Self::register).
    fn create_counter(
        &self,
        name: &str,
        description: &str,
        labels: Labels<'_>,
    ) -> Result<Counter, RegisterError> {
        self.counter(&Description::new(name, description), labels)
    }

    /// A fractional counter; as [`create_counter`](Self::create_counter).
    ///
    /// # Errors
    /// See [`register`](Self::register).
    fn create_float_counter(
        &self,
        name: &str,
        description: &str,
        labels: Labels<'_>,
    ) -> Result<FloatCounter, RegisterError> {
        self.float_counter(&Description::new(name, description), labels)
    }

    /// A gauge; as [`create_counter`](Self::create_counter).
    ///
    /// # Errors
    /// See [`register`](Self::register).
    fn create_gauge(
        &self,
        name: &str,
        description: &str,
        labels: Labels<'_>,
    ) -> Result<Gauge, RegisterError> {
        self.gauge(&Description::new(name, description), labels)
    }

    /// A histogram with these bounds, or those that are usual without; as [`create_counter`](Self::create_counter).
    ///
    /// # Errors
    /// See [`register`](Self::register).
    fn create_histogram(
        &self,
        name: &str,
        description: &str,
        labels: Labels<'_>,
        bounds: Option<&[f64]>,
    ) -> Result<Histogram, RegisterError> {
        let described = Description::new(name, description);
        let described = match bounds {
            Some(bounds) => described.bounds(bounds),
            None => described,
        };
        self.histogram(&described, labels)
    }

    /// Counters distinguished by the labels `by`; as [`create_counter`](Self::create_counter).
    ///
    /// # Errors
    /// See [`register`](Self::register).
    fn create_counter_family(
        &self,
        name: &str,
        description: &str,
        by: &[&str],
        labels: Labels<'_>,
    ) -> Result<CounterFamily, RegisterError> {
        self.counter_family(&Description::new(name, description), labels, by)
    }

    /// Gauges distinguished by the labels `by`; as [`create_counter`](Self::create_counter).
    ///
    /// # Errors
    /// See [`register`](Self::register).
    fn create_gauge_family(
        &self,
        name: &str,
        description: &str,
        by: &[&str],
        labels: Labels<'_>,
    ) -> Result<GaugeFamily, RegisterError> {
        self.gauge_family(&Description::new(name, description), labels, by)
    }
}

fn spec<H: Instrument>(description: &Description, labels: Labels<'_>, by: &[&str]) -> FamilySpec {
    description.spec(H::kind(description), labels, by)
}

/// A family as one of this kind of handle. A registry gives what it is asked for.
pub(crate) fn typed<H: Instrument>(any: AnyFamily) -> Result<Family<H>, RegisterError> {
    let name = any.spec().name.clone();
    H::family(any).ok_or(RegisterError::Conflict {
        name,
        what: "kind of instrument",
    })
}

/// Registers any kind of handle: what `#[derive(MetricSet)]` calls for each field.
///
/// # Errors
/// See [`MetricsRegistry::register`].
pub fn register<H: Instrument>(
    registry: &dyn MetricsRegistry,
    description: &Description,
    labels: Labels<'_>,
    by: &[&str],
) -> Result<Family<H>, RegisterError> {
    typed(registry.register(&spec::<H>(description, labels, by))?)
}
