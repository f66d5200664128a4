// SPDX-License-Identifier: Apache-2.0

//! Points to bytes and back, in both versions.

mod decoder;
mod resources;
mod translation;
mod wire;

use std::sync::Arc;

use tidegate_engine::{Data, Metric, Point, Resource, Scope, Series as Stream, Temporality, Value};

use super::testing::Request;
use super::translate::{Settings, Translation, Translator};
use super::{Version, write};
use tidegate_pipeline::batch::{Batch, Points};

const CUMULATIVE: Temporality = Temporality::Cumulative;
const COUNTER: Data = Data::Sum {
    monotonic: true,
    temporality: CUMULATIVE,
};
const HISTOGRAM: Data = Data::Histogram {
    temporality: CUMULATIVE,
};
const EXPONENTIAL: Data = Data::ExponentialHistogram {
    temporality: CUMULATIVE,
};

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

fn stream(name: &str, data: Data, attributes: &[(&str, &str)]) -> Stream {
    Stream {
        resource: Arc::new(Resource::default()),
        scope: Arc::new(Scope::default()),
        metric: Arc::new(Metric {
            name: name.into(),
            description: "what it is".into(),
            unit: "".into(),
            data,
            metadata: Default::default(),
        }),
        attributes: attributes.iter().copied().collect(),
    }
}

fn point(stream: &Stream, time_ms: u64, value: Value) -> Point {
    Point {
        series: Arc::new(stream.clone()),
        start: 500 * MS,
        time: time_ms * MS,
        value,
        exemplars: Vec::new(),
    }
}

fn batch(points: Vec<Point>) -> Batch {
    Batch::new(Points {
        points: points.into(),
    })
}

fn request(version: Version, translation: &Translation) -> Request {
    let series = translation.groups.iter().flat_map(|group| &group.series);
    Request::of(version, &write::encode(version, series, true))
}

fn translator() -> Translator {
    Translator::new(Settings {
        target_info: true,
        ..Settings::default()
    })
}

/// As it comes over the wire in 2.0, with nothing dropped.
fn sent(translator: &Translator, points: Vec<Point>) -> Request {
    let translation = translator.translate(&[batch(points)]);
    assert_eq!(translation.dropped, []);
    request(Version::Two, &translation)
}
