// SPDX-License-Identifier: Apache-2.0

//! Names held against those that prometheus/otlptranslator 1.0.0 and prometheus/common 0.73 gave for the same: a line a
//! case, `tests/data/prometheus/otlptranslator.jsonl`. Differences are the deliberate ones of `docs/prometheus.md`.

use super::escaping::Escaping;
use super::labels::PrometheusLabels;
use super::name::{Kind, Naming, Spelling, Strategy};

const RECORDED: &str = include_str!("../../../tests/data/prometheus/otlptranslator.jsonl");

const STRATEGIES: [Strategy; 4] = [
    Strategy::UnderscoresAndSuffixes,
    Strategy::Underscores,
    Strategy::Suffixes,
    Strategy::Nothing,
];

fn rows(of: &str) -> Vec<Vec<String>> {
    let path = std::env::var("TIDEGATE_TRANSLATOR_CASES").ok();
    let more = path.map(|path| std::fs::read_to_string(path).unwrap());
    let rows = more.as_deref().unwrap_or(RECORDED).lines();
    let rows = rows.map(|line| serde_json::from_str::<Vec<String>>(line).unwrap());
    let rows: Vec<_> = rows.filter(|row| row[0] == of).collect();
    assert!(rows.len() > 50, "{} rows of {of}", rows.len());
    rows
}

#[test]
fn metrics_are_called_what_the_translator_calls_them() {
    let mut differences = 0;
    for row in rows("metric") {
        let [_, name, unit, kind, namespace, theirs @ ..] = row.as_slice() else {
            panic!("{row:?}");
        };
        let kind = match kind.as_str() {
            "gauge" => Kind::Gauge,
            "updown" => Kind::UpDownCounter,
            "counter" => Kind::Counter,
            _ => Kind::Histogram,
        };
        for (strategy, theirs) in STRATEGIES.into_iter().zip(theirs) {
            let naming = Naming {
                namespace: namespace.clone(),
                strategy,
                escaping: Escaping::AllowUtf8,
            };
            let ours = naming.metric(name, unit, kind).unwrap_or_default();
            if ours != *theirs {
                assert!(
                    is_deliberate(name, strategy) || theirs == "_total",
                    "{strategy}: {name:?} {unit:?} {kind:?} {namespace:?} is {ours:?}, not {theirs:?}"
                );
                differences += 1;
            }
        }
    }
    assert!(
        differences > 0,
        "the cases have none of the deliberate differences"
    );
}

/// Where we mean to differ: nothing is left of the name.
fn is_deliberate(name: &str, strategy: Strategy) -> bool {
    strategy.escapes() && !name.contains(|c: char| c.is_ascii_alphanumeric() || c == ':')
}

#[test]
fn labels_are_called_what_the_translator_calls_them() {
    for row in rows("label") {
        let [_, key, legacy, utf8] = row.as_slice() else {
            panic!("{row:?}");
        };
        for (strategy, theirs) in [(Strategy::Underscores, legacy), (Strategy::Nothing, utf8)] {
            let naming = Naming {
                strategy,
                escaping: Escaping::AllowUtf8,
                ..Naming::default()
            };
            let mut labels = PrometheusLabels::new(&naming, Spelling::Otlp);
            labels.add(key, tidegate_engine::AttributeRef::Bool(true));
            let pairs = labels.into_pairs();
            let ours = pairs.first().map_or("", |(name, _)| name);
            // Names that begin with two underscores keep one; the translator does that too unless they end with two.
            let theirs: &str = if !theirs.starts_with("__") {
                theirs
            } else if strategy == Strategy::Underscores {
                &collapsed(theirs)
            } else {
                &format!("_{}", theirs.trim_start_matches('_'))
            };
            assert_eq!(ours, theirs, "{strategy}: {key:?}");
        }
    }
}

fn collapsed(name: &str) -> String {
    let mut chars: Vec<char> = name.chars().collect();
    chars.dedup_by(|a, b| (*a, *b) == ('_', '_'));
    chars.into_iter().collect()
}

#[test]
fn names_are_escaped_as_prometheus_common_does_it() {
    for row in rows("escape") {
        let [_, name, theirs @ ..] = row.as_slice() else {
            panic!("{row:?}");
        };
        let schemes = [Escaping::Underscores, Escaping::Dots, Escaping::Values];
        for (scheme, theirs) in schemes.into_iter().zip(theirs) {
            assert_eq!(scheme.metric(name.clone()), *theirs, "{scheme:?}: {name:?}");
        }
    }
}
