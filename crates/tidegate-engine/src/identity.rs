// SPDX-License-Identifier: Apache-2.0

//! The identity of a series: resource + scope + metric + attributes (OpenTelemetry metrics data model, "stream
//! identity").

use std::sync::Arc;

pub use tidegate_model::kind::{Data, Instrument, Temporality};

use crate::Attributes;

/// The producer of the data: OTLP's `Resource` with its schema URL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    /// The resource's attributes.
    pub attributes: Attributes,
    /// `schema_url` of the `ResourceMetrics`.
    pub schema_url: Arc<str>,
}

/// The library that produced the data: OTLP's `InstrumentationScope` with its schema URL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    /// The scope's name.
    pub name: Arc<str>,
    /// The scope's version.
    pub version: Arc<str>,
    /// The scope's attributes.
    pub attributes: Attributes,
    /// `schema_url` of the `ScopeMetrics`.
    pub schema_url: Arc<str>,
}

/// A metric: OTLP's `Metric` without its points.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Metric {
    /// Metric name as sent.
    pub name: Arc<str>,
    /// Free text; not part of the identity by the data model, kept with it here.
    pub description: Arc<str>,
    /// UCUM unit as sent.
    pub unit: Arc<str>,
    /// Kind of data.
    pub data: Data,
    /// `Metric.metadata` (for example `prometheus.type`).
    pub metadata: Attributes,
}

/// One output identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Series {
    /// The resource that produced it.
    pub resource: Arc<Resource>,
    /// The library that produced it.
    pub scope: Arc<Scope>,
    /// The metric.
    pub metric: Arc<Metric>,
    /// The point's attributes.
    pub attributes: Attributes,
}
