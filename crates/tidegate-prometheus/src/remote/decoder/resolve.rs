// SPDX-License-Identifier: Apache-2.0

//! Resolves an unknown series: its labels, and its OTLP form.

use std::sync::Arc;

use tidegate_engine::{Attributes, AttributesBuilder, Data, Metric, Temporality};

use super::family::FamilyMetadata;
use super::resource::Resources;
use super::{CachedSeries, Kind, Stream};
use crate::model::{LabelSet, NAME, PROMETHEUS_TYPE, SeriesIdentity, TARGET_INFO, ucum};
use tidegate_pipeline::component::Reason;

/// The data of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum SampleShape {
    Number,
    Exponential,
    Explicit,
}

impl SampleShape {
    /// The shape of a native histogram.
    pub(super) fn of(data: Data) -> Self {
        match data {
            Data::Histogram { .. } => Self::Explicit,
            _ => Self::Exponential,
        }
    }
}

pub(super) fn resolve(
    labels: &[(&str, &str)],
    said: &FamilyMetadata,
    shape: SampleShape,
    resources: &Resources,
    builder: &mut AttributesBuilder,
) -> CachedSeries {
    if let Err(why) = check(labels) {
        return CachedSeries::Refused(Reason::Invalid, why);
    }
    let labels: LabelSet = labels.iter().copied().collect();
    let SeriesIdentity {
        job,
        instance,
        scope,
        attributes,
    } = SeriesIdentity::of(&labels, "", builder);
    let place = resources.of(&job, &instance, builder);
    let name = labels.get(NAME);
    if name == TARGET_INFO && shape == SampleShape::Number {
        let told = place.with(&attributes);
        return CachedSeries::Info { place, told };
    }
    let (resource, version) = place.resource();
    let metric = Metric {
        name: name.into(),
        description: said.help.clone(),
        unit: ucum(&said.unit).into(),
        data: data(name, said.kind, shape, labels.has("le")),
        metadata: Attributes::from_iter([(PROMETHEUS_TYPE, said.kind.name())]),
    };
    CachedSeries::Stream {
        stream: Arc::new(Stream {
            resource,
            scope: Arc::new(scope.unwrap_or_default()),
            metric: Arc::new(metric),
            attributes,
        }),
        place,
        version,
        starts: Arc::default(),
    }
}

/// Every series has a name, and no label twice.
fn check(labels: &[(&str, &str)]) -> Result<(), &'static str> {
    if !labels
        .iter()
        .any(|(name, value)| *name == NAME && !value.is_empty())
    {
        return Err("a series without a name");
    }
    let mut names: Vec<&str> = labels.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    match names.first() {
        Some(&"") => Err("a label without a name"),
        _ if names.windows(2).any(|pair| pair.first() == pair.last()) => Err("a label that comes twice"),
        _ => Ok(()),
    }
}

fn data(name: &str, kind: Kind, shape: SampleShape, is_bucket: bool) -> Data {
    let temporality = Temporality::Cumulative;
    let sum = |monotonic| Data::Sum {
        monotonic,
        temporality,
    };
    let is_total = || {
        is_bucket
            || ["_bucket", "_sum", "_count"]
                .iter()
                .any(|suffix| name.ends_with(suffix))
    };
    match (shape, kind) {
        (SampleShape::Exponential, _) => Data::ExponentialHistogram { temporality },
        (SampleShape::Explicit, _) => Data::Histogram { temporality },
        (SampleShape::Number, Kind::Counter) => sum(true),
        (SampleShape::Number, Kind::Info | Kind::StateSet) => sum(false),
        (SampleShape::Number, Kind::Histogram | Kind::Summary) if is_total() => sum(true),
        (SampleShape::Number, _) => Data::Gauge,
    }
}
