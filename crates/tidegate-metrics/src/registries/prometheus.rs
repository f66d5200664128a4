// SPDX-License-Identifier: Apache-2.0

//! Values of one process for Prometheus to scrape.

use std::sync::Arc;

use tidegate_cells::{Options, Store};

use crate::cells::Cells;
use crate::description::FamilySpec;
use crate::family::AnyFamily;
use crate::text::{self, Format};
use crate::value::FamilyValues;
use crate::{MetricsRegistry, RegisterError};

/// Keeps values in memory and shows them to Prometheus.
///
/// ```
/// # use tidegate_metrics::{Description, MetricsRegistry, Prometheus};
/// let registry = Prometheus::new();
/// let requests = registry.counter(&Description::new("requests", "Requests processed"), &[("model", "m")])?;
/// requests.inc();
/// assert!(registry.prometheus_format_str().contains("requests_total{model=\"m\"} 1\n"));
/// # Ok::<(), tidegate_metrics::RegisterError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Prometheus(Arc<Cells>);

impl Default for Prometheus {
    fn default() -> Self {
        Self::new()
    }
}

impl Prometheus {
    /// Without any instruments yet.
    pub fn new() -> Self {
        Self::of(super::options(Vec::new()))
    }

    /// With another limit than 2000 series a family; further ones share one that says
    /// `otel_metric_overflow="true"`.
    pub fn with_max_series(max_series: usize) -> Self {
        Self::of(Options {
            max_series,
            ..super::options(Vec::new())
        })
    }

    fn of(options: Options) -> Self {
        Self(Arc::new(Cells::new(Store::in_memory(options))))
    }

    /// All values in a text format.
    pub fn page(&self, format: Format) -> String {
        text::render(&self.gather(), format)
    }
}

impl MetricsRegistry for Prometheus {
    fn register(&self, spec: &FamilySpec) -> Result<AnyFamily, RegisterError> {
        self.0.register(spec)
    }

    fn gather(&self) -> Vec<FamilyValues> {
        self.0.gather()
    }
}
