// SPDX-License-Identifier: Apache-2.0

//! `tidegate test`: the tests of every example configuration, and of a small one that uses all that a file can say.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::examples::{example_rules, examples};
use super::kit::command::{Finished, finished};
use super::kit::gateway::tidegate;

/// `tidegate test` with these arguments.
fn test(arguments: &[&Path]) -> Finished {
    finished(tidegate().arg("test").args(arguments))
}

#[test]
fn every_example_has_tests_that_pass() {
    let mut tests: Vec<PathBuf> = Vec::new();
    for example in examples() {
        let test = example.with_extension("test.yaml");
        assert!(test.is_file(), "{} is missing", test.display());
        tests.push(test);
    }
    tests.push(example_rules());
    let directory = TempDir::new().expect("a temporary directory");
    let junit = directory.path().join("results.xml");
    let mut arguments: Vec<&Path> = tests.iter().map(PathBuf::as_path).collect();
    arguments.extend([Path::new("--junit"), junit.as_path()]);
    let Finished { code, output, errors } = test(&arguments);
    assert!(code == Some(0) && errors.is_empty(), "{output}{errors}");
    let xml = fs::read_to_string(&junit).expect("the results");
    assert_eq!(xml.matches("<testsuite ").count(), tests.len(), "{xml}");
    assert!(xml.matches("<testcase ").count() >= tests.len() && !xml.contains("<failure"));
}

const CONFIGURATION: &str = r#"receivers:
  otlp: {protocols: {http: {endpoint: "127.0.0.1:4318"}}}
  uds: {datagram: {path: /nonexistent/socket}}
processors:
  filter: {metrics: {exclude: {metric_names: [noise]}}}
  composite:
    composites:
      - {name: recent, metric: hits, function: sum, window: 10s, thresholds: [{above: 99, webhook: {endpoint: "http://127.0.0.1:1"}}]}
  aggregate: {storage: file_storage, rules: [{match: {name: "*"}, without: []}]}
exporters:
  prometheus: {endpoint: "127.0.0.1:9464"}
  otlphttp: {endpoint: "http://127.0.0.1:1"}
  otlphttp/unchanged: {endpoint: "http://127.0.0.1:1"}
extensions: {file_storage: {directory: "${env:STORAGE}"}, health_check: {endpoint: "${env:HEALTH:-127.0.0.1:1}"}}
service:
  extensions: [file_storage, health_check]
  pipelines:
    metrics: {receivers: [otlp, uds], processors: [filter, composite, aggregate], exporters: [prometheus, otlphttp]}
    metrics/unchanged: {receivers: [otlp], exporters: [otlphttp/unchanged]}
    logs: {receivers: [otlp], exporters: [otlphttp]}
"#;

const HEAD: &str = "config: gateway.yaml\nenv: {STORAGE: /nonexistent}\ntests:\n";

/// A directory with the configuration and a file of tests.
fn files(tests: &str) -> (TempDir, PathBuf) {
    let directory = TempDir::new().expect("a temporary directory");
    fs::write(directory.path().join("gateway.yaml"), CONFIGURATION).expect("written");
    let file = directory.path().join("gateway.test.yaml");
    fs::write(&file, tests).expect("written");
    (directory, file)
}

/// Cases about what happens to sources, points and the gateway.
const CASES: &str = r"  - name: a restart keeps totals
    input:
      - {at: 1s, to: uds, source: a, events: [{name: hits, value: 2, count: 3}]}
      - {at: 5s, restart: true}
      - {at: 6s, to: uds, source: a, events: [{name: hits}]}
    expect:
      - {at: 2s, page: prometheus, lines: [hits_total 6]}
      - {at: 2s, query: sum(hits_total), value: 6}
      - {at: 2s, composite: recent, value: 6, state: fresh}
      - {at: 7s, page: prometheus, lines: [hits_total 7]}
  - name: a second restart keeps points, and a composite begins again
    input:
      - {at: 1s, to: uds, source: a, events: [{name: hits, value: 2}]}
      - {at: 1s, to: otlp, points: [{name: jobs, type: counter, value: 3}]}
      - {at: 2s, restart: true}
      - {at: 3s, restart: true}
    expect:
      - {at: 4s, page: prometheus, lines: [hits_total 2, jobs_total 3]}
      - {at: 4s, composite: recent, state: absent}
  - name: a composite is idle after the end of its source, and stale after its lease
    input:
      - {every: 1s, to: uds, source: a, events: [{name: hits}]}
      - {at: 20s, dead: a}
    expect:
      - {at: 19s, composite: recent, value: 10, state: fresh, stale: false}
      - {at: 35s, composite: recent, value: 0, state: idle, stale: false}
      - {at: 55s, composite: recent, state: stale, stale: true}
  - name: a dead source sends no more
    input:
      - {every: 1s, to: uds, source: a, events: [{name: hits}]}
      - {at: 5s, dead: a}
    expect:
      - {at: 10s, page: prometheus, lines: [hits_total 5]}
      - {at: 10s, exporter: otlphttp, points: [{name: hits, value: 5, temporality: cumulative}]}
  - name: the successor of a source continues its total
    input:
      - {to: uds, source: a, events: [{name: hits}]}
      - {at: 1s, reset: a}
      - {at: 2s, to: uds, source: a, events: [{name: hits}]}
    expect:
      - {at: 3s, page: prometheus, lines: [hits_total 2], absent: [jobs_total]}
  - name: a point that comes twice counts once
    input:
      - {at: 1s, to: otlp, points: [{name: jobs, type: counter, value: 3}]}
      - {at: 2s, to: otlp, points: [{name: jobs, type: counter, value: 3, late: 1s}]}
    expect:
      - {at: 3s, page: prometheus, lines: [jobs_total 3]}
      - {at: 3s, dropped: {component: aggregate, reason: late, items: 0}}
  - name: an older level is late
    input:
      - {at: 2s, to: otlp, points: [{name: level, value: 5}]}
      - {at: 3s, to: otlp, points: [{name: level, value: 4, late: 2s}]}
    expect:
      - {at: 4s, page: prometheus, lines: [level 5]}
      - {at: 4s, exporter: otlphttp, points: [{name: level, value: 5}, {name: level, value: 4, absent: true}]}
      - {at: 4s, exporter: otlphttp/unchanged, points: [{name: level, value: 5}], items: 2}
      - {at: 4s, dropped: {component: aggregate, reason: late, items: 1}}
  - name: noise is filtered, and logs pass
    input:
      - {to: otlp, points: [{name: noise, value: 1}]}
      - {to: otlp, otlp: {resourceLogs: [{scopeLogs: [{logRecords: [{timeUnixNano: now, body: {stringValue: hello}}]}]}]}}
    expect:
      - {at: 1s, dropped: {component: filter, reason: filtered, items: 1}}
      - {at: 1s, query: noise, empty: true}
      - {at: 1s, exporter: otlphttp, contains: [hello], absent: [noise]}
";

#[test]
fn restarts_dead_sources_resets_and_late_points_are_as_in_a_gateway() {
    let (_directory, file) = files(&(HEAD.to_owned() + CASES));
    let Finished { code, output, errors } = test(&[&file]);
    assert!(code == Some(0) && errors.is_empty(), "{output}{errors}");
    assert!(
        output.contains("note  extensions::health_check is not started"),
        "{output}"
    );
    assert!(
        output.contains("note  processors::composite sends no webhooks"),
        "{output}"
    );
    assert!(output.ends_with("8 passed, 0 failed\n"), "{output}");
}

#[test]
fn run_names_the_tests_to_run_by_a_part_of_their_names() {
    let (_directory, file) = files(&(HEAD.to_owned() + CASES));
    let some = test(&[&file, Path::new("--run"), Path::new("noise")]);
    assert!(some.output.ends_with("1 passed, 0 failed\n"), "{}", some.output);
    let none = test(&[&file, Path::new("--run"), Path::new("nosuch")]);
    assert_eq!(none.code, Some(1));
    assert!(
        none.errors.contains("no test has `nosuch` in its name"),
        "{}",
        none.errors
    );
}

#[test]
fn a_note_says_that_scraped_series_are_not_relabelled() {
    let tests = HEAD.to_owned()
        + "  - {name: a, input: [{text: 'go_gc 1'}], expect: [{at: 1s, exporter: debug, points: [{name: go_gc, value: 1}]}]}\n";
    let (directory, file) = files(&tests);
    let config = r"receivers:
  prometheus:
    config:
      scrape_configs:
        - job_name: a
          static_configs: [{targets: ['127.0.0.1:1']}]
          metric_relabel_configs: [{source_labels: [__name__], regex: go_.*, action: drop}]
exporters: {debug: }
service: {pipelines: {metrics: {receivers: [prometheus], exporters: [debug]}}}
";
    fs::write(directory.path().join("gateway.yaml"), config).expect("written");
    let Finished { code, output, .. } = test(&[&file]);
    assert_eq!(code, Some(0), "{output}");
    let note = "  note  receivers::prometheus does not apply `metric_relabel_configs` to inputs\n";
    assert!(output.contains(note), "{output}");
}

#[test]
fn queries_reach_as_far_back_as_the_rules_of_the_configuration() {
    let tests = HEAD.to_owned()
        + "  - name: a
    input:
      - {at: 1s, to: otlp, points: [{name: depth, value: 9}]}
      - {at: 1m, every: 1m, to: otlp, points: [{name: depth, value: 1}]}
    expect:
      - {at: 20m, query: 'max_over_time(depth[20m])', value: 9}
";
    let (directory, file) = files(&tests);
    let rules = directory.path().join("rules.yaml");
    let rule = "{record: depth:max1h, expr: 'max_over_time(depth[1h])'}";
    fs::write(&rules, format!("groups: [{{name: a, rules: [{rule}]}}]\n")).expect("written");
    let config = format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:4318\"}}}}}}}}
exporters: {{prometheus: {{endpoint: \"127.0.0.1:9464\"}}}}
extensions: {{admin: {{endpoint: \"127.0.0.1:8080\"}}, rules: {{files: [\"{}\"]}}}}
service:
  extensions: [admin, rules]
  pipelines: {{metrics: {{receivers: [otlp], exporters: [prometheus]}}}}
",
        rules.display()
    );
    fs::write(directory.path().join("gateway.yaml"), config).expect("written");
    let Finished { code, output, errors } = test(&[&file]);
    assert_eq!(code, Some(0), "{output}{errors}");
}

#[test]
fn the_test_in_the_documentation_passes() {
    let page = include_str!("../../docs/testing.md");
    let (_, rest) = page.split_once("```yaml\n").expect("an example");
    let (tests, _) = rest.split_once("```").expect("its end");
    let (directory, file) = files(tests);
    let config = include_str!("../../config/nixl-to-prometheus.yaml");
    fs::write(directory.path().join("gateway.yaml"), config).expect("written");
    let Finished { code, output, errors } = test(&[&file]);
    assert!(code == Some(0) && errors.is_empty(), "{output}{errors}");
    assert!(
        output.contains("  pass  the transfers of two agents add up ("),
        "{output}"
    );
}

/// Expectations that do not hold, and what the command says instead.
const WRONG: [(&str, &str); 33] = [
    (
        "exporter: otlphttp, points: [{name: hits, value: 5}]",
        "hits{} value 6 cumulative",
    ),
    ("exporter: otlphttp, points: [{name: hots}]", "got no `hots`"),
    (
        "exporter: otlphttp, points: [{name: hits, absent: true}]",
        "got series of `hits`",
    ),
    (
        "exporter: otlphttp, contains: [nosuch]",
        "no request of `otlphttp` has `nosuch`",
    ),
    (
        "exporter: otlphttp, points: [{name: hits, attributes: {a: b}}]",
        "no such series of `hits`",
    ),
    (
        "exporter: otlphttp, points: [{name: hits, resource: {a: b}}]",
        "no such series of `hits`",
    ),
    (
        "exporter: otlphttp, points: [{name: hits, temporality: delta}]",
        "hits{} value 6 cumulative",
    ),
    (
        "exporter: otlphttp, points: [{name: hits, count: 1}]",
        "no such series of `hits`",
    ),
    (
        "exporter: otlphttp, points: [{name: hits, sum: 6}]",
        "no such series of `hits`",
    ),
    (
        "exporter: otlphttp, items: 0",
        "expected 0 items, `otlphttp` got ",
    ),
    (
        "exporter: otlphttp, absent: [hits]",
        "a request of `otlphttp` has `hits`",
    ),
    (
        "exporter: prometheus, items: 1",
        "`prometheus` shows a page: use `page: prometheus`",
    ),
    (
        "exporter: nosuch, items: 1",
        "no pipeline has an exporter `nosuch`; there are `otlphttp`, `otlphttp/unchanged`, `prometheus`",
    ),
    ("exporter: otlphtp, items: 1", "did you mean `otlphttp`?"),
    ("page: prometheus, lines: [hits_total 5]", "hits_total 6"),
    ("page: prometheus, absent: [hits]", "lines that begin with `hits`"),
    ("page: prometheus, exactly: hits_total 5", "- hits_total 5"),
    (
        "page: nosuch, lines: [a]",
        "no pipeline has a `prometheus` exporter `nosuch`",
    ),
    ("query: hits_total, empty: true", "the result is:"),
    ("query: nosuch, empty: false", "the result is empty"),
    ("query: hits_total, value: 5", "{} 6"),
    ("query: hits_total, series: [{labels: {a: b}, value: 6}]", "{} 6"),
    ("query: hits_total, value: 6, series: []", "{} 6"),
    ("query: 'hits_total{', value: 1", "parse error"),
    (
        "query: hots_total, value: 1",
        "metric \"hots_total\" is not known",
    ),
    ("composite: recent, value: 5", "recent{} 6, fresh"),
    ("composite: recent, stale: true", "recent{} 6, fresh"),
    ("composite: recent, state: idle", "recent{} 6, fresh"),
    (
        "composite: recent, labels: {a: b}, stale: false",
        "recent{} 6, fresh",
    ),
    (
        "composite: nosuch, value: 5",
        "no composite has the name `nosuch`",
    ),
    (
        "dropped: {component: nosuch, reason: late, items: 0}",
        "no pipeline has a component `nosuch`",
    ),
    (
        "dropped: {component: filter, reason: nosuch, items: 0}",
        "`nosuch` is not a reason",
    ),
    (
        "dropped: {component: filter, reason: filtered, items: 5}",
        "expected 5 items dropped by `filtered`. No item is dropped",
    ),
];

#[test]
fn an_expectation_that_fails_shows_its_position_and_what_is_there() {
    let mut tests = HEAD.to_owned()
        + "  - name: good
    input: [{to: uds, events: [{name: hits, value: 6}]}]
    expect: [{at: 1s, query: hits_total, value: 6}]
  - name: bad
    input:
      - {to: uds, events: [{name: hits, value: 6}]}
    expect:
";
    let first = tests.lines().count() + 1;
    for (expectation, _) in WRONG {
        tests += &format!("      - {{at: 2s, {expectation}}}\n");
    }
    let (directory, file) = files(&tests);
    let junit = directory.path().join("results.xml");
    let Finished { code, output, errors } = test(&[&file, Path::new("--junit"), &junit]);
    assert!(code == Some(1) && errors.is_empty(), "{output}{errors}");
    assert!(
        output.contains("  pass  good (") && output.contains("  FAIL  bad\n"),
        "{output}"
    );
    assert!(output.ends_with("1 passed, 1 failed\n"), "{output}");
    for ((expectation, reason), line) in WRONG.into_iter().zip(first..) {
        let position = format!("{}:{line}:", file.display());
        let (_, message) = output.split_once(&position).unwrap_or_else(|| {
            panic!("nothing about {expectation} in line {line}: {output}");
        });
        let message = message
            .split(&*file.display().to_string())
            .next()
            .expect("a message");
        assert!(message.contains(reason), "{expectation}: {message}");
    }
    let xml = fs::read_to_string(&junit).expect("the results");
    assert!(xml.contains("<testsuites tests=\"2\" failures=\"1\""), "{xml}");
    assert_eq!(xml.matches("<failure message=").count(), 1, "{xml}");
    assert!(xml.contains("expected 5 items dropped by `filtered`"), "{xml}");
}

#[test]
fn an_invalid_input_is_reported_once_and_without_expectations() {
    let tests = HEAD.to_owned()
        + "  - name: a
    input:
      - {every: 1s, times: 3, points: [{name: hits, value: 1}]}
      - {to: nosuch, every: 1s, times: 3, points: [{name: hits, value: 1}]}
    expect:
      - {at: 5s, query: hits, value: 1}
";
    let (_directory, file) = files(&tests);
    let Finished { code, output, .. } = test(&[&file]);
    assert_eq!(code, Some(1), "{output}");
    for part in [
        "`to` is missing: expected one of otlp, uds",
        "no pipeline has a receiver `nosuch`: expected one of otlp, uds",
    ] {
        assert_eq!(output.matches(part).count(), 1, "{part}: {output}");
    }
    assert_eq!(output.matches(": error: ").count(), 2, "{output}");
}

#[test]
fn a_file_that_is_not_a_file_of_tests_is_refused_with_the_reason() {
    let table = [
        ("config: gateway.yaml\ntest: []\n", "unknown key"),
        (
            "config: gateway.yaml\ntests: []\n",
            "a file without a test tests nothing",
        ),
        (
            "config: gateway.yaml\ntests: [{name: a, expect: []}]\n",
            "without an expectation",
        ),
        (
            "config: gateway.yaml\ntests: [{name: a, expect: [{at: 1s, page: p, query: q}]}]\n",
            "expected one of `exporter`",
        ),
        (
            "config: gateway.yaml\ntests: [{name: a, expect: [{at: 1s, query: q, lines: [a]}]}]\n",
            "does not go with `query`",
        ),
        (
            "config: gateway.yaml\ntests: [{name: a, input: [{at: 1s}], expect: [{at: 1s, query: q, empty: true}]}]\n",
            "expected one of `events`",
        ),
        (
            "config: gateway.yaml\ntests: [{name: a, expect: [{at: 1s, composite: c, state: old}]}]\n",
            "`old` is not a state: expected one of fresh",
        ),
        (
            "config: gateway.yaml\ntests: [{name: a, input: [{dead: b}], expect: [{at: 1s, query: q, empty: true}]}]\n",
            "no input has `source: b`",
        ),
        (
            "config: gateway.yaml\ntests: [{name: a, input: [{down: b}], expect: [{at: 1s, query: q, empty: true}]}]\n",
            "no input has `source: b`",
        ),
        (
            "config: gateway.yaml\ntests: [{name: a, input: [{source: b, text: ''}, {down: b}], expect: [{at: 1s, query: q, empty: true}]}]\n",
            "`b` is not a target: it needs `text`, with `job` and `instance` in its `labels`",
        ),
        (
            "config: gateway.yaml\ntests: [{name: a, input: [{every: 1s, down: b}], expect: [{at: 1s, query: q, empty: true}]}]\n",
            "does not go with `down`",
        ),
        (
            "config: gateway.yaml\ntests: [{name: a, input: [{at: 2s, text: ''}], expect: [{at: 1s, query: q, empty: true}]}]\n",
            "comes after the last expectation",
        ),
        (
            "config: gateway.yaml\ntests: [{name: a, input: [{points: [{name: a, value: 1}], labels: {a: b}}], expect: [{at: 1s, query: q, empty: true}]}]\n",
            "needs `text`",
        ),
        ("config: [\n", "not valid YAML"),
        (
            "rule_files: []\ntests: []\n",
            "a file without a test tests nothing",
        ),
        (
            "rule_files: [gateway.yaml]\ntests: [{name: a}]\n",
            "gateway.yaml:1",
        ),
        ("rule_files: [a.yaml]\ntest: []\n", "field test not found"),
        (
            "config: nosuch.yaml\ntests: [{name: a, expect: [{at: 1s, query: q, empty: true}]}]\n",
            "nosuch.yaml",
        ),
    ];
    for (text, reason) in table {
        let (_directory, file) = files(text);
        let Finished { code, output, .. } = test(&[&file]);
        assert_eq!(code, Some(1), "{text}{output}");
        assert!(output.contains(reason), "{text}{output}");
    }
    assert_eq!(test(&[]).code, Some(2));
    let missing = test(&[Path::new("/nonexistent/file")]);
    assert_eq!(missing.code, Some(1));
    assert!(
        missing.output.contains("/nonexistent/file: "),
        "{}",
        missing.output
    );
}

/// A copy of the rules and of their tests in a directory of its own, with more text behind.
fn rule_tests(more: &str) -> (TempDir, PathBuf) {
    let directory = TempDir::new().expect("a temporary directory");
    let rules = include_str!("../../crates/tidegate-rules/tests/data/mixins.yaml");
    let tests = include_str!("../../crates/tidegate-rules/tests/data/mixins_test.yaml");
    fs::write(directory.path().join("mixins.yaml"), rules).expect("written");
    let file = directory.path().join("mixins_test.yaml");
    fs::write(&file, tests.to_owned() + more).expect("written");
    (directory, file)
}

#[test]
fn tests_of_promtool_run_unchanged() {
    let (directory, file) = rule_tests("");
    let junit = directory.path().join("results.xml");
    let Finished { code, output, errors } = test(&[&file, Path::new("--junit"), &junit]);
    assert!(code == Some(0) && errors.is_empty(), "{output}{errors}");
    assert!(output.contains("  pass  a node that goes down ("), "{output}");
    assert!(output.ends_with("3 passed, 0 failed\n"), "{output}");
    let xml = fs::read_to_string(&junit).expect("the results");
    assert_eq!(xml.matches("<testcase ").count(), 3, "{xml}");
    let some = test(&[&file, Path::new("--run"), Path::new("load per core")]);
    assert!(some.output.ends_with("1 passed, 0 failed\n"), "{}", some.output);
}

#[test]
fn results_that_can_not_be_written_are_known_before_the_tests() {
    let (directory, file) = rule_tests("");
    let junit = directory.path().join("missing/results.xml");
    let Finished { code, output, errors } = test(&[&file, Path::new("--junit"), &junit]);
    assert_eq!((code, output.as_str()), (Some(1), ""), "{errors}");
    assert!(errors.contains("missing/results.xml"), "{errors}");
}

#[test]
fn a_failing_test_of_rules_shows_both_sides_and_notes_a_missing_file() {
    let wrong = "  - alert_rule_test: [{eval_time: 1m, alertname: Watchdog}]\n";
    let (directory, file) = rule_tests(wrong);
    let junit = directory.path().join("results.xml");
    let Finished { code, output, errors } = test(&[&file, Path::new("--junit"), &junit]);
    assert!(code == Some(1) && errors.is_empty(), "{output}{errors}");
    assert!(output.contains("  FAIL  test 4\n"), "{output}");
    assert!(
        output.contains("alertname: Watchdog, time: 1m, ") && output.contains("exp:[]"),
        "{output}"
    );
    assert!(output.ends_with("3 passed, 1 failed\n"), "{output}");
    let xml = fs::read_to_string(&junit).expect("the results");
    assert_eq!(xml.matches("<failure message=").count(), 1, "{xml}");
    let missing = directory.path().join("missing_test.yaml");
    fs::write(
        &missing,
        "rule_files: ['nosuch/*.yaml']\ntests:\n- promql_expr_test: [{expr: '1', eval_time: 1m, exp_samples: [{labels: '{}', value: 1}]}]\n",
    )
    .expect("written");
    let Finished { code, output, .. } = test(&[&missing]);
    assert_eq!(code, Some(0), "{output}");
    assert!(
        output.contains("note  no rule file matches nosuch/*.yaml"),
        "{output}"
    );
}
