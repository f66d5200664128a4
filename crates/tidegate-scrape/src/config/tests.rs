// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::job::{Job, Limits};
use discovery::RecordType;
use std::time::Duration;
use tidegate_config::{Decode, parse_text};
use tidegate_pipeline::component::testing::settings;

fn problems(yaml: &str) -> String {
    let mut problems = Problems::default();
    let node = parse_text("test.yaml", yaml, &mut problems).unwrap();
    PrometheusReceiverConfig::decode(&node, &mut problems);
    assert!(problems.has_errors());
    problems.to_string()
}

fn jobs(yaml: &str) -> Vec<Job> {
    let config = settings::<PrometheusReceiverConfig>(yaml).get::<PrometheusReceiverConfig>();
    config
        .config
        .scrape_configs
        .iter()
        .map(|job| Job::new(job, &config))
        .collect()
}

fn times(job: &Job) -> (Duration, Duration) {
    (job.interval.0, job.timeout.0)
}

#[test]
fn jobs_inherit_from_global() {
    let jobs = jobs(
        "
config:
  global:
    scrape_interval: 30s
    sample_limit: 10
    body_size_limit: 1MB
    external_labels: {cluster: a, numeric: 1}
    evaluation_interval: 15s
  scrape_configs:
    - job_name: inherits
      static_configs: [{targets: ['a:1'], labels: {env: dev}}]
    - job_name: has its own
      scrape_interval: 5s
      scrape_timeout: 1s
      sample_limit: 20
      body_size_limit: 2MB
      scrape_native_histograms: true
      scrape_classic_histograms: true
      metric_name_validation_scheme: legacy
      honor_timestamps: false
",
    );
    let [inherits, own] = jobs.as_slice() else {
        panic!("two jobs")
    };
    assert_eq!(
        times(inherits),
        (Duration::from_secs(30), Duration::from_secs(10))
    );
    assert_eq!(times(own), (Duration::from_secs(5), Duration::from_secs(1)));
    let limits = |job: &Job| {
        let Limits { body, samples, .. } = job.limits;
        (body, samples)
    };
    assert_eq!(limits(inherits), (Some(1 << 20), Some(10)));
    assert_eq!(limits(own), (Some(2 << 20), Some(20)));
    let nobody_says = Limits {
        body: None,
        ..inherits.limits
    };
    let table = [
        (usize::MAX, 256 << 20),
        (1 << 30, 128 << 20),
        (80 << 20, 10 << 20),
    ];
    for (memory, expected) in table {
        assert_eq!(nobody_says.body_bytes(memory), expected);
        assert_eq!(inherits.limits.body_bytes(memory), 1 << 20);
    }
    assert!(inherits.honor_timestamps && !own.honor_timestamps && own.classic_histograms_too);
    assert_eq!(inherits.external_labels.get("numeric"), "1");
    assert_eq!(
        inherits.accept(),
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
         application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
         text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
    );
    assert_eq!(
        own.accept(),
        "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,\
         application/openmetrics-text;version=1.0.0;escaping=underscores;q=0.5,\
         application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=underscores;q=0.3,\
         text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
    );
}

#[test]
fn jobs_have_their_own_histograms_and_the_extra_metrics_of_the_receiver() {
    for (extra, expected) in [
        ("report_extra_scrape_metrics: true", true),
        ("report_extra_metrics: true", true),
        ("", false),
    ] {
        let jobs = jobs(&format!(
            "
config:
  global: {{always_scrape_classic_histograms: true}}
  scrape_configs:
    - job_name: inherits
    - job_name: has its own
      always_scrape_classic_histograms: false
      native_histogram_bucket_limit: 40
      native_histogram_min_bucket_factor: 1.1
{extra}
"
        ));
        let of = |job: &Job| {
            let Limits {
                native_buckets,
                native_schema,
                ..
            } = job.limits;
            (job.classic_histograms_too, native_buckets, native_schema)
        };
        // Buckets of schema 2 grow by 1.19, those of schema 3 by 1.09.
        assert_eq!(of(&jobs[0]), (true, None, 8));
        assert_eq!(of(&jobs[1]), (false, Some(40), 2));
        assert!(jobs.iter().all(|job| job.extra_metrics == expected), "{extra}");
    }
}

#[test]
fn a_timeout_is_never_longer_than_the_interval() {
    let jobs = jobs("config: {scrape_configs: [{job_name: a, scrape_interval: 2s}]}");
    assert_eq!(times(&jobs[0]), (Duration::from_secs(2), Duration::from_secs(2)));
    let said = problems("config: {scrape_configs: [{job_name: a, scrape_interval: 2s, scrape_timeout: 3s}]}");
    assert!(
        said.contains("scrape timeout greater than scrape interval"),
        "{said}"
    );
    let said = problems(
        "config: {global: {scrape_interval: 2s, scrape_timeout: 3s}, scrape_configs: [{job_name: a}]}",
    );
    assert!(
        said.contains("global scrape timeout greater than scrape interval"),
        "{said}"
    );
}

#[test]
fn discoveries_are_read_in_prometheus_spelling() {
    let config = settings::<PrometheusReceiverConfig>("
config:
  scrape_configs:
    - job_name: all
      file_sd_configs: [{files: [/etc/targets/*.json, b.yml], refresh_interval: 1m}]
      http_sd_configs: [{url: 'https://sd.example/targets', bearer_token: t, tls_config: {insecure_skip_verify: true, max_version: TLS12}}]
      dns_sd_configs: [{names: [a.example], type: A, port: 9100}, {names: [_m._tcp.example]}]
      http_headers: {X-Tenant: {values: [a], secrets: [b]}}
      basic_auth: {username: u, password: p}
");
    let config = config.get::<PrometheusReceiverConfig>();
    let job = &config.config.scrape_configs[0];
    assert_eq!(job.file_sd_configs[0].refresh_interval.to_string(), "1m");
    assert_eq!(job.dns_sd_configs[0].r#type, RecordType::A);
    assert_eq!(job.dns_sd_configs[1].r#type, RecordType::Srv);
    let http = job.http_sd_configs[0].http();
    assert!(http.tls.insecure_skip_verify && http.authorization.is_some());
    assert_eq!(
        http.tls.client().max_version,
        tidegate_pipeline::net::tls::TlsVersion::V12
    );
    assert!(!format!("{config:?}").contains("\"p\""));
}

#[test]
fn every_mistake_is_said_with_its_place() {
    let table = [
        ("config: {}", "`scrape_configs` must be specified"),
        ("config:", "`config` must be specified"),
        ("prometheus_cr: {enabled: true}", "no object is selected"),
        (
            "prometheus_cr: {pod_monitor_selector: {}}",
            "`config` must be specified",
        ),
        (
            "prometheus_cr: {enabled: true, pod_monitor_selector: {matchLabels: {'a b': x}}}",
            "no object can have the label",
        ),
        (
            "prometheus_cr: {enabled: true, pod_monitor_selector: {matchExpressions: [{key: a, operator: In}]}}",
            "In needs values",
        ),
        (
            "prometheus_cr: {enabled: true, pod_monitor_selector: {}, pod_monitor_namespace_selector: {names: [a], matchLabels: {b: c}}}",
            "by name or by label, not both",
        ),
        (
            "prometheus_cr: {probe_selector: {}}",
            "`probe_selector` is not supported",
        ),
        (
            "prometheus_cr: {enabled: true, pod_monitor_selector: {}, bearer_token: x}",
            "please provide the 'api_server' URL explicitly",
        ),
        ("config: {scrape_configs: []}", "must have at least one job"),
        ("config: {scrape_configs: [{}]}", "`job_name` must be specified"),
        (
            "config: {scrape_configs: [{job_name: a}, {job_name: a}]}",
            "multiple scrape configs with job name \"a\"",
        ),
        (
            "config: {scrape_configs: [{job_name: a, static_config: []}]}",
            "did you mean `static_configs`?",
        ),
        (
            "config: {scrape_configs: [{job_name: a, scrape_interval: 15}]}",
            "expected a duration such as 15s",
        ),
        (
            "config: {scrape_configs: [{job_name: a, static_configs: [{targets: ['http://a:1']}]}]}",
            "\"http://a:1\" is not a valid hostname",
        ),
        (
            "config: {scrape_configs: [{job_name: a, scrape_protocols: []}]}",
            "scrape_protocols cannot be empty",
        ),
        (
            "config: {scrape_configs: [{job_name: a, scrape_protocols: [PrometheusProto, PrometheusProto]}]}",
            "duplicated protocol PrometheusProto",
        ),
        (
            "config: {scrape_configs: [{job_name: a, fallback_scrape_protocol: PrometheusText0.4}]}",
            "did you mean `PrometheusText0.0.4`?",
        ),
        (
            "config: {scrape_configs: [{job_name: a, body_size_limit: 10M}]}",
            "expected a size in bytes such as 10MB",
        ),
        (
            "config: {scrape_configs: [{job_name: a, consul_sd_configs: [{server: x}]}]}",
            "`consul_sd_configs` is not supported",
        ),
        (
            "config: {scrape_configs: [{job_name: a, http_sd_configs: [{url: 'http://u:p@a/'}]}]}",
            "a URL must not contain credentials",
        ),
        (
            "config: {scrape_configs: [{job_name: a, scheme: htps}]}",
            "expected http or https",
        ),
        (
            "config: {scrape_configs: [{job_name: a, proxy_url: 'http://p'}]}",
            "`proxy_url` is not supported",
        ),
        (
            "config: {scrape_configs: [{job_name: a}], rule_files: [a]}",
            "`rule_files` is not supported",
        ),
        (
            "config: {scrape_configs: [{job_name: a}]}\nuse_start_time_metric: true",
            "`use_start_time_metric` is not supported",
        ),
        (
            "config: {scrape_configs: [{job_name: a}]}\ntarget_allocator: {endpoint: x}",
            "expected a URL that begins with",
        ),
        (
            "config: {scrape_configs: [{job_name: a, bearer_token: x, basic_auth: {username: u}}]}",
            "at most one of basic_auth, authorization, bearer_token and bearer_token_file",
        ),
        (
            "config: {scrape_configs: [{job_name: a, authorization: {type: Basic}}]}",
            "cannot be set to \"basic\"",
        ),
        (
            "config: {scrape_configs: [{job_name: a, http_headers: {Authorization: {values: [x]}}}]}",
            "is not allowed",
        ),
        (
            "config: {scrape_configs: [{job_name: a, tls_config: {cert_file: x}}]}",
            "both certificate and key",
        ),
        (
            "config: {scrape_configs: [{job_name: a, tls_config: {min_version: TLS10}}]}",
            "expected one of TLS12, TLS13",
        ),
        (
            "config: {scrape_configs: [{job_name: a, tls_config: {min_version: TLS13, max_version: TLS12}}]}",
            "min_version cannot be greater than max_version",
        ),
        (
            "config: {scrape_configs: [{job_name: a, file_sd_configs: [{files: [a.txt]}]}]}",
            "not valid for file discovery",
        ),
        (
            "config: {scrape_configs: [{job_name: a, file_sd_configs: [{files: ['/*/a.json']}]}]}",
            "not valid for file discovery",
        ),
        (
            "config: {scrape_configs: [{job_name: a, dns_sd_configs: [{names: [x], type: A}]}]}",
            "a port is required",
        ),
        (
            "config: {scrape_configs: [{job_name: a, http_sd_configs: [{url: 'sd.example'}]}]}",
            "expected a URL",
        ),
        (
            "config: {scrape_configs: [{job_name: a, kubernetes_sd_configs: [{role: pods}]}]}",
            "did you mean `pod`?",
        ),
        (
            "config: {scrape_configs: [{job_name: a, kubernetes_sd_configs: [{role: pod, api_server: 'http://a', kubeconfig_file: b}]}]}",
            "cannot use 'kubeconfig_file' and 'api_server' simultaneously",
        ),
        (
            "config: {scrape_configs: [{job_name: a, kubernetes_sd_configs: [{role: pod, bearer_token: x}]}]}",
            "please provide the 'api_server' URL explicitly",
        ),
        (
            "config: {scrape_configs: [{job_name: a, kubernetes_sd_configs: [{role: pod, api_server: 'http://a', namespaces: {own_namespace: true}}]}]}",
            "cannot use 'namespaces.own_namespace'",
        ),
        (
            "config: {scrape_configs: [{job_name: a, kubernetes_sd_configs: [{role: pod, api_server: 'a:6443'}]}]}",
            "expected a URL that begins with",
        ),
        (
            "config: {scrape_configs: [{job_name: a, kubernetes_sd_configs: [{role: pod, selectors: [{role: service}]}]}]}",
            "pod role supports only pod, node selectors",
        ),
        (
            "config: {scrape_configs: [{job_name: a, kubernetes_sd_configs: [{role: pod, selectors: [{role: pod}, {role: pod}]}]}]}",
            "duplicated selector role: pod",
        ),
        (
            "config: {scrape_configs: [{job_name: a, metric_name_validation_scheme: legacy, metric_name_escaping_scheme: allow-utf-8}]}",
            "utf8 metric names requested",
        ),
    ];
    for (yaml, expected) in table {
        let said = problems(yaml);
        assert!(
            said.contains("error") && said.contains(expected),
            "{yaml}\n{said}"
        );
        assert!(
            said.contains("test.yaml:1:") || said.contains("test.yaml:2:"),
            "{said}"
        );
    }
}
