// SPDX-License-Identifier: Apache-2.0

//! Changes to metrics for destinations with restrictions on names and on the number of histogram buckets.

use std::sync::Arc;

use tidegate_engine::{Attributes, AttributesBuilder, Metric, Point, Series, Value};

use crate::batch::{Batch, Payload, Signal, convert};

tidegate_config::choices! {
    /// The names of metrics and of their attributes that a vendor takes.
    pub enum NameRules {
        /// Anything.
        Keep = "keep",
        /// Metrics `[a-zA-Z][a-zA-Z0-9_:./]*`, attributes `[a-zA-Z_][a-zA-Z0-9_.]*`; `_` replaces the rest.
        GoogleCloud = "google_cloud",
        /// Attributes in lower case.
        LowerCaseKeys = "lower_case_keys",
    }
}

/// The changes to metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The most buckets of a histogram with explicit bounds. Neighbours are merged beyond it; 0 = no limit.
    pub max_buckets: usize,
    /// The rules for names.
    pub names: NameRules,
}

impl Shape {
    /// No changes.
    pub const NONE: Self = Self {
        max_buckets: 0,
        names: NameRules::Keep,
    };

    /// Changes a batch for the destination. Other signals, and metrics that need no change, stay untouched.
    pub(super) fn apply(self, batch: Batch) -> Batch {
        if self == Self::NONE || batch.signal() != Signal::Metrics {
            return batch;
        }
        let mut points = match &batch.payload {
            Payload::Points(points) => points.points.to_vec(),
            Payload::Events(events) => convert::events_to_points(events),
            Payload::Encoded(encoded) => match convert::points(encoded) {
                Ok(points) => points,
                // The gateway checked it on arrival. The peer decides about data that can't be decoded.
                Err(_) => return batch,
            },
        };
        let mut changed = false;
        for point in &mut points {
            changed |= self.shorten(point);
            changed |= self.rename(point);
        }
        if changed {
            // The decoded form takes many times the memory, and would wait in the queue.
            batch.with(convert::encode_points(&points))
        } else {
            batch
        }
    }

    fn shorten(self, point: &mut Point) -> bool {
        match &mut point.value {
            Value::Histogram(histogram) if self.max_buckets > 0 => histogram.coarsen(self.max_buckets),
            _ => false,
        }
    }

    fn rename(self, point: &mut Point) -> bool {
        let series = &point.series;
        let name = self.metric_name(&series.metric.name);
        let attributes = self.keys(&series.attributes);
        if name.is_none() && attributes.is_none() {
            return false;
        }
        let metric = match name {
            None => series.metric.clone(),
            Some(name) => Arc::new(Metric {
                name: name.into(),
                ..(*series.metric).clone()
            }),
        };
        point.series = Arc::new(Series {
            metric,
            attributes: attributes.unwrap_or_else(|| series.attributes.clone()),
            ..(**series).clone()
        });
        true
    }

    fn metric_name(self, name: &str) -> Option<String> {
        match self.names {
            NameRules::GoogleCloud => plain(name, |first, c| {
                c.is_ascii_alphabetic()
                    || (!first && (c.is_ascii_digit() || matches!(c, '_' | ':' | '.' | '/')))
            }),
            NameRules::Keep | NameRules::LowerCaseKeys => None,
        }
    }

    fn keys(self, attributes: &Attributes) -> Option<Attributes> {
        let key = |key: &str| match self.names {
            NameRules::GoogleCloud => plain(key, |first, c| {
                c.is_ascii_alphabetic() || c == '_' || (!first && (c.is_ascii_digit() || c == '.'))
            }),
            NameRules::LowerCaseKeys => key.chars().any(char::is_uppercase).then(|| key.to_lowercase()),
            NameRules::Keep => None,
        };
        let renamed = attributes.iter().any(|(name, _)| key(name).is_some());
        renamed.then(|| {
            let mut builder = AttributesBuilder::default();
            for (name, value) in attributes.iter() {
                builder.push(key(name).as_deref().unwrap_or(name), value);
            }
            builder.finish()
        })
    }
}

/// Replaces invalid characters by `_`, and puts a letter before an invalid start. `None` if the name is valid.
fn plain(name: &str, allowed: fn(bool, char) -> bool) -> Option<String> {
    let is_right = name.chars().enumerate().all(|(at, c)| allowed(at == 0, c));
    if is_right && !name.is_empty() {
        return None;
    }
    let mut plain = String::with_capacity(name.len() + 2);
    for c in name.chars() {
        match (allowed(plain.is_empty(), c), allowed(false, c)) {
            (true, _) => plain.push(c),
            // The character is valid, but not at the start.
            (false, true) => plain.extend(["m_", &c.to_string()]),
            (false, false) if plain.is_empty() => plain.push_str("m_"),
            (false, false) => plain.push('_'),
        }
    }
    Some(if plain.is_empty() { "m_".to_owned() } else { plain })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn google(name: &str) -> String {
        let shape = Shape {
            names: NameRules::GoogleCloud,
            ..Shape::NONE
        };
        shape.metric_name(name).unwrap_or_else(|| name.to_owned())
    }

    #[test]
    fn what_is_changed_waits_as_bytes() {
        use prost::Message;
        use tidegate_requests::{attribute, gauge, int, request};
        let mut point = int(7);
        point.attributes = vec![attribute("Zone", "a".to_owned())];
        let bytes = request(Vec::new(), "", [gauge("g", [point])]).encode_to_vec();
        let batch = Batch::new(crate::batch::wire::check(Signal::Metrics, bytes.into()).unwrap());
        let shape = Shape {
            names: NameRules::LowerCaseKeys,
            ..Shape::NONE
        };
        let shaped = shape.apply(batch);
        let Payload::Encoded(encoded) = &shaped.payload else {
            panic!("decoded points")
        };
        let points = convert::points(encoded).unwrap();
        assert_eq!(
            points[0]
                .series
                .attributes
                .get("zone")
                .and_then(tidegate_engine::AttributeRef::as_str),
            Some("a")
        );
        assert_eq!((shaped.items(), shaped.bytes()), (1, encoded.bytes()));
    }

    #[test]
    fn names_are_made_to_fit_and_right_ones_stay() {
        let cases = [
            ("http.server/requests:rate_1", "http.server/requests:rate_1"),
            ("gpu-util %", "gpu_util__"),
            ("1st", "m_1st"),
            ("_hidden", "m__hidden"),
            ("größe", "gr__e"),
            ("-x", "m_x"),
            ("", "m_"),
        ];
        for (name, fitting) in cases {
            assert_eq!(google(name), fitting, "{name}");
            let first = fitting.chars().next().unwrap();
            assert!(first.is_ascii_alphabetic());
        }
    }
}
