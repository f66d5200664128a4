// SPDX-License-Identifier: Apache-2.0

//! Converts a family's metadata to a metric.

use tidegate_engine::{Attributes, Data, Metric};
use tidegate_exposition::MetricType;

use super::unit::ucum;

/// Metadata key that says which type Prometheus had for a metric.
pub const PROMETHEUS_TYPE: &str = "prometheus.type";

/// A metric; `unit` is a word of Prometheus.
pub fn metric(name: &str, kind: MetricType, data: Data, help: &str, unit: &str) -> Metric {
    Metric {
        name: name.into(),
        description: help.into(),
        unit: ucum(unit).into(),
        data,
        metadata: Attributes::from_iter([(PROMETHEUS_TYPE, kind.name())]),
    }
}
