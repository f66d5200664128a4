// SPDX-License-Identifier: Apache-2.0

//! Names that Prometheus gave stay the same on pages, in queries and in remote writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use tidegate_engine::{Attributes, Limits, Point, Resource, Rule, Table};

use super::flat::identity;
use super::labels::PrometheusLabels;
use super::model::LabelSet;
use super::name::{Kind, Naming, Spelling, Strategy as Translation};
use super::remote::translate::{Settings as Remote, Translator};
use super::scrape::{ScrapeDecoder, Settings, Target};
use super::{Format, Renderer, Style};
use tidegate_pipeline::batch::{Batch, Points};

const NOW: u64 = 1_700_000_000_000_000_000;

/// A target that adds no label.
struct Plain;

impl Target for Plain {
    fn relabel(&mut self, _: &mut LabelSet) -> bool {
        true
    }

    fn resource(&self, job: &str, instance: &str) -> Attributes {
        let pairs = [("service.name", job), ("service.instance.id", instance)];
        pairs.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }
}

fn scraped(page: &str) -> Vec<Point> {
    let mut points = Vec::new();
    ScrapeDecoder::new(Settings::default(), Box::new(Plain))
        .page(
            tidegate_exposition::Format::Text,
            page.as_bytes(),
            NOW,
            &mut points,
        )
        .expect("a sound page");
    points
}

fn rendered(points: &[Point], style: &Style) -> String {
    let table = Arc::new(Table::new("test", vec![Rule::newest()], Limits::default()));
    for point in points {
        table.observe(point, NOW);
    }
    let page = Renderer::new(Format::Text, style.clone()).render(&[table], NOW);
    String::from_utf8(page.body.to_vec()).expect("text")
}

/// Names and labels of what remote write makes of points.
fn written(points: &[Point]) -> Vec<BTreeMap<String, String>> {
    let settings = Remote {
        target_info: true,
        ..Remote::default()
    };
    let batch = Batch::new(Points {
        points: points.into(),
    });
    let translation = Translator::new(settings).translate(&[batch]);
    assert_eq!(translation.dropped, []);
    let series = translation.groups.iter().flat_map(|group| &group.series);
    let labels = series.map(|series| series.identity.labels());
    labels
        .map(|labels| {
            let pair = |(name, value): &(Arc<str>, Arc<str>)| (name.to_string(), value.to_string());
            labels.iter().map(pair).collect()
        })
        .collect()
}

fn is_free(name: &str) -> bool {
    !name.starts_with("__") && !name.starts_with("otel_scope_") && !["job", "instance"].contains(&name)
}

/// Legal label names, odd ones among them; not Prometheus's own with two underscores.
fn label() -> impl Strategy<Value = String> {
    let odd = ["_", "a__b", "_lead", "l__x", "le", "quantile", "x_", "A_", "_1"];
    prop_oneof![
        prop::sample::select(odd.to_vec()).prop_map(str::to_owned),
        "[a-zA-Z_][a-zA-Z0-9_]{0,6}"
    ]
    .prop_filter("names with a meaning of their own", |name| is_free(name))
}

fn name() -> impl Strategy<Value = String> {
    let odd = [
        "_",
        "_total",
        ":",
        "a:b:c_total",
        "x__y",
        "_lead",
        "total",
        "x_ratio_x",
        "x_",
    ];
    prop_oneof![
        prop::sample::select(odd.to_vec()).prop_map(str::to_owned),
        "[a-zA-Z_:][a-zA-Z0-9_:]{0,8}"
    ]
    .prop_filter("a name with a meaning of its own", |name| name != "target_info")
}

proptest! {
    /// Every legal name and label survives, whatever its type.
    #[test]
    fn legal_names_of_a_scraped_page_stay(
        name in name(),
        labels in prop::collection::btree_map(label(), "[a-z]{1,3}", 0..4),
        kind in prop::sample::select(vec!["counter", "gauge", "untyped"]),
        escapes in any::<bool>(),
    ) {
        let pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        let series = if pairs.is_empty() {
            name.clone()
        } else {
            format!("{name}{{{}}}", pairs.join(","))
        };
        let page = format!("# TYPE {name} {kind}\n{series} 1\n");
        let points = scraped(&page);
        let style = Style {
            naming: Naming {
                strategy: if escapes { Translation::UnderscoresAndSuffixes } else { Translation::Suffixes },
                ..Naming::default()
            },
            ..Style::default()
        };
        prop_assert_eq!(&rendered(&points, &style), &page);
        let asked = identity(&points[0].series, &style).expect("it has a name");
        prop_assert_eq!((&asked.0, asked.1.into_iter().collect::<BTreeMap<_, _>>()), (&name, labels.clone()));
        let mut all = labels;
        all.insert("__name__".to_owned(), name);
        prop_assert_eq!(written(&points), [all]);
    }
}

#[test]
fn labels_of_targets_and_scopes_stay() {
    let page = "target_info{job=\"j\",instance=\"i\",a__b=\"1\",_lead=\"2\"} 1\n\
                x{job=\"j\",instance=\"i\",otel_scope_name=\"s\",otel_scope_l__x=\"3\"} 1\n";
    let points = scraped(page);
    let expected = [
        "x{instance=\"i\",job=\"j\",otel_scope_l__x=\"3\",otel_scope_name=\"s\"} 1",
        "target_info{_lead=\"2\",a__b=\"1\",instance=\"i\",job=\"j\"} 1",
    ];
    let page = rendered(&points, &Style::default());
    for line in expected {
        assert!(page.lines().any(|shown| shown == line), "{line}: {page}");
    }
    let told = &written(&points)[0];
    assert_eq!(told["__name__"], "target_info");
    assert_eq!((told["a__b"].as_str(), told["_lead"].as_str()), ("1", "2"));
}

#[test]
fn what_is_not_legal_is_escaped_without_suffixes() {
    let naming = Naming {
        namespace: "ns".to_owned(),
        ..Naming::default()
    };
    let named = |name| naming.spelt(Spelling::Prometheus, name, "s", Kind::Counter);
    assert_eq!(named("http.requests").as_deref(), Some("ns_http_requests"));
    assert_eq!(named("_a__b").as_deref(), Some("ns__a__b"));
    assert_eq!(named("..."), None);
    let mut labels = PrometheusLabels::new(&naming, Spelling::Prometheus);
    for key in ["a.b", "__own", "__", "_x__y"] {
        labels.add(key, tidegate_engine::AttributeRef::Str("v"));
    }
    labels.set("our__own", "v");
    assert_eq!(
        labels.render(),
        "_=\"v\",_own=\"v\",_x__y=\"v\",a_b=\"v\",our_own=\"v\""
    );
}

#[test]
fn names_of_otlp_are_translated_as_before() {
    let resource = Resource {
        attributes: [("service.name", "s"), ("a__b", "1")].into_iter().collect(),
        ..Resource::default()
    };
    let labels = Style::default().labels_of_target(&resource, Spelling::Otlp);
    assert_eq!(
        labels.expect("it says more").render(),
        "a_b=\"1\",instance=\"\",job=\"s\""
    );
}
