// SPDX-License-Identifier: Apache-2.0

//! One test a rule of the translation of attributes, resources and scopes to labels.

use std::sync::Arc;

use proptest::prelude::*;
use tidegate_engine::{Metric, Temporality};

use super::*;
use crate::name::Strategy;

fn naming(strategy: Strategy, escaping: Escaping) -> Naming {
    Naming {
        strategy,
        escaping,
        ..Naming::default()
    }
}

fn rendered(entries: &[(&str, &str)]) -> String {
    rendered_as(&Naming::default(), entries)
}

fn rendered_as(naming: &Naming, entries: &[(&str, &str)]) -> String {
    let mut labels = PrometheusLabels::new(naming, Spelling::Otlp);
    labels.extend(&attributes(entries));
    labels.render()
}

fn attributes(entries: &[(&str, &str)]) -> Attributes {
    entries.iter().copied().collect()
}

const HISTOGRAM: Data = Data::Histogram {
    temporality: Temporality::Cumulative,
};

fn series(data: Data, point: &[(&str, &str)], resource: &[(&str, &str)], scope: Scope) -> Series {
    Series {
        resource: Arc::new(Resource {
            attributes: attributes(resource),
            schema_url: "".into(),
        }),
        scope: Arc::new(scope),
        metric: Arc::new(Metric {
            name: "m".into(),
            description: "".into(),
            unit: "".into(),
            data,
            metadata: Attributes::default(),
        }),
        attributes: attributes(point),
    }
}

fn shown(series: &Series, sources: &LabelSources) -> String {
    PrometheusLabels::of(series, &Naming::default(), sources).render()
}

fn scope(name: &str, version: &str, attributes_of: &[(&str, &str)]) -> Scope {
    Scope {
        name: name.into(),
        version: version.into(),
        schema_url: "".into(),
        attributes: attributes(attributes_of),
    }
}

#[test]
fn values_become_text_and_are_escaped() {
    let mut labels = PrometheusLabels::default();
    labels.add("truth", AttributeRef::Bool(true));
    labels.add("bytes", AttributeRef::Bytes(&[1, 2, 3]));
    assert_eq!(labels.render(), r#"bytes="AQID",truth="true""#);
    assert_eq!(rendered(&[("a", "x\"y\\z\nw")]), "a=\"x\\\"y\\\\z\\nw\"");
}

#[test]
fn keys_become_label_names() {
    for (key, name) in [
        ("http.method", "http_method"),
        ("a..b", "a_b"),
        ("label:with:colons", "label_with_colons"),
        ("LabelWithCapitals", "LabelWithCapitals"),
        ("label!with&special$chars)", "label_with_special_chars_"),
        ("label_with_\u{5b57}\u{7b26}", "label_with_"),
        ("123label", "key_123label"),
        ("_one", "_one"),
        ("__two", "_two"),
    ] {
        assert_eq!(rendered(&[(key, "1")]), format!("{name}=\"1\""), "{key}");
    }
    for key in ["", "_", "__", "...", "\u{3088}\u{3046}"] {
        assert_eq!(rendered(&[(key, "1")]), "", "{key}");
    }
}

#[test]
fn names_that_client_libraries_refuse_lose_an_underscore() {
    assert_eq!(rendered(&[("__x__", "1")]), "_x_=\"1\"");
    assert_eq!(rendered(&[("__name__", "1")]), "_name_=\"1\"");
    let utf8 = naming(Strategy::Nothing, Escaping::AllowUtf8);
    assert_eq!(rendered_as(&utf8, &[("__name__", "1")]), "_name__=\"1\"");
    assert_eq!(rendered_as(&utf8, &[("__", "1")]), "");
    let dots = naming(Strategy::Nothing, Escaping::Dots);
    assert_eq!(rendered_as(&dots, &[("_a.b", "1")]), "_a_dot_b=\"1\"");
}

#[test]
fn an_empty_label_is_none_and_a_nul_does_not_end_the_page() {
    assert_eq!(rendered(&[("a", ""), ("b", "1\0")]), "b=\"1\u{fffd}\"");
    assert_eq!(rendered(&[("a.b", ""), ("a_b", "")]), "a_b=\";\"");
}

#[test]
fn where_names_are_kept_they_are_escaped_for_the_scraper() {
    let entries = [("http.method", "GET"), ("a\"b\\", "1"), ("n\0l", "2")];
    for (escaping, expected) in [
        (Escaping::AllowUtf8, r#""a\"b\\"="1","http.method"="GET",n_l="2""#),
        (Escaping::Underscores, r#"a_b_="1",http_method="GET",n_l="2""#),
        (
            Escaping::Values,
            r#"U__a_22_b_5c_="1",U__http_2e_method="GET",n_l="2""#,
        ),
    ] {
        assert_eq!(
            rendered_as(&naming(Strategy::Nothing, escaping), &entries),
            expected
        );
    }
}

#[test]
fn colliding_keys_are_joined_in_the_order_of_the_original_keys() {
    assert_eq!(rendered(&[("a_b", "2"), ("a.b", "1")]), r#"a_b="1;2""#);
    assert_eq!(
        rendered(&[("a_b", "1"), ("a.b", "2"), ("a/b", "3")]),
        r#"a_b="2;3;1""#
    );
    let naming = naming(Strategy::Nothing, Escaping::Underscores);
    assert_eq!(
        rendered_as(&naming, &[("a_b", "2"), ("a.b", "1")]),
        r#"a_b="1;2""#
    );
}

#[test]
fn labels_of_resource_and_scope_are_joined_too() {
    let point = [
        ("job", "mine"),
        ("instance", "9"),
        ("otel.scope.name", "x"),
        ("otel_scope_color", "red"),
    ];
    let resource = [("service.name", "a"), ("service.instance.id", "1")];
    let series = series(
        Data::Gauge,
        &point,
        &resource,
        scope("lib", "", &[("color", "blue")]),
    );
    assert_eq!(
        shown(&series, &LabelSources::default()),
        r#"instance="1;9",job="a;mine",otel_scope_color="blue;red",otel_scope_name="x;lib""#
    );
}

#[test]
fn a_type_s_own_label_is_exported_and_stays_where_the_type_has_none() {
    let point = [("le", "1"), ("quantile", "2")];
    let shown = |data| {
        shown(
            &series(data, &point, &[], Scope::default()),
            &LabelSources::default(),
        )
    };
    assert_eq!(shown(Data::Gauge), r#"le="1",quantile="2""#);
    assert_eq!(shown(HISTOGRAM), r#"exported_le="1",quantile="2""#);
    assert_eq!(shown(Data::Summary), r#"exported_quantile="2",le="1""#);
}

#[test]
fn service_attributes_of_a_resource_give_job_and_instance() {
    let shown = |resource: &[(&str, &str)]| {
        shown(
            &series(Data::Gauge, &[], resource, Scope::default()),
            &LabelSources::default(),
        )
    };
    let full = [
        ("service.name", "a"),
        ("service.namespace", "n"),
        ("service.instance.id", "i"),
    ];
    assert_eq!(shown(&full), r#"instance="i",job="n/a""#);
    assert_eq!(shown(&full[..1]), r#"instance="",job="a""#);
    assert_eq!(shown(&full[2..]), r#"instance="i""#);
    assert_eq!(shown(&full[1..2]), "", "a namespace alone is not an identity");
}

#[test]
fn resource_attributes_are_labels_only_where_configured() {
    let resource = [("host.name", "h"), ("service.name", "a"), ("zone", "z")];
    let series = series(Data::Gauge, &[("zone", "point")], &resource, Scope::default());
    let shown = |included: &[&str], excluded: &[&str]| {
        let patterns = |list: &[&str]| list.iter().map(|text| Pattern::parse(text).unwrap()).collect();
        let resource = ResourceLabels {
            included: patterns(included),
            excluded: patterns(excluded),
        };
        shown(
            &series,
            &LabelSources {
                resource,
                ..LabelSources::default()
            },
        )
    };
    assert_eq!(shown(&[], &[]), r#"instance="",job="a",zone="point""#);
    assert_eq!(
        shown(&["*"], &[]),
        r#"host_name="h",instance="",job="a",service_name="a",zone="z""#,
        "the resource's value wins where both have the key"
    );
    assert_eq!(
        shown(&["host.*"], &[]),
        r#"host_name="h",instance="",job="a",zone="point""#
    );
    assert_eq!(
        shown(&[], &["service.name"]),
        r#"host_name="h",instance="",job="a",zone="z""#
    );
    assert_eq!(shown(&["*"], &["*"]), r#"instance="",job="a",zone="point""#);
}

#[test]
fn scopes_are_labels_unless_configured_otherwise() {
    let scope = Scope {
        schema_url: "http://s".into(),
        ..scope(
            "lib",
            "1.2",
            &[("name", "no"), ("schema.url", "no"), ("short", "yes")],
        )
    };
    let series = series(Data::Gauge, &[], &[], scope);
    assert_eq!(
        shown(&series, &LabelSources::default()),
        r#"otel_scope_name="lib",otel_scope_schema_url="http://s",otel_scope_short="yes",otel_scope_version="1.2""#
    );
    let without = LabelSources {
        without_scope: true,
        ..LabelSources::default()
    };
    assert_eq!(shown(&series, &without), "");
}

#[test]
fn a_scope_without_a_name_is_distinguished() {
    let series = series(Data::Gauge, &[], &[], scope("", "1.2", &[("a", "b")]));
    assert_eq!(
        shown(&series, &LabelSources::default()),
        r#"otel_scope_a="b",otel_scope_version="1.2""#
    );
}

#[test]
fn constant_labels_win_and_have_names_that_are_labels() {
    let sources = LabelSources {
        constant: vec![
            ("another label".into(), "c".into()),
            ("job".into(), "mine".into()),
        ],
        ..LabelSources::default()
    };
    let series = series(
        Data::Gauge,
        &[("another_label", "p")],
        &[("service.name", "a")],
        Scope::default(),
    );
    assert_eq!(
        shown(&series, &sources),
        r#"another_label="c",instance="",job="mine""#
    );
}

proptest! {
    #[test]
    fn every_label_is_one_that_its_scraper_takes(keys in proptest::collection::vec("[_a1.:\u{e9}\0\"]{0,6}|.{0,6}|le", 0..6)) {
        let point: Vec<_> = keys.iter().map(|key| (key.as_str(), "v")).collect();
        let series = series(HISTOGRAM, &point, &[], Scope::default());
        for strategy in [Strategy::UnderscoresAndSuffixes, Strategy::Nothing] {
            for escaping in [Escaping::AllowUtf8, Escaping::Underscores, Escaping::Dots, Escaping::Values] {
                let naming = naming(strategy, escaping);
                let labels = PrometheusLabels::of(&series, &naming, &LabelSources::default());
                for (name, _) in labels.into_pairs() {
                    prop_assert!(!name.is_empty() && !name.starts_with("__") && name != "le", "{name:?}");
                    prop_assert!(!name.contains('\0'));
                    if strategy.escapes() || escaping != Escaping::AllowUtf8 {
                        prop_assert!(is_legacy_label_name(&name), "{name:?} {naming:?}");
                    }
                }
            }
        }
    }
}
