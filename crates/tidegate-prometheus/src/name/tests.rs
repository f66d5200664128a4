// SPDX-License-Identifier: Apache-2.0

//! One test a rule of the translation; what prometheus/otlptranslator gives, unless a test says otherwise.

use proptest::prelude::*;

use super::Strategy::{Nothing, Suffixes, Underscores, UnderscoresAndSuffixes};
use super::*;
use crate::Strategy;
use crate::escaping::is_legacy_metric_name;

fn naming(strategy: Strategy, namespace: &str) -> Naming {
    Naming {
        namespace: namespace.to_owned(),
        strategy,
        escaping: Escaping::AllowUtf8,
    }
}

/// Name, unit, kind and what becomes of them; an empty text for nothing.
type Row = (&'static str, &'static str, Kind, &'static str);

fn check(naming: &Naming, table: &[Row]) {
    for (name, unit, kind, expected) in table {
        let shown = naming.metric(name, unit, *kind).unwrap_or_default();
        assert_eq!(shown, *expected, "{name} {unit} {kind:?} {naming:?}");
    }
}

use Kind::{Counter, Gauge, Histogram, UpDownCounter};

#[test]
fn other_characters_become_one_underscore() {
    let table = [
        ("a..b", "", Gauge, "a_b"),
        (
            "metric@with#special$chars",
            "",
            Gauge,
            "metric_with_special_chars",
        ),
        ("a__b", "", Gauge, "a_b"),
        ("a:b", "", Gauge, "a:b"),
        ("1st", "", Gauge, "_1st"),
        // The translator drops underscores at either end.
        ("_hidden_", "", Gauge, "hidden"),
    ];
    check(&naming(UnderscoresAndSuffixes, ""), &table);
    let table = [
        ("a..b", "", Gauge, "a_b"),
        ("metric@@##$$name", "", Gauge, "metric_name"),
        // It keeps the underscores of the name where it adds no suffixes.
        ("a__b", "", Gauge, "a__b"),
        ("_hidden_", "", Gauge, "_hidden_"),
        ("1st", "", Gauge, "_1st"),
    ];
    check(&naming(Underscores, ""), &table);
}

#[test]
fn the_unit_s_words_follow_the_name() {
    let table = [
        (
            "http.server.duration",
            "s",
            Histogram,
            "http_server_duration_seconds",
        ),
        ("io", "By/s", Gauge, "io_bytes_per_second"),
        ("io", "{packet}/s", Gauge, "io_per_second"),
        ("io", "{packet}", Counter, "io_total"),
        ("speed", "m/s", Gauge, "speed_meters_per_second"),
        ("odd", "parsec", Gauge, "odd_parsec"),
        (
            "a",
            "unit@with#special/chars",
            Gauge,
            "a_unit_with_special_per_chars",
        ),
        ("a", "TiBy", Gauge, "a_tibibytes"),
        ("a", "kBy", Gauge, "a_kBy"),
        ("a", "KBy", Gauge, "a_kilobytes"),
    ];
    check(&naming(UnderscoresAndSuffixes, ""), &table);
}

#[test]
fn a_unit_that_the_name_has_is_not_added() {
    let table = [
        ("response_time_seconds", "s", Gauge, "response_time_seconds"),
        ("seconds_of_day", "s", Gauge, "seconds_of_day"),
        ("foo_bytes", "By", Counter, "foo_bytes_total"),
        ("kilobytes", "By", Gauge, "kilobytes_bytes"),
        // "per" and "second" are two words of a name, "per_second" is one of the unit.
        ("a_per_second", "1/s", Gauge, "a_per_second_per_second"),
    ];
    check(&naming(UnderscoresAndSuffixes, ""), &table);
    let table = [
        ("response.time_seconds", "s", Gauge, "response.time_seconds"),
        ("kilobytes", "By", Gauge, "kilobytes"),
        ("a_per_second", "1/s", Gauge, "a_per_second"),
        ("cpu_seconds_total", "s", Counter, "cpu_seconds_total"),
    ];
    check(&naming(Suffixes, ""), &table);
}

#[test]
fn a_counter_ends_in_total() {
    let table = [
        ("foo.bar", "By", Counter, "foo_bar_bytes_total"),
        ("foo_total", "", Counter, "foo_total"),
        ("total_foo_total", "", Counter, "foo_total"),
        ("total", "", Counter, "total"),
        ("foo_total", "", UpDownCounter, "foo_total"),
    ];
    check(&naming(UnderscoresAndSuffixes, ""), &table);
    let table = [
        ("foo.bar", "By", Counter, "foo.bar_bytes_total"),
        ("foo.total", "", Counter, "foo_total"),
        // Any character before it is taken for what separates it; the translator cuts a byte, which may be half a letter.
        ("subtotal", "", Counter, "su_total"),
        ("caf\u{e9}total", "", Counter, "caf_total"),
        ("total", "", Counter, "total_total"),
    ];
    check(&naming(Suffixes, ""), &table);
}

#[test]
fn a_gauge_of_unit_one_ends_in_ratio() {
    let table = [
        ("used", "1", Gauge, "used_ratio"),
        ("ratio_used_ratio", "1", Gauge, "used_ratio"),
        ("used", "1", Counter, "used_total"),
        ("used", "1", UpDownCounter, "used"),
        ("used", "1", Histogram, "used"),
        ("used", "1/s", Gauge, "used_per_second"),
    ];
    check(&naming(UnderscoresAndSuffixes, ""), &table);
    check(
        &naming(Suffixes, ""),
        &[
            ("cpu.used", "1", Gauge, "cpu.used_ratio"),
            ("cpu.used_ratio", "1", Gauge, "cpu.used_ratio"),
        ],
    );
}

#[test]
fn percent_is_a_word_and_a_name_without_a_character_is_none() {
    let table = [
        ("used", "%", Gauge, "used_percent"),
        ("___", "", Gauge, ""),
        ("\u{e9}", "", Gauge, ""),
        ("", "", Gauge, ""),
        // The translator would name every such counter `total`, every such size `bytes`.
        ("@#$", "By", Counter, ""),
    ];
    check(&naming(UnderscoresAndSuffixes, ""), &table);
    check(
        &naming(UnderscoresAndSuffixes, "ns"),
        &[("@#$", "By", Counter, "")],
    );
    check(
        &naming(Underscores, ""),
        &[("@#$", "", Gauge, ""), ("", "", Gauge, "")],
    );
    check(&naming(Underscores, "ns"), &[("@#$", "", Gauge, "")]);
    for strategy in [Suffixes, Nothing] {
        check(
            &naming(strategy, "ns"),
            &[("", "", Counter, ""), ("", "By", Gauge, "")],
        );
    }
}

#[test]
fn a_namespace_stands_before_everything() {
    let rows = [
        ("x", "By", Counter, "my_ns_x_bytes_total"),
        ("1x", "", Gauge, "my_ns_1x"),
    ];
    check(&naming(UnderscoresAndSuffixes, "my.ns"), &rows);
    check(
        &naming(Underscores, "my@ns!!"),
        &[("x", "By", Counter, "my_ns_x")],
    );
    check(
        &naming(Suffixes, "my.ns"),
        &[("x.y", "By", Counter, "my.ns_x.y_bytes_total")],
    );
    check(&naming(Nothing, "my.ns"), &[("x.y", "By", Counter, "my.ns_x.y")]);
    check(&naming(Underscores, "1"), &[("x", "", Gauge, "_1_x")]);
}

#[test]
fn a_unit_is_written_where_the_name_ends_with_it() {
    let naming = naming(UnderscoresAndSuffixes, "");
    for (unit, family, expected) in [
        ("s", "a_seconds", Some("seconds")),
        ("By/s", "a_bytes_per_second", Some("bytes_per_second")),
        ("s", "seconds_of_day", None),
        ("1", "a_ratio", None),
        ("", "a", None),
        ("s", "seconds", None),
    ] {
        assert_eq!(naming.unit(unit, family).as_deref(), expected, "{unit} {family}");
    }
}

#[test]
fn utf8_modes_keep_characters_and_join_suffixes_with_underscores() {
    let table = [
        ("foo.bar", "By", Counter, "foo.bar_bytes_total"),
        ("requ\u{ea}sts", "1/s", Gauge, "requ\u{ea}sts_per_second"),
        ("a b", "m\u{b2}", Gauge, "a b_m\u{b2}"),
        ("@#$%", "", Counter, "@#$%_total"),
        // Prometheus's parsers take a NUL for the end of the page.
        ("a\0b", "", Gauge, "a_b"),
    ];
    check(&naming(Suffixes, ""), &table);
    check(&naming(Nothing, ""), &[("foo.bar", "By", Counter, "foo.bar")]);
}

#[test]
fn the_strategy_applies_before_the_escaping() {
    let table = [
        (
            UnderscoresAndSuffixes,
            "foo_bar_bytes_total",
            "foo_bar_bytes_total",
        ),
        (Underscores, "foo_bar", "foo_bar"),
        (Suffixes, "foo_bar_bytes_total", "foo.bar_bytes_total"),
        (Nothing, "foo_bar", "foo.bar"),
    ];
    for (strategy, escaped, utf8) in table {
        for (escaping, expected) in [(Escaping::Underscores, escaped), (Escaping::AllowUtf8, utf8)] {
            let naming = Naming {
                escaping,
                ..naming(strategy, "")
            };
            assert_eq!(naming.metric("foo.bar", "By", Counter).as_deref(), Some(expected));
        }
    }
    assert_eq!(Naming::default().strategy, UnderscoresAndSuffixes);
}

#[test]
fn a_counter_s_name_is_more_than_its_suffix() {
    for strategy in [Underscores, Nothing] {
        check(
            &naming(strategy, ""),
            &[("_total", "", Counter, ""), ("_total", "", Gauge, "_total")],
        );
    }
}

proptest! {
    #[test]
    fn every_name_is_one_that_its_scraper_takes(
        name in ".{0,12}",
        unit in "(.{0,6}|By|1|s)(/.{0,4})?",
        namespace in ".{0,4}",
        kind in prop_oneof![Just(Gauge), Just(UpDownCounter), Just(Counter), Just(Histogram)],
    ) {
        for strategy in [UnderscoresAndSuffixes, Underscores, Suffixes, Nothing] {
            for escaping in [Escaping::AllowUtf8, Escaping::Underscores, Escaping::Dots, Escaping::Values] {
                let naming = Naming { namespace: namespace.clone(), strategy, escaping };
                let Some(shown) = naming.metric(&name, &unit, kind) else { continue };
                prop_assert!(!shown.is_empty() && !shown.contains('\0'));
                if strategy.escapes() || escaping != Escaping::AllowUtf8 {
                    prop_assert!(is_legacy_metric_name(&shown), "{shown:?} {naming:?}");
                }
                if let Some(word) = naming.unit(&unit, &shown) {
                    prop_assert!(shown.ends_with(&word));
                }
            }
        }
    }
}
