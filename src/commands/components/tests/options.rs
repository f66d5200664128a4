// SPDX-License-Identifier: Apache-2.0

//! Options have texts, and the documents have those without effect and the defaults.

use std::fmt::Write as _;

use super::*;
use crate::telemetry;

fn rows(component: &str, path: &str, options: &[OptionDoc], table: &mut String) {
    for option in options {
        let path = match path {
            "" => option.name.to_owned(),
            path => format!("{path}::{}", option.name),
        };
        if option.is_without_effect {
            writeln!(table, "| {component} | `{path}` | {} |", option.help).unwrap();
        }
        rows(component, &path, &option.nested(), table);
    }
}

/// `UPDATE_GOLDEN=1` writes the table.
#[test]
fn the_documentation_lists_every_option_without_effect() {
    let mut table = String::from("| component | option | why |\n| --- | --- | --- |\n");
    for about in all() {
        let component = format!("`{}` ({})", about.kind, about.class.as_str());
        rows(&component, "", &(about.config.docs)(), &mut table);
    }
    rows(
        "`service::telemetry`",
        "",
        &telemetry::TelemetryConfig::options(),
        &mut table,
    );
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/collector.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (before, rest) = text
        .split_once("<!-- options without effect: begin -->\n")
        .unwrap();
    let (_, after) = rest.split_once("<!-- options without effect: end -->").unwrap();
    let expected = format!(
        "{before}<!-- options without effect: begin -->\n\n{table}\n<!-- options without effect: end -->{after}"
    );
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &expected).unwrap();
    }
    assert!(
        std::fs::read_to_string(path).unwrap() == expected,
        "docs/collector.md should have\n{table}"
    );
}

fn without_text(path: &str, options: &[OptionDoc], found: &mut Vec<String>) {
    for option in options {
        let path = format!("{path}::{}", option.name);
        // A text of one word repeats the name.
        if option.help.split_whitespace().count() < 2 {
            found.push(path.clone());
        }
        without_text(&path, &option.nested(), found);
    }
}

#[test]
fn every_component_and_option_has_a_text() {
    let mut found = Vec::new();
    for about in all() {
        let path = format!("{}::{}", about.class.section(), about.kind);
        assert!(
            about.help.split_whitespace().count() > 2,
            "{path}: {}",
            about.help
        );
        without_text(&path, &(about.config.docs)(), &mut found);
    }
    without_text("service", &service::options(), &mut found);
    assert!(
        found.is_empty(),
        "write doc comments for these options, with units: {found:#?}"
    );
}

/// The option at a path such as `protocols::grpc`.
fn find(options: Vec<OptionDoc>, path: &str) -> Option<OptionDoc> {
    let (first, rest) = path
        .split_once("::")
        .map_or((path, None), |(first, rest)| (first, Some(rest)));
    let found = options.into_iter().find(|option| option.name == first)?;
    match rest {
        None => Some(found),
        Some(rest) => find(found.nested(), rest),
    }
}

#[test]
fn the_documentation_has_the_defaults_of_the_binary() {
    let text = include_str!("../../../../docs/collector.md");
    let (_, rest) = text.split_once("<!-- defaults: begin -->").unwrap();
    let (table, _) = rest.split_once("<!-- defaults: end -->").unwrap();
    let mut rows = 0;
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let words: Vec<&str> = row.split('`').collect();
        let (kind, path, here) = (words[1], words[3], words[5]);
        let mut known = all().into_iter();
        let about = known.find(|about| about.kind == kind && words[2].contains(about.class.as_str()));
        let option = about.and_then(|about| find((about.config.docs)(), path));
        let option = option.unwrap_or_else(|| panic!("no such option: {row}"));
        assert_eq!(option.default.as_deref(), Some(here), "{row}");
        rows += 1;
    }
    assert!(rows >= 20, "{rows} rows");
}
