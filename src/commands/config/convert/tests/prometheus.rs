// SPDX-License-Identifier: Apache-2.0

//! Files of Prometheus and vmagent: scrapes, remote writes, rules and alerts.

use super::*;

const PROMETHEUS: &str = "global:
  scrape_interval: 30s
  evaluation_interval: 15s
  external_labels: {cluster: a}
rule_files: [rules.yml]
alerting:
  alertmanagers: [{static_configs: [{targets: ['am:9093']}]}]
scrape_configs:
  - job_name: node
    static_configs: [{targets: ['localhost:9100']}]
    relabel_configs:
      - {source_labels: [__address__], regex: '(.*):.*', target_label: host, replacement: '${1}'}
remote_write:
  - url: https://mimir.example.com/api/v1/push
    name: mimir
    basic_auth: {username: u, password_file: /etc/p}
    tls_config: {ca_file: /etc/ca.pem, min_version: TLS12}
    write_relabel_configs: [{regex: x, action: labeldrop}]
  - url: https://other.example.com/write
    queue_config: {max_shards: 5, min_backoff: 1s}
";

#[test]
fn prometheus_becomes_a_receiver_and_an_exporter_for_each_remote_write() {
    let (output, report) = converted(PROMETHEUS, SourceFormat::Prometheus, &[]);
    has_all(
        &output,
        &[
            "replacement: \"$${1}\"",
            "    global:\n        scrape_interval: \"30s\"\n      scrape_configs:",
            "    external_labels:\n      cluster: a\n  prometheusremotewrite:\n",
            "    disable_scope_info: true\n    external_labels:\n      cluster: a\n  prometheus:\n",
            "    endpoint: \"127.0.0.1:9464\"\n    without_scope_info: true\n",
            "  prometheusremotewrite/mimir:\n    endpoint: \"https://mimir.example.com/api/v1/push\"",
            "authenticator: basicauth/mimir",
            "  basicauth/mimir:\n    client_auth:\n      username: u\n      password_file: /etc/p",
            "min_version: \"1.2\"",
            "initial_interval: \"1s\"",
            "  rules:\n    files:\n      - rules.yml\n    interval: \"15s\"\n    external_labels:\n      cluster: a\n",
            "    alertmanagers:\n      - endpoint: \"http://am:9093\"\n",
            "    metrics/rules:\n      receivers:\n        - rules\n",
        ],
    );
    has_all(
        &report,
        &[
            "note: rules read the metrics of the exporter `prometheus`",
            "note: `admin` keeps the history that the rules read",
            "note: the exporters omit labels `otel_scope_*`",
            "in.yaml:18: remote_write[0]::write_relabel_configs: not in tidegate: use `metric_relabel_configs`",
            "in.yaml:20: remote_write[1]::queue_config::max_shards: not in tidegate: use `sending_queue`",
        ],
    );
    assert_eq!(report.lines().count(), 5, "{report}");
    assert!(!output.contains("evaluation_interval"), "{output}");
}

#[test]
fn alerting_becomes_alertmanagers_with_credentials_and_relabelling() {
    let text = "global: {evaluation_interval: 15s, rule_query_offset: 1s}
rule_files: [a.yml]
alerting:
  alert_relabel_configs:
    - {source_labels: [a], target_label: b, replacement: '${1}'}
    - {source_labels: [a], action: drop, if: x}
  alertmanagers:
    - {static_configs: [{targets: ['a:9093', 'b:9093']}], basic_auth: {username: u, password_file: /p}, api_version: v2}
    - scheme: https
      path_prefix: /am
      timeout: 5s
      tls_config: {ca_file: /ca.pem}
      authorization: {credentials_file: /t}
      static_configs: [{targets: ['c:9093']}]
      alert_relabel_configs: [{action: labeldrop, regex: replica}]
    - {static_configs: [{targets: ['d:9093']}], tls_config: {min_version: TLS99}}
    - {dns_sd_configs: [{names: [e]}], authorization: {credentials: t0ken}}
    - {static_configs: [{targets: ['f:9093'], labels: {__scheme__: https}}]}
scrape_configs: [{job_name: a, static_configs: [{targets: ['b:1']}]}]
";
    let (output, report) = converted(text, SourceFormat::Prometheus, &[]);
    has_all(
        &output,
        &[
            "endpoint: \"http://a:9093\"\n        auth:\n          authenticator: basicauth/alertmanager\n",
            "endpoint: \"http://b:9093\"\n        auth:\n          authenticator: basicauth/alertmanager\n",
            "endpoint: \"https://c:9093\"\n",
            "ca_file: /ca.pem",
            "authenticator: bearertokenauth/alertmanager",
            "action: labeldrop",
            "replacement: \"$${1}\"",
            "query_offset: \"1s\"",
        ],
    );
    for absent in ["d:9093", "action: drop", "t0ken"] {
        assert!(!output.contains(absent), "{absent}: {output}");
    }
    has_all(
        &report,
        &[
            "in.yaml:6: ",
            "in.yaml:16: ",
            "so all of `extensions::rules::alertmanagers[3]` is left out",
            "in.yaml:17: alerting::alertmanagers[3]::dns_sd_configs: not in tidegate: name the addresses",
            "in.yaml:18: alerting::alertmanagers[4]::static_configs[0]::labels: not in tidegate: name the addresses",
        ],
    );
}

#[test]
fn alerting_without_rules_is_left_out() {
    let text = "alerting: {alertmanagers: [{static_configs: [{targets: ['a:9093']}]}]}
scrape_configs: [{job_name: a, static_configs: [{targets: ['b:1']}]}]
";
    let (output, report) = converted(text, SourceFormat::Prometheus, &[]);
    has_all(&report, &["in.yaml:1: alerting: "]);
    assert!(!output.contains("9093") && !output.contains("rules"), "{output}");
}

#[test]
fn without_remote_write_there_is_a_page() {
    let text = "scrape_configs: [{job_name: a, static_configs: [{targets: ['b:1']}]}]";
    let (output, report) = converted(text, SourceFormat::Prometheus, &[]);
    has_all(
        &output,
        &["exporters:\n  prometheus:\n    endpoint: \"127.0.0.1:9464\"\n    without_scope_info: true\n"],
    );
    assert!(
        report.starts_with("note: ") && report.lines().count() == 2,
        "{report}"
    );
}

#[test]
fn external_labels_are_only_where_something_leaves() {
    let text = "global: {external_labels: {cluster: a}}
scrape_configs: [{job_name: a, static_configs: [{targets: ['b:1']}]}]
";
    let (output, report) = converted(text, SourceFormat::Prometheus, &[]);
    assert!(!output.contains("cluster"), "{output}");
    has_all(
        &report,
        &["in.yaml:1: global::external_labels: only remote writes and alerts have these labels"],
    );
    let with_rules = format!("rule_files: [a.yml]\n{text}");
    let (output, report) = converted(&with_rules, SourceFormat::Prometheus, &[]);
    assert_eq!(output.matches("cluster: a").count(), 1, "{output}");
    assert!(!report.contains("external_labels"), "{report}");
    // vmagent adds them when it scrapes.
    let (output, report) = converted(text, SourceFormat::Vmagent, &["http://a/write"]);
    has_all(
        &output,
        &["    global:\n        external_labels:\n          cluster: a\n"],
    );
    assert_eq!(output.matches("cluster: a").count(), 1, "{output}");
    assert!(!report.contains("external_labels"), "{report}");
}

#[test]
fn a_job_that_loses_all_discovery_is_left_out() {
    let text = "scrape_configs:
  - {job_name: first, consul_sd_configs: [{server: a}], nomad_sd_configs: [{server: a}]}
  - {job_name: second, consul_sd_configs: [{server: a}], static_configs: [{targets: ['b:1']}]}
  - {job_name: third, consul_sd_configs: [{server: a}], static_configs: []}
  - {job_name: empty}
";
    let (output, report) = converted(text, SourceFormat::Prometheus, &[]);
    has_all(&output, &["job_name: second", "job_name: empty", "\"b:1\""]);
    for gone in ["first", "third", "consul"] {
        assert!(!output.contains(gone), "{gone}: {output}");
    }
    let why = "left out: no discovery of targets is left in this job";
    has_all(
        &report,
        &[
            "in.yaml:2: scrape_configs[0]::consul_sd_configs: ",
            "in.yaml:3: scrape_configs[1]::consul_sd_configs: ",
            &format!("in.yaml:2: scrape_configs[0]: {why}\n"),
            &format!("in.yaml:4: scrape_configs[2]: {why}\n"),
        ],
    );
    assert_eq!(report.matches(why).count(), 2, "{report}");
}

#[test]
fn vmagent_has_urls_of_its_command_line_and_variables_of_its_own() {
    let text = "scrape_configs:
  - job_name: a
    stream_parse: true
    static_configs: [{targets: ['%{HOST}:1']}]
    relabel_configs: [{action: drop, if: '{x=\"y\"}'}, {target_label: b, replacement: c}]
";
    let urls = ["http://vm-a:8428/api/v1/write", "http://vm-b:8428/api/v1/write"];
    let (output, report) = converted(text, SourceFormat::Vmagent, &urls);
    has_all(
        &output,
        &[
            "\"${env:HOST}:1\"",
            "  prometheusremotewrite:\n    endpoint: \"http://vm-a:8428/api/v1/write\"\n",
            "  prometheusremotewrite/2:\n    endpoint: \"http://vm-b:8428/api/v1/write\"\n",
            "target_label: b",
        ],
    );
    assert!(
        !output.contains("drop") && !output.contains("stream_parse"),
        "{output}"
    );
    has_all(
        &report,
        &[
            "in.yaml:3: scrape_configs[0]::stream_parse: unknown key",
            "in.yaml:5: scrape_configs[0]::relabel_configs[0]::if: unknown key",
        ],
    );
}
