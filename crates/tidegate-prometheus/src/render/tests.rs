// SPDX-License-Identifier: Apache-2.0

//! Expositions of readings, and a checker that knows what an exposition may look like.

mod history;
mod messages;
mod owners;
mod registration;
mod rows;
mod targets;
mod walk;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use proptest::prelude::*;
use tidegate_engine::{
    Attributes, Buckets, Data, ExponentialHistogram, Histogram, Limits, Metric, Pattern, Point, Quantile,
    Resource, Rule, Scope, Series, Summary, Table, Temporality, Value,
};

use super::*;
use crate::{OPENMETRICS_NAME, ResourceLabels, Strategy as Translation};

const COUNTER: Data = Data::Sum {
    monotonic: true,
    temporality: Temporality::Cumulative,
};
const HISTOGRAM: Data = Data::Histogram {
    temporality: Temporality::Cumulative,
};

fn series(
    name: &str,
    unit: &str,
    data: Data,
    resource: &[(&str, &str)],
    labels: &[(&str, &str)],
) -> Arc<Series> {
    Arc::new(Series {
        resource: Arc::new(Resource {
            attributes: resource.iter().copied().collect(),
            schema_url: "".into(),
        }),
        scope: Arc::new(Scope::default()),
        metric: Arc::new(Metric {
            name: name.into(),
            description: "What it is".into(),
            unit: unit.into(),
            data,
            metadata: Attributes::default(),
        }),
        attributes: labels.iter().copied().collect(),
    })
}

fn renderer(format: Format) -> Renderer {
    Renderer::new(format, Style::default())
}

const NOW: u64 = 1_500_000_000;

/// A table that shows what is put into it.
fn table(owner: &str) -> Arc<Table> {
    Arc::new(Table::new(owner, vec![Rule::newest()], Limits::default()))
}

fn put(table: &Table, all: &[(Arc<Series>, Value)]) {
    put_at(table, all, NOW);
}

fn put_at(table: &Table, all: &[(Arc<Series>, Value)], time: u64) {
    for (series, value) in all {
        let point = Point {
            series: series.clone(),
            start: 0,
            time,
            value: value.clone(),
            exemplars: Vec::new(),
        };
        table.observe(&point, time);
    }
}

fn text(renderer: &mut Renderer, tables: &[Arc<Table>]) -> String {
    String::from_utf8(renderer.render(tables, NOW).body.to_vec()).unwrap()
}

/// The page of a table that has all this.
fn page(renderer: &mut Renderer, all: &[(Arc<Series>, Value)]) -> String {
    let table = table("test");
    put(&table, all);
    text(renderer, &[table])
}

#[test]
fn counters_and_gauges_look_as_nixls_own_exporter_writes_them() {
    let labels = [("agent_name", "a"), ("hostname", "h")];
    let all = [
        (
            series("agent_tx_bytes", "", COUNTER, &[], &labels),
            Value::Int(9216),
        ),
        (
            series("agent_xfer_time", "", Data::Gauge, &[], &labels),
            Value::Double(7.5),
        ),
        (
            series("agent_xfer_time", "", COUNTER, &[], &labels),
            Value::Int(30),
        ),
    ];
    let expected = "\
# HELP agent_tx_bytes_total What it is
# TYPE agent_tx_bytes_total counter
agent_tx_bytes_total{agent_name=\"a\",hostname=\"h\"} 9216
# HELP agent_xfer_time What it is
# TYPE agent_xfer_time gauge
agent_xfer_time{agent_name=\"a\",hostname=\"h\"} 7.5
# HELP agent_xfer_time_total What it is
# TYPE agent_xfer_time_total counter
agent_xfer_time_total{agent_name=\"a\",hostname=\"h\"} 30
";
    let (mut renderer, table) = (renderer(Format::Text), table("test"));
    put(&table, &all);
    for _ in 0..2 {
        assert_eq!(text(&mut renderer, std::slice::from_ref(&table)), expected);
    }
    assert_eq!(renderer.take_conflicts(), []);
}

#[test]
fn openmetrics_gives_the_gauge_beside_a_counter_its_other_name() {
    let mut gauge = (*series("agent_xfer_time", "", Data::Gauge, &[], &[])).clone();
    let mut metric = (*gauge.metric).clone();
    metric.metadata = [(OPENMETRICS_NAME, "agent_xfer_time_last")].into_iter().collect();
    gauge.metric = Arc::new(metric);
    let counter = series("agent_xfer_time", "", COUNTER, &[], &[]);
    let all = [(Arc::new(gauge), Value::Int(7)), (counter, Value::Int(30))];
    let mut openmetrics = renderer(Format::OpenMetrics);
    let expected = "\
# HELP agent_xfer_time What it is
# TYPE agent_xfer_time counter
agent_xfer_time_total 30
# HELP agent_xfer_time_last What it is
# TYPE agent_xfer_time_last gauge
agent_xfer_time_last 7
# EOF
";
    assert_eq!(page(&mut openmetrics, &all), expected);
    assert!(page(&mut renderer(Format::Text), &all).contains("\nagent_xfer_time 7\n"));
}

#[test]
fn histograms_have_running_buckets_sum_and_count() {
    let value = Value::Histogram(Box::new(Histogram {
        count: 6,
        sum: Some(12.5),
        min: None,
        max: None,
        bounds: Arc::from([1.0, 2.5]),
        counts: vec![1, 2, 3],
    }));
    let all = [(series("d", "s", HISTOGRAM, &[], &[("a", "b")]), value)];
    let text = page(&mut renderer(Format::Text), &all);
    let lines: Vec<_> = text.lines().skip(2).collect();
    assert_eq!(
        lines,
        [
            "d_seconds_bucket{a=\"b\",le=\"1\"} 1",
            "d_seconds_bucket{a=\"b\",le=\"2.5\"} 3",
            "d_seconds_bucket{a=\"b\",le=\"+Inf\"} 6",
            "d_seconds_sum{a=\"b\"} 12.5",
            "d_seconds_count{a=\"b\"} 6",
        ]
    );
    let text = page(&mut renderer(Format::OpenMetrics), &all);
    assert!(text.contains("le=\"1.0\"") && text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn a_name_of_another_type_is_refused_whole_and_named() {
    let all = [
        (series("x", "", Data::Gauge, &[], &[]), Value::Int(1)),
        (series("x", "", COUNTER, &[], &[("a", "1")]), Value::Int(1)),
    ];
    let style = Style {
        naming: Naming {
            strategy: Translation::Nothing,
            ..Naming::default()
        },
        ..Style::default()
    };
    let (mut renderer, table) = (Renderer::new(Format::Text, style), table("test"));
    put(&table, &all);
    let tables = [table];
    let page = text(&mut renderer, &tables);
    assert_eq!(page.matches("# TYPE").count(), 1, "{page}");
    let conflicts = renderer.take_conflicts();
    assert_eq!((conflicts.len(), conflicts[0].series), (1, 1));
    assert_eq!(conflicts[0].reason, LeftOut::TypeClash);
    assert!(
        conflicts[0].why.contains("`x` is a gauge of test already"),
        "{conflicts:?}"
    );
    put(&tables[0], &all);
    text(&mut renderer, &tables);
    assert_eq!(renderer.take_conflicts(), [], "told once");
    assert_eq!(renderer.left_out(), conflicts, "and shown as long as it is so");
}

#[test]
fn resources_that_differ_only_in_hidden_attributes_make_no_duplicates() {
    let one = series("x", "", Data::Gauge, &[("service.name", "s"), ("pod", "1")], &[]);
    let two = series("x", "", Data::Gauge, &[("service.name", "s"), ("pod", "2")], &[]);
    let mut plain = renderer(Format::Text);
    let text = page(
        &mut plain,
        &[(one.clone(), Value::Int(1)), (two.clone(), Value::Int(2))],
    );
    assert!(
        text.contains("x{instance=\"\",job=\"s\"} 1\n") && !text.contains("} 2\n"),
        "{text}"
    );
    assert_eq!(text.matches("\ntarget_info{").count(), 1, "{text}");
    let told = plain.take_conflicts();
    assert_eq!((told.len(), told[0].series), (1, 1));
    assert_eq!(told[0].reason, LeftOut::AmbiguousIdentity);

    let style = Style {
        labels: LabelSources {
            resource: ResourceLabels {
                included: vec![Pattern::Glob("*".into())],
                excluded: Vec::new(),
            },
            ..LabelSources::default()
        },
        ..Style::default()
    };
    let text = page(
        &mut Renderer::new(Format::Text, style),
        &[(one, Value::Int(1)), (two, Value::Int(2))],
    );
    assert!(text.contains("pod=\"1\"") && text.contains("pod=\"2\""), "{text}");
}

#[test]
fn a_second_writer_of_a_series_is_refused_and_both_are_named() {
    let of = |value| [(series("x", "", COUNTER, &[], &[("a", "1")]), Value::Int(value))];
    let tables = [table("aggregate@metrics/a"), table("aggregate@metrics/b")];
    put(&tables[0], &of(1));
    put(&tables[1], &of(2));
    let mut renderer = renderer(Format::Text);
    let page = text(&mut renderer, &tables);
    assert!(
        page.contains("x_total{a=\"1\"} 1\n") && !page.contains("} 2\n"),
        "{page}"
    );
    let conflicts = renderer.take_conflicts();
    assert_eq!(conflicts.len(), 1);
    assert_eq!(conflicts[0].reason, LeftOut::DuplicateIdentity);
    assert_eq!(&*conflicts[0].owner, "aggregate@metrics/b");
    assert!(
        conflicts[0].why.starts_with("aggregate@metrics/a has a series"),
        "{conflicts:?}"
    );
    let page = text(&mut renderer, &tables[1..]);
    assert!(
        page.contains("x_total{a=\"1\"} 2\n"),
        "the first one is gone: {page}"
    );
    assert_eq!(renderer.left_out(), []);
}

#[test]
fn a_place_becomes_free_when_its_owner_is_gone() {
    let gauge = [(series("x", "", Data::Gauge, &[], &[]), Value::Int(1))];
    let summary = [(
        series("x", "", Data::Summary, &[], &[]),
        Value::Summary(Box::default()),
    )];
    let (mut renderer, tables) = (renderer(Format::Text), [table("test")]);
    put(&tables[0], &gauge);
    text(&mut renderer, &tables);
    let later = NOW + 3600 * 1_000_000_000;
    put_at(&tables[0], &summary, later);
    let page = text(&mut renderer, &tables);
    assert!(
        page.contains("# TYPE x gauge"),
        "the name is still the gauge's: {page}"
    );
    (0..).map(|tick| later + tick * 1_000_000_000).find(|now| {
        tables[0].expire(*now);
        tables[0].len() == 1
    });
    assert_eq!(text(&mut renderer, &tables), "", "it has ended");
    let page = text(&mut renderer, &tables);
    assert!(page.contains("# TYPE x summary"), "{page}");
}

#[test]
fn a_page_is_the_same_until_something_changes() {
    let (mut renderer, tables) = (renderer(Format::Text), [table("test")]);
    let of = |value| [(series("x", "", COUNTER, &[], &[("a", "1")]), Value::Int(value))];
    put(&tables[0], &of(1));
    let one = renderer.render(&tables, NOW);
    let same = renderer.render(&tables, NOW + 1);
    assert!(Arc::ptr_eq(&one, &same));
    put_at(&tables[0], &of(2), NOW + 1);
    let other = renderer.render(&tables, NOW + 2);
    assert!(other.version > one.version && other.body != one.body);
}

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
fn any_value() -> impl Strategy<Value = (Data, Value)> {
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

fn hostile_name() -> impl Strategy<Value = String> {
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
