// SPDX-License-Identifier: Apache-2.0

//! The output and the report of conversions.

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

fn of_collector(text: &str) -> (String, String) {
    converted(text, SourceFormat::Collector, &[])
}

fn has_all(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

#[test]
fn a_file_of_known_components_stays_as_it_is() {
    let text = "receivers:
  otlp:
    protocols:
      grpc:
        endpoint: \"${env:LISTEN}:4317\"
exporters:
  otlphttp:
    endpoint: \"${env:ENDPOINT}\"
    headers:
      x-key: \"${env:KEY}\"
service:
  pipelines:
    traces:
      receivers:
        - otlp
      exporters:
        - otlphttp
";
    let (output, report) = of_collector(text);
    assert_eq!((output.as_str(), report.as_str()), (text, ""));
}

#[test]
fn foreign_components_and_pipelines_without_receivers_are_named() {
    let (output, report) = of_collector(
        "receivers:
  otlp: {protocols: {grpc: }}
  hostmetrics: {scrapers: {cpu: }}
processors: {transform: {}}
exporters: {debug: }
extensions: {opamp: {}}
service:
  extensions: [opamp]
  pipelines:
    metrics: {receivers: [hostmetrics], exporters: [debug]}
    logs: {receivers: [otlp, hostmetrics], processors: [transform], exporters: [debug]}
    profiles: {receivers: [otlp], exporters: [debug]}
",
    );
    has_all(
        &report,
        &[
            "in.yaml:3: receivers::hostmetrics: not in tidegate: run an exporter",
            "in.yaml:4: processors::transform: not in tidegate: OTTL",
            "in.yaml:6: extensions::opamp: not in tidegate: leave it out",
            "in.yaml:10: service::pipelines::metrics: left out: no receiver is left",
            "in.yaml:12: service::pipelines::profiles: not in tidegate: ",
        ],
    );
    assert_eq!(report.lines().count(), 5, "{report}");
    for gone in ["hostmetrics", "transform", "opamp", "metrics:", "profiles"] {
        assert!(!output.contains(gone), "{gone} in {output}");
    }
}

#[test]
fn pipelines_that_lose_their_sampling_are_named() {
    let (output, report) = of_collector(
        "receivers: {otlp: {protocols: {grpc: }}}
processors: {probabilistic_sampler/ten: {sampling_percentage: 10}, batch: }
exporters: {debug: }
service:
  pipelines:
    traces: {receivers: [otlp], processors: [batch, probabilistic_sampler/ten], exporters: [debug]}
    logs: {receivers: [otlp], processors: [batch], exporters: [debug]}
",
    );
    has_all(
        &report,
        &[
            "in.yaml:2: processors::probabilistic_sampler/ten: not in tidegate: ",
            "in.yaml:6: service::pipelines::traces::processors[1]: the pipeline `traces` loses the sampling of",
        ],
    );
    assert_eq!(report.lines().count(), 2, "{report}");
    assert!(!output.contains("sampler"), "{output}");
}

#[test]
fn unknown_options_go_alone_and_rules_as_a_whole() {
    let (output, report) = of_collector(
        "receivers: {otlp: {protocols: {grpc: }, no_such: 1}}
processors:
  attributes:
    actions:
      - {key: a, action: insert, value: b}
      - {key: c, action: delete, no_such: 1}
exporters: {debug: {verbose: detailed}}
service: {pipelines: {logs: {receivers: [otlp], processors: [attributes], exporters: [debug]}}}
",
    );
    has_all(
        &report,
        &[
            "in.yaml:1: receivers::otlp::no_such: unknown key",
            "in.yaml:6: processors::attributes::actions[1]::no_such: unknown key",
            "so all of `processors::attributes::actions[1]` is left out",
            "in.yaml:7: exporters::debug::verbose: unknown key \"verbose\"; did you mean `verbosity`?",
        ],
    );
    has_all(&output, &["key: a", "debug: {}"]);
    assert!(
        !output.contains("no_such") && !output.contains("key: c"),
        "{output}"
    );
}

#[test]
fn a_receiver_that_loses_its_authentication_is_left_out() {
    let text = "receivers:
  otlp: {protocols: {grpc: {auth: {authenticator: oidc}}}}
  nop:
exporters: {debug: , otlphttp: {endpoint: 'http://a', auth: {authenticator: oauth2client}}}
extensions: {oidc: {}, oauth2client: {}}
service:
  extensions: [oidc, oauth2client]
  pipelines: {logs: {receivers: [otlp, nop], exporters: [debug, otlphttp]}}
";
    let (output, report) = of_collector(text);
    has_all(
        &report,
        &[
            "so all of `receivers::otlp` is left out",
            "exporters::otlphttp::auth: ",
        ],
    );
    assert!(!output.contains("otlp:") && !output.contains("auth"), "{output}");
    has_all(&output, &["- nop", "- otlphttp"]);
}

#[test]
fn vendor_exporters_become_otlphttp_with_a_variable_as_endpoint() {
    let (output, report) = of_collector(
        "receivers: {nop: }
exporters:
  datadog/eu:
    api: {key: \"${env:DD_API_KEY}\", site: datadoghq.eu}
    hostname: h
    sending_queue: {queue_size: 10}
service: {pipelines: {metrics: {receivers: [nop], exporters: [datadog/eu]}}}
",
    );
    has_all(
        &output,
        &[
            "  otlphttp/datadog-eu:\n    endpoint: \"${env:DATADOG_EU_OTLP_ENDPOINT}\"\n    vendor: datadog\n    \
             api_key: \"${env:DD_API_KEY}\"\n    sending_queue:\n      queue_size: 10\n",
            "- otlphttp/datadog-eu",
        ],
    );
    has_all(
        &report,
        &[
            "in.yaml:3: exporters::datadog/eu: not in tidegate: it becomes `otlphttp`",
            "to the OTLP endpoint of the account, for example https://otlp.datadoghq.eu",
            "in.yaml:4: exporters::datadog/eu::api::site: ",
            "in.yaml:5: exporters::datadog/eu::hostname: ",
        ],
    );
    assert_eq!(report.lines().count(), 3, "{report}");
}

#[test]
fn connectors_without_a_second_end_go_with_their_pipelines() {
    let (output, report) = of_collector(
        "receivers: {nop: , zipkin: }
exporters: {debug: }
connectors: {forward: }
service:
  pipelines:
    logs: {receivers: [nop], exporters: [debug, forward]}
    logs/b: {receivers: [forward], exporters: [nosuch]}
",
    );
    has_all(
        &report,
        &[
            "in.yaml:7: service::pipelines::logs/b::exporters[0]: references exporter \"nosuch\"",
            "in.yaml:7: service::pipelines::logs/b: left out: no exporter is left",
            "in.yaml:3: connectors::forward: ",
        ],
    );
    assert!(!output.contains("forward"), "{output}");
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
            "note: `admin` keeps a history of 10m",
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

#[test]
fn the_sections_of_a_file_show_its_program() {
    let guess = |text: &str, urls: &[&str]| {
        let root = crate::config::parse_text("in.yaml", text, &mut Problems::default()).unwrap();
        let args = ConvertArgs {
            file: PathBuf::new(),
            from: None,
            output: None,
            remote_write_urls: urls.iter().map(|url| (*url).to_owned()).collect(),
            with_admin: false,
            strict: false,
        };
        format(&args, &root).ok()
    };
    assert_eq!(guess("service: {}", &[]), Some(SourceFormat::Collector));
    assert_eq!(guess("service: {}", &["http://a"]), None);
    assert_eq!(guess("global: {}", &[]), Some(SourceFormat::Prometheus));
    assert_eq!(
        guess("scrape_configs: []", &["http://a"]),
        Some(SourceFormat::Vmagent)
    );
    assert_eq!(guess("groups: []", &[]), None);
    assert_eq!(guess("{receivers: , scrape_configs: }", &[]), None);
}

#[test]
fn values_with_references_are_never_left_out() {
    let text = "receivers: {nop: }
exporters:
  otlphttp:
    endpoint: \"${env:A}\"
    compression: \"${env:B}\"
    timeout: \"${env:C}s\"
    retry_on_failure: {retry_on_status: [\"${env:D}\"]}
service: {pipelines: {logs: {receivers: [nop], exporters: [otlphttp]}}}
";
    let (output, report) = converted_with(text, SourceFormat::Collector, &[]);
    assert_eq!(report, "");
    has_all(
        &output.unwrap(),
        &["\"${env:A}\"", "\"${env:B}\"", "\"${env:C}s\"", "- \"${env:D}\""],
    );
}
