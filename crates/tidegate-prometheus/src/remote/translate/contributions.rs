// SPDX-License-Identifier: Apache-2.0

//! The names of a stream, and the contributions of its points to series.

use std::sync::Arc;

use tidegate_engine::{Data, Exemplar, Key, PointSample, Series as Stream, Value};

use super::super::histogram::{Native, Unfit};
use super::super::known::{StreamNames, check, group};
use super::super::series::{self, Family, Identity, Kind, Label, NAME};
use super::super::stale;
use super::{Contribution, Settings, TargetInfo, millis};
use crate::flat;
use crate::labels::{PrometheusLabels, instance, job};
use crate::model::PROMETHEUS_TYPE;
use crate::name::{self, Naming, Spelling};
use crate::render::exemplar;
use crate::render::kind::kinds;
use crate::unit::unit_word;
use tidegate_pipeline::component::Reason;

/// The name of the series that describes a resource, without the namespace.
const TARGET_INFO: &str = "target_info";
/// The attributes of `job` and `instance`.
const SERVICE: [&str; 3] = ["service.name", "service.namespace", "service.instance.id"];

impl Settings {
    /// The names of a stream.
    pub(super) fn know(&self, stream: &Stream) -> StreamNames {
        let metric = &stream.metric;
        if let Err((reason, why)) = check(metric.data) {
            return StreamNames::refused(stream, reason, why);
        }
        let Ok((kind, _)) = kinds(metric.data) else {
            return StreamNames::refused(stream, Reason::Invalid, "its temporality is unspecified");
        };
        let said = metric.metadata.get(PROMETHEUS_TYPE).and_then(|said| match said {
            tidegate_engine::AttributeRef::Str(name) => Kind::named(name),
            _ => None,
        });
        let Some(name) = self.naming.of(metric, kind) else {
            return StreamNames::refused(
                stream,
                Reason::Invalid,
                "its name has no character that Prometheus allows",
            );
        };
        let family = Family {
            name: name.into(),
            kind: said.unwrap_or(match (kind, metric.data) {
                (name::Kind::Counter, _) => Kind::Counter,
                (_, Data::Summary) => Kind::Summary,
                (name::Kind::Histogram, _) => Kind::Histogram,
                _ => Kind::Gauge,
            }),
            help: metric.description.clone(),
            unit: unit_word(&metric.unit).into(),
        };
        let labels = self.labels(PrometheusLabels::of(stream, &self.naming, &self.sources));
        let target = self.target_info.then(|| self.target(stream)).flatten();
        let mut known = StreamNames::new(metric.data, family, labels, target.map(Arc::new));
        known.spelling = Spelling::of(metric);
        known
    }

    /// The labels, with those of every series.
    fn labels(&self, labels: PrometheusLabels) -> Vec<Label> {
        let mut labels: Vec<Label> = labels
            .into_pairs()
            .into_iter()
            // A label without a value is none.
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        for (name, value) in &self.external {
            if !labels.iter().any(|(known, _)| **known == **name) {
                labels.push((name.as_str().into(), value.as_str().into()));
            }
        }
        labels
    }

    fn target(&self, stream: &Stream) -> Option<TargetInfo> {
        let job = job(&stream.resource)?;
        let mut others = stream
            .resource
            .attributes
            .iter()
            .filter(|(key, _)| !SERVICE.contains(key))
            .peekable();
        others.peek()?;
        let mut labels = PrometheusLabels::new(&self.naming, Spelling::of(&stream.metric));
        others.for_each(|(key, value)| labels.add(key, value));
        labels.identify(&stream.resource);
        let name: Arc<str> = self.naming.own(TARGET_INFO).into();
        let labels = self.labels(labels);
        Some(TargetInfo {
            key: Key::of_value(&(job, instance(&stream.resource))),
            group: group(&name, &labels),
            identity: Arc::new(Identity::new(
                labels.into_iter().chain([(NAME.into(), name.clone())]),
            )),
            family: Arc::new(Family {
                name,
                kind: Kind::Gauge,
                help: "Target metadata".into(),
                unit: "".into(),
            }),
        })
    }

    /// Adds the contributions of a point to its series.
    pub(super) fn add_contributions(
        &self,
        known: &mut StreamNames,
        sample: &PointSample<'_>,
        parts: &mut Vec<(Arc<Identity>, Contribution, f64)>,
    ) -> Result<(), (Reason, String)> {
        if sample.time == 0 {
            return Err((Reason::Invalid, "it has no time".to_owned()));
        }
        let unfit = |unfit: Unfit| {
            let reason = if unfit.is_broken() {
                Reason::Invalid
            } else {
                Reason::Unsupported
            };
            (reason, unfit.to_string())
        };
        let mut native = |known: &mut StreamNames, native: Native| {
            let said = Contribution::Native(Box::new(native));
            parts.push((known.part(0, "", None), said, f64::INFINITY));
        };
        match sample.value {
            Value::NoRecordedValue => match known.data {
                Data::ExponentialHistogram { .. } => native(known, Native::stale(false)),
                Data::Histogram { .. } if self.custom_buckets => native(known, Native::stale(true)),
                _ => end(known, parts),
            },
            Value::ExponentialHistogram(histogram) => {
                native(known, Native::of_exponential(histogram).map_err(unfit)?);
            }
            Value::Histogram(histogram) if self.custom_buckets => {
                native(known, Native::of_explicit(histogram).map_err(unfit)?);
            }
            Value::Histogram(histogram) if !histogram.is_sound() => return Err(unfit(Unfit::Broken)),
            value => {
                let mut at = 0;
                let examples = counts(known.data);
                flat::numbers(value, &mut |suffix, more, number| {
                    let bound = match more {
                        Some(("le", bound)) => bound,
                        None if suffix.is_empty() && examples => f64::INFINITY,
                        _ => f64::NEG_INFINITY,
                    };
                    parts.push((known.part(at, suffix, more), Contribution::Number(number), bound));
                    at += 1;
                });
                known.truncate(at);
            }
        }
        Ok(())
    }
}

/// The end of every series that the stream had; for a stream without series, the end of those that its kind must have.
fn end(known: &mut StreamNames, parts: &mut Vec<(Arc<Identity>, Contribution, f64)>) {
    let mut all = known.all();
    if all.is_empty() {
        let of_kind: &[(&'static str, Option<(&'static str, f64)>)] = match known.data {
            Data::Histogram { .. } => &[
                ("_bucket", Some(("le", f64::INFINITY))),
                ("_sum", None),
                ("_count", None),
            ],
            Data::Summary => &[("_sum", None), ("_count", None)],
            _ => &[("", None)],
        };
        let made = of_kind.iter().enumerate();
        all = made
            .map(|(at, (suffix, more))| known.part(at, suffix, *more))
            .collect();
    }
    let ends = all
        .into_iter()
        .map(|identity| (identity, Contribution::Number(stale()), f64::NEG_INFINITY));
    parts.extend(ends);
}

/// Whether points of this kind count since a start.
pub(super) fn counts(data: Data) -> bool {
    match data {
        Data::Sum { monotonic, .. } => monotonic,
        Data::Gauge => false,
        Data::Histogram { .. } | Data::ExponentialHistogram { .. } | Data::Summary => true,
    }
}

/// An outgoing exemplar. Without a time of its own it gets that of the sample.
pub(super) fn exemplar_of(
    exemplar: &Exemplar,
    time: i64,
    naming: &Naming,
    spelling: Spelling,
) -> Option<series::Exemplar> {
    let mut labels = exemplar::labels(exemplar, naming, spelling, false);
    labels.retain(|(_, value)| !value.is_empty());
    labels.sort_unstable();
    Some(series::Exemplar {
        time: if exemplar.time > 0 {
            millis(exemplar.time)
        } else {
            time
        },
        value: exemplar::value(exemplar)?,
        labels,
    })
}
