// SPDX-License-Identifier: Apache-2.0

//! The OTLP form of the series of cells.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

use tidegate_cells::{FamilySpec, FamilyValues, Kind, Labels, OVERFLOW_LABEL, Value as Cell};
use tidegate_engine::{
    AttributeValue, Attributes, Buckets, Data, Histogram, Key, KeyHasher, Metric, Resource, Scope, Series,
    Summary, Temporality, Value,
};

use crate::receivers::pods;

/// The attribute that OpenTelemetry's SDKs give to overflow series.
const OVERFLOW: &str = "otel.metric.overflow";

/// The common metric of a family's series.
pub(super) fn metric(spec: &FamilySpec) -> Arc<Metric> {
    Arc::new(Metric {
        name: spec.name.as_str().into(),
        description: spec.help.as_str().into(),
        unit: spec.unit.as_str().into(),
        data: data(&spec.kind),
        metadata: Attributes::default(),
    })
}

fn data(kind: &Kind) -> Data {
    let temporality = Temporality::Cumulative;
    let sum = |monotonic| Data::Sum {
        monotonic,
        temporality,
    };
    match kind {
        Kind::Counter | Kind::FloatCounter => sum(true),
        Kind::UpDownCounter => sum(false),
        Kind::Gauge(_) => Data::Gauge,
        Kind::Histogram { .. } => Data::Histogram { temporality },
        Kind::ExponentialHistogram { .. } => Data::ExponentialHistogram { temporality },
        Kind::Summary => Data::Summary,
    }
}

/// The names that several families have, with the forms of these: their processes disagree on the instrument, the mode of a
/// gauge, or the unit.
pub(super) fn conflicts(families: &[FamilyValues]) -> BTreeMap<String, Vec<String>> {
    let mut forms: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for FamilyValues { spec, .. } in families.iter().filter(|family| !family.series.is_empty()) {
        forms.entry(&spec.name).or_default().push(form(spec));
    }
    let several = forms.into_iter().filter(|(_, forms)| forms.len() > 1);
    several.map(|(name, forms)| (name.to_owned(), forms)).collect()
}

fn form(spec: &FamilySpec) -> String {
    let mode = spec.kind.gauge_mode();
    let mode = mode.map_or_else(String::new, |mode| {
        let name = format!("{mode:?}").to_lowercase();
        format!(" of mode {name}")
    });
    let unit = match spec.unit.as_str() {
        "" => "without a unit".to_owned(),
        unit => format!("in {unit}"),
    };
    format!("a {}{mode} {unit}", spec.kind.name())
}

/// A series of a metric.
pub(super) fn series(resource: &Arc<Resource>, metric: &Arc<Metric>, labels: &Labels) -> Arc<Series> {
    let attribute = |(key, value): &(Arc<str>, Box<str>)| {
        if (&**key, &**value) == OVERFLOW_LABEL {
            (OVERFLOW.to_owned(), AttributeValue::Bool(true))
        } else {
            (key.to_string(), AttributeValue::from(value.to_string()))
        }
    };
    Arc::new(Series {
        resource: resource.clone(),
        scope: Arc::new(Scope::default()),
        metric: metric.clone(),
        attributes: labels.iter().map(attribute).collect(),
    })
}

/// The key that identifies a series within a resource.
pub(super) fn key(series: &Arc<Series>) -> SeriesKey {
    SeriesKey(series.clone())
}

/// The identity of a series within a resource: as in [`tidegate_engine::Key`], without its description.
pub(super) struct SeriesKey(Arc<Series>);

impl PartialEq for SeriesKey {
    fn eq(&self, other: &Self) -> bool {
        let (one, two) = (&self.0.metric, &other.0.metric);
        let is_same_metric = one.name == two.name && one.unit == two.unit && one.data == two.data;
        is_same_metric && self.0.attributes == other.0.attributes
    }
}

impl Eq for SeriesKey {}

impl Hash for SeriesKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.metric.name.hash(state);
        self.0.attributes.hash(state);
    }
}

/// The approximate memory of a series beside its files in bytes: its current value and its sent value.
pub(super) fn bytes(series: &Series, kind: &Kind) -> usize {
    /// The overhead without attributes and values.
    const SERIES: usize = 768;
    let words = match kind {
        Kind::Histogram { bounds } => bounds.len() + 2,
        // Buckets of both sides.
        Kind::ExponentialHistogram { .. } => 324,
        _ => 2,
    };
    SERIES + series.attributes.encoded().len() + 16 * words
}

/// The resource of a directory whose cells have these attributes. The uid of a pod in its path wins: a program could tell
/// another pod's.
pub(super) fn resource(directory: &Path, attributes: &[(String, String)]) -> Arc<Resource> {
    let own: Attributes = attributes
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    Arc::new(Resource {
        attributes: own.merge(&pods::attributes_of(directory)),
        ..Resource::default()
    })
}

/// A value of a series of this kind.
pub(super) fn value(cell: &Cell, kind: &Kind) -> Value {
    match cell {
        Cell::Counter(count) => i64::try_from(*count).map_or(Value::Double(*count as f64), Value::Int),
        Cell::UpDownCounter(sum) => Value::Int(*sum),
        Cell::FloatCounter(value) | Cell::Gauge { value, .. } => Value::Double(*value),
        Cell::Histogram { buckets, sum } => {
            let bounds = match kind {
                Kind::Histogram { bounds } => bounds.clone(),
                _ => Arc::default(),
            };
            Value::Histogram(Box::new(Histogram {
                count: total(buckets),
                sum: Some(*sum),
                min: None,
                max: None,
                bounds,
                counts: buckets.clone(),
            }))
        }
        Cell::Exponential(cell) => Value::ExponentialHistogram(cell.clone()),
        Cell::Summary { count, sum } => Value::Summary(Box::new(Summary {
            count: *count,
            sum: *sum,
            quantiles: Vec::new(),
        })),
    }
}

/// A hash over a series and its value, of all that is sent of them.
pub(super) fn hash(series: &Series, cell: &Cell, kind: &Kind) -> u64 {
    let mut hasher = KeyHasher::default();
    Key::of(series).hash(&mut hasher);
    match cell {
        Cell::Counter(count) => count.hash(&mut hasher),
        Cell::UpDownCounter(sum) => sum.hash(&mut hasher),
        Cell::FloatCounter(value) | Cell::Gauge { value, .. } => value.to_bits().hash(&mut hasher),
        Cell::Histogram { buckets, sum } => {
            if let Kind::Histogram { bounds } = kind {
                let bounds: Vec<u64> = bounds.iter().map(|bound| bound.to_bits()).collect();
                bounds.hash(&mut hasher);
            }
            (buckets, sum.to_bits()).hash(&mut hasher);
        }
        Cell::Exponential(cell) => {
            let floats = [cell.sum, cell.min, cell.max, Some(cell.zero_threshold)];
            floats.map(|float| float.map(f64::to_bits)).hash(&mut hasher);
            (cell.count, cell.scale, cell.zero_count).hash(&mut hasher);
            for Buckets { offset, counts } in [&cell.positive, &cell.negative] {
                (offset, counts).hash(&mut hasher);
            }
        }
        Cell::Summary { count, sum } => (count, sum.to_bits()).hash(&mut hasher),
    }
    hasher.finish()
}

/// Counts wrap as the cells do.
fn total(counts: &[u64]) -> u64 {
    counts.iter().fold(0, |sum, count| sum.wrapping_add(*count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_do_not_give_themselves_the_uid_of_another_pod() {
        let [own, other] = ['a', 'b'].map(|digit| format!("0f4b8a52-3c1d-4e6f-9a7b-0123456789a{digit}"));
        let told = [
            ("k8s.pod.uid".to_owned(), other.clone()),
            ("service.name".to_owned(), "llm".to_owned()),
        ];
        let uid = |directory: &str| {
            let resource = resource(Path::new(directory), &told);
            let attribute = |key| resource.attributes.get(key)?.as_str().map(str::to_owned);
            assert_eq!(attribute("service.name").as_deref(), Some("llm"));
            attribute("k8s.pod.uid")
        };
        assert_eq!(uid(&format!("/run/{own}/cells")), Some(own));
        assert_eq!(uid("/run/cells"), Some(other));
    }
}
