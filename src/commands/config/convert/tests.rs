// SPDX-License-Identifier: Apache-2.0

//! The output and the report of conversions.

mod collector;
mod prometheus;

use super::*;
use crate::commands::load::Kinds;
use crate::config::check_unresolved;
use crate::service::Plan;

/// The output, if there is one, and the report.
fn converted_with(text: &str, format: SourceFormat, urls: &[&str]) -> (Option<String>, String) {
    let mut problems = Problems::default();
    let loader = Loader::default().text("in.yaml", text);
    let root = loader.unresolved(&mut problems).unwrap();
    let mut report = Report::default();
    let urls: Vec<_> = urls.iter().map(|url| (*url).to_owned()).collect();
    let root = convert(root, format, &urls, &problems, &mut report);
    (
        root.map(|root| print_yaml(&root)),
        report.text(problems.sources()),
    )
}

/// The output, which the gateway accepts, and the report.
fn converted(text: &str, format: SourceFormat, urls: &[&str]) -> (String, String) {
    let (output, report) = converted_with(text, format, urls);
    let output = output.unwrap_or_else(|| panic!("nothing was converted: {report}"));
    let mut problems = Problems::default();
    let root = Loader::default()
        .text("out.yaml", output.as_str())
        .unresolved(&mut problems)
        .unwrap();
    let mut loaded = check_unresolved(&root, &Kinds, problems);
    let plan = Plan::resolve(&loaded.document.unwrap(), &mut loaded.problems);
    assert!(
        plan.is_some() && !loaded.problems.has_errors(),
        "{output}{}",
        loaded.problems
    );
    (output, report)
}

fn has_all(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

#[test]
fn a_file_without_a_valid_pipeline_gives_nothing() {
    for text in [
        "{receivers: {zipkin: }, exporters: {debug: }, service: {pipelines: {traces: {receivers: [zipkin], exporters: [debug]}}}}",
        "{receivers: {nop: }, exporters: {debug: }, service: {}}",
        "{service: {pipelines: {traces: {receivers: [a], exporters: [b]}}}}",
        "{service: 1}",
    ] {
        let (output, _) = converted_with(text, SourceFormat::Collector, &[]);
        assert_eq!(output, None, "{text}");
    }
    let (output, _) = converted_with("global: {}\nremote_write: []\n", SourceFormat::Prometheus, &[]);
    assert_eq!(output, None);
}

#[test]
fn the_sections_of_a_file_show_its_program() {
    let format_of = |text: &str, urls: &[&str], from: Option<SourceFormat>| {
        let root = crate::config::parse_text("in.yaml", text, &mut Problems::default()).unwrap();
        let args = ConvertArgs {
            file: PathBuf::new(),
            from,
            output: None,
            remote_write_urls: urls.iter().map(|url| (*url).to_owned()).collect(),
            with_admin: false,
            strict: false,
        };
        format(&args, &root).map_err(|failure| failure.to_string())
    };
    let guess = |text: &str, urls: &[&str]| format_of(text, urls, None).ok();
    assert_eq!(guess("service: {}", &[]), Some(SourceFormat::Collector));
    assert_eq!(guess("service: {}", &["http://a"]), None);
    assert_eq!(guess("global: {}", &[]), Some(SourceFormat::Prometheus));
    assert_eq!(
        guess("scrape_configs: []", &["http://a"]),
        Some(SourceFormat::Vmagent)
    );
    assert_eq!(guess("groups: []", &[]), None);
    assert_eq!(guess("{receivers: , scrape_configs: }", &[]), None);
    for (text, from, advice) in [
        ("receivers: {}", SourceFormat::Prometheus, "`--from collector`"),
        ("service: {}", SourceFormat::Vmagent, "`--from collector`"),
        ("alerting: {}", SourceFormat::Collector, "`--from prometheus` or"),
    ] {
        let why = format_of(text, &[], Some(from)).unwrap_err();
        assert!(why.contains(advice), "{text}: {why}");
        has_all(&why, &COLLECTOR_SECTIONS);
        has_all(&why, &PROMETHEUS_SECTIONS);
    }
    for from in [SourceFormat::Collector, SourceFormat::Prometheus] {
        let mixed = format_of("{receivers: , scrape_configs: }", &[], Some(from));
        assert_eq!(mixed, Ok(from));
    }
    let vmagent = format_of("global: {}", &[], Some(SourceFormat::Vmagent));
    assert_eq!(vmagent, Ok(SourceFormat::Vmagent));
}
