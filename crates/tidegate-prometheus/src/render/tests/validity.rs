// SPDX-License-Identifier: Apache-2.0

//! Any readings give a valid exposition: generated readings, and a checker of the text formats.

use std::collections::HashMap;

use super::*;

/// Panics where a text exposition breaks a rule of the format.
fn check(text: &str) {
    let mut types: HashMap<&str, &str> = HashMap::new();
    let mut samples = HashMap::new();
    let mut current = None;
    // The bucket before: its series, its bound and its count.
    let mut last = (String::new(), 0.0, 0);
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert!(types.insert(name, kind).is_none(), "two families {name}");
            current = Some((name, kind));
        } else if !line.starts_with("# ") {
            let end = line.find(['{', ' ']).expect("a name");
            let name = &line[..end];
            let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
            assert!(
                name.chars().all(good) && !name.starts_with(|c: char| c.is_ascii_digit()),
                "{line}"
            );
            let (family, kind) = current.expect("a TYPE line comes first");
            assert!(name.starts_with(family), "{line} in family {family}");
            let (identity, value) = line.rsplit_once(' ').expect("a value");
            assert!(
                ["+Inf", "-Inf", "NaN"].contains(&value) || value.parse::<f64>().is_ok(),
                "{line}"
            );
            assert!(
                samples.insert(identity.to_owned(), value).is_none(),
                "the same sample twice: {line}"
            );
            if kind == "histogram" && name[family.len()..] == *"_bucket" {
                let (labels, bound) = identity[end..].rsplit_once("le=\"").expect("a bound");
                let bound: f64 = bound.strip_suffix("\"}").unwrap().parse().unwrap();
                let series = format!("{family}_count{}", labels.trim_end_matches([',', '{']));
                let count: u64 = value.parse().unwrap();
                if last.0 == series {
                    assert!(last.1 < bound && last.2 <= count, "{last:?} before {line}");
                }
                last = (series, bound, count);
            } else if kind == "histogram" && name[family.len()..] == *"_count" {
                let series = identity.trim_end_matches('}');
                let count: u64 = value.parse().unwrap();
                assert_eq!(last, (series.to_owned(), f64::INFINITY, count), "{line}");
            }
        }
    }
}

/// A value that a table takes.
pub(super) fn any_value() -> impl Strategy<Value = (Data, Value)> {
    let temporality = Temporality::Cumulative;
    let count = || prop_oneof![0..3u64, 0..1u64 << 60];
    let buckets = move || prop::collection::vec(count(), 0..6);
    let offset = || prop_oneof![-10..10i32, -(1 << 30)..1 << 30];
    let bound = prop_oneof![-9..9i64, any::<i64>(), Just(i64::MAX)].prop_map(|bound| match bound {
        i64::MAX => f64::INFINITY,
        bound => bound as f64 / 4.0,
    });
    let bounds = prop::collection::vec(bound, 0..5).prop_map(|mut bounds| {
        bounds.sort_by(f64::total_cmp);
        bounds.dedup();
        bounds
    });
    prop_oneof![
        any::<f64>().prop_map(|v| (Data::Gauge, Value::Double(v))),
        (0..i64::MAX).prop_map(|v| (COUNTER, Value::Int(v))),
        (any::<Option<f64>>(), bounds, prop::collection::vec(count(), 6)).prop_map(
            move |(sum, bounds, mut counts)| {
                counts.truncate(bounds.len() + 1);
                let histogram = Histogram {
                    count: counts.iter().sum(),
                    sum,
                    min: None,
                    max: None,
                    bounds: bounds.into(),
                    counts,
                };
                assert!(histogram.is_sound());
                (
                    Data::Histogram { temporality },
                    Value::Histogram(Box::new(histogram)),
                )
            }
        ),
        (
            -10..=20i32,
            any::<Option<f64>>(),
            (count(), 0..3u8),
            (offset(), buckets()),
            (offset(), buckets())
        )
            .prop_map(move |(scale, sum, (zero_count, threshold), one, two)| {
                let histogram = ExponentialHistogram {
                    count: zero_count + one.1.iter().chain(&two.1).sum::<u64>(),
                    sum,
                    scale,
                    zero_count,
                    zero_threshold: f64::from(threshold),
                    positive: Buckets {
                        offset: one.0,
                        counts: one.1,
                    },
                    negative: Buckets {
                        offset: two.0,
                        counts: two.1,
                    },
                    ..ExponentialHistogram::default()
                };
                assert!(histogram.is_sound());
                (
                    Data::ExponentialHistogram { temporality },
                    Value::ExponentialHistogram(Box::new(histogram)),
                )
            }),
        prop::collection::btree_set(0u8..100, 0..4).prop_map(|quantiles| {
            let quantile = |q: u8| Quantile {
                quantile: f64::from(q) / 100.0,
                value: 1.0,
            };
            let quantiles = quantiles.into_iter().map(quantile).collect();
            (
                Data::Summary,
                Value::Summary(Box::new(Summary {
                    count: 1,
                    sum: 1.0,
                    quantiles,
                })),
            )
        }),
    ]
}

pub(super) fn hostile_name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c._]{0,3}(_total|_sum|_count|_bucket|)",
        "\\PC{0,6}",
        Just("target_info".to_owned())
    ]
}

proptest! {
    #[test]
    fn whatever_comes_the_exposition_is_valid(
        all in prop::collection::vec(
            (hostile_name(), "(|s|By|1|\\PC{0,3})", any_value(),
             prop::collection::vec((hostile_name(), "\\PC{0,4}"), 0..3)), 0..12),
        openmetrics in any::<bool>(),
    ) {
        let all: Vec<_> = all
            .into_iter()
            .map(|(name, unit, (data, value), labels)| {
                let labels: Vec<_> = labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
                let resource = [("service.name", "s"), ("x", "y")];
                (series(&name, &unit, data, &resource, &labels), value)
            })
            .collect();
        let mut renderer = renderer(if openmetrics { Format::OpenMetrics } else { Format::Text });
        let tables = [table("test")];
        put(&tables[0], &all);
        check(&text(&mut renderer, &tables));
        put_at(&tables[0], &all[..all.len() / 2], NOW + 1);
        check(&text(&mut renderer, &tables));
    }
}
