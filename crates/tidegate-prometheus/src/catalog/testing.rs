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

/// The points of a scrape of a target: a gauge and `up`. Without a value, the scrape has failed, and `up` comes first.
pub fn scrape(target: &[(&str, &str)], gauge: &str, value: Option<i64>, now: UnixNanos) -> [Point; 2] {
    let of = |name: &str, value: Value| {
        let attributes = (target.iter().copied().collect(), Attributes::default());
        point(name, Data::Gauge, attributes, (0, now), value)
    };
    let level = value.map_or(Value::NoRecordedValue, Value::Int);
    let up = Value::Int(i64::from(value.is_some()));
    let (gauge, up) = (of(gauge, level), of("up", up));
    if value.is_some() { [gauge, up] } else { [up, gauge] }
}
