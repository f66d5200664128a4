// SPDX-License-Identifier: Apache-2.0

//! Helpers that the tests of the catalogue share.

use std::sync::Arc;

use tidegate_engine::{Attributes, Data, Metric, Point, Resource, Series, UnixNanos, Value};

/// A point of a series of this resource, with these attributes, without a scope. `times`: start and time.
pub fn point(
    name: &str,
    data: Data,
    (resource, attributes): (Attributes, Attributes),
    (start, time): (UnixNanos, UnixNanos),
    value: Value,
) -> Point {
    let metric = Metric {
        name: name.into(),
        description: "".into(),
        unit: "".into(),
        data,
        metadata: Attributes::default(),
    };
    Point {
        series: Arc::new(Series {
            resource: Arc::new(Resource {
                attributes: resource,
                schema_url: "".into(),
            }),
            scope: Arc::default(),
            metric: Arc::new(metric),
            attributes,
        }),
        start,
        time,
        value,
        exemplars: Vec::new(),
    }
}
