// SPDX-License-Identifier: Apache-2.0

mod running;

use serde_json::json;
use tidegate_config::{Decode, Problems, parse_text};
use tidegate_kubernetes::testing::FakeApiServer;

use super::*;
use crate::config::scrape::ScrapeConfig;
use crate::jobs::options_for_test;
use tidegate_pipeline::component::testing::settings;

/// Options that select everything.
const ALL: &str = "pod_monitor_selector: {}, service_monitor_selector: {}, scrape_config_selector: {}";

fn config(more: &str) -> Arc<PrometheusReceiverConfig> {
    let yaml = format!("prometheus_cr: {{enabled: true, {ALL}, api_server: 'http://127.0.0.1:1', {more}}}");
    settings::<PrometheusReceiverConfig>(&yaml).get()
}

fn add(kind: ObjectKind, spec: &serde_json::Value, more: &str, values: &mut Values) -> Generated {
    let mut to = Generated::default();
    let options = &config(more).prometheus_cr;
    generate::add(kind, ("shop", "web"), &spec.to_string(), options, values, &mut to);
    to
}

/// What an object becomes.
fn generated(kind: ObjectKind, spec: &serde_json::Value) -> Generated {
    add(kind, spec, "", &mut Values::default())
}

/// Checks the jobs of an object, each by the configuration that the operator writes.
fn becomes(kind: ObjectKind, spec: &serde_json::Value, expected: &[&str]) {
    let Generated { jobs, notices, .. } = generated(kind, spec);
    assert_eq!(notices, Vec::<String>::new());
    assert_eq!(jobs.len(), expected.len());
    for (job, expected) in jobs.iter().zip(expected) {
        let mut problems = Problems::default();
        let node = parse_text("expected.yaml", expected, &mut problems).expect("YAML");
        let expected = ScrapeConfig::decode(&node, &mut problems);
        assert!(problems.is_empty(), "{problems}");
        assert_eq!(
            Some(options_for_test(job, &config(""))),
            expected,
            "{}",
            job.options
        );
    }
}

#[test]
fn a_pod_monitor_becomes_the_job_of_the_operator() {
    let spec = json!({
        "selector": {
            "matchLabels": {"app": "web", "app.kubernetes.io/name": "shop"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["a", "b"]},
                {"key": "tier", "operator": "NotIn", "values": ["c"]},
                {"key": "scraped", "operator": "Exists"},
                {"key": "canary", "operator": "DoesNotExist"},
            ],
        },
        "jobLabel": "app",
        "podTargetLabels": ["team", "example.com/zone"],
        "sampleLimit": 1000,
        "targetLimit": 10,
        "attachMetadata": {"node": true},
        "podMetricsEndpoints": [
            {
                "port": "metrics", "path": "/m", "interval": "15s", "scrapeTimeout": "5s", "scheme": "HTTPS",
                "params": {"collect[]": ["a", "b"]}, "honorLabels": true, "honorTimestamps": false,
                "tlsConfig": {"insecureSkipVerify": true, "serverName": "web"},
                "relabelings": [
                    {"sourceLabels": ["pod"], "targetLabel": "name", "regex": "(.*)-x", "replacement": "$1",
                     "separator": ";", "action": "Replace"},
                ],
                "metricRelabelings": [{"sourceLabels": ["__name__"], "regex": "go_.*", "action": "drop"}],
            },
            {"targetPort": 8080, "filterRunning": false},
        ],
    });
    let selector = "
  - {action: keep, source_labels: [__meta_kubernetes_pod_label_app, __meta_kubernetes_pod_labelpresent_app], regex: (web);true}
  - {action: keep, source_labels: [__meta_kubernetes_pod_label_app_kubernetes_io_name, __meta_kubernetes_pod_labelpresent_app_kubernetes_io_name], regex: (shop);true}
  - {action: keep, source_labels: [__meta_kubernetes_pod_label_tier, __meta_kubernetes_pod_labelpresent_tier], regex: (a|b);true}
  - {action: drop, source_labels: [__meta_kubernetes_pod_label_tier, __meta_kubernetes_pod_labelpresent_tier], regex: (c);true}
  - {action: keep, source_labels: [__meta_kubernetes_pod_labelpresent_scraped], regex: 'true'}
  - {action: drop, source_labels: [__meta_kubernetes_pod_labelpresent_canary], regex: 'true'}";
    let common = "
  - {source_labels: [__meta_kubernetes_namespace], target_label: namespace}
  - {source_labels: [__meta_kubernetes_pod_container_name], target_label: container}
  - {source_labels: [__meta_kubernetes_pod_name], target_label: pod}
  - {source_labels: [__meta_kubernetes_pod_label_team], target_label: team, regex: (.+), replacement: '${1}'}
  - {source_labels: [__meta_kubernetes_pod_label_example_com_zone], target_label: example_com_zone, regex: (.+), replacement: '${1}'}
  - {target_label: job, replacement: shop/web}
  - {source_labels: [__meta_kubernetes_pod_label_app], target_label: job, regex: (.+), replacement: '${1}'}";
    let first = format!(
        "
job_name: podMonitor/shop/web/0
honor_labels: true
honor_timestamps: false
kubernetes_sd_configs: [{{role: pod, namespaces: {{names: [shop]}}, attach_metadata: {{node: true}}}}]
scrape_interval: 15s
scrape_timeout: 5s
metrics_path: /m
params: {{'collect[]': [a, b]}}
scheme: https
tls_config: {{insecure_skip_verify: true, server_name: web}}
relabel_configs:
  - {{source_labels: [job], target_label: __tmp_prometheus_job_name}}
  - {{action: drop, source_labels: [__meta_kubernetes_pod_phase], regex: (Failed|Succeeded)}}{selector}
  - {{action: keep, source_labels: [__meta_kubernetes_pod_container_port_name], regex: metrics}}{common}
  - {{target_label: endpoint, replacement: metrics}}
  - {{source_labels: [pod], separator: ;, target_label: name, regex: (.*)-x, replacement: $1, action: replace}}
sample_limit: 1000
target_limit: 10
metric_relabel_configs: [{{source_labels: [__name__], regex: go_.*, action: drop}}]
"
    );
    let second = format!(
        "
job_name: podMonitor/shop/web/1
kubernetes_sd_configs: [{{role: pod, namespaces: {{names: [shop]}}, attach_metadata: {{node: true}}}}]
relabel_configs:
  - {{source_labels: [job], target_label: __tmp_prometheus_job_name}}{selector}
  - {{action: keep, source_labels: [__meta_kubernetes_pod_container_port_number], regex: '8080'}}{common}
  - {{target_label: endpoint, replacement: '8080'}}
sample_limit: 1000
target_limit: 10
"
    );
    becomes(ObjectKind::PodMonitor, &spec, &[&first, &second]);
}

#[test]
fn a_service_monitor_becomes_the_job_of_the_operator() {
    let spec = json!({
        "selector": {"matchLabels": {"app": "web"}},
        "namespaceSelector": {"matchNames": ["a", "b"]},
        "jobLabel": "app",
        "targetLabels": ["team"],
        "podTargetLabels": ["zone"],
        "labelLimit": 30,
        "scrapeProtocols": ["PrometheusText0.0.4"],
        "endpoints": [{"port": "http", "path": "/metrics", "bearerTokenSecret": {"key": ""}}],
    });
    let expected = |prefix: &str, role: &str, namespaces: &str| {
        let of = format!("source_labels: [{prefix}_address_target_kind, {prefix}_address_target_name]");
        format!(
            "
job_name: serviceMonitor/shop/web/0
kubernetes_sd_configs: [{{role: {role}{namespaces}}}]
metrics_path: /metrics
relabel_configs:
  - {{source_labels: [job], target_label: __tmp_prometheus_job_name}}
  - {{action: keep, source_labels: [__meta_kubernetes_service_label_app, __meta_kubernetes_service_labelpresent_app], regex: (web);true}}
  - {{action: keep, source_labels: [{prefix}_port_name], regex: http}}
  - {{{of}, separator: ;, regex: Node;(.*), replacement: '${{1}}', target_label: node}}
  - {{{of}, separator: ;, regex: Pod;(.*), replacement: '${{1}}', target_label: pod}}
  - {{source_labels: [__meta_kubernetes_namespace], target_label: namespace}}
  - {{source_labels: [__meta_kubernetes_service_name], target_label: service}}
  - {{source_labels: [__meta_kubernetes_pod_name], target_label: pod}}
  - {{source_labels: [__meta_kubernetes_pod_container_name], target_label: container}}
  - {{action: drop, source_labels: [__meta_kubernetes_pod_phase], regex: (Failed|Succeeded)}}
  - {{source_labels: [__meta_kubernetes_service_label_team], target_label: team, regex: (.+), replacement: '${{1}}'}}
  - {{source_labels: [__meta_kubernetes_pod_label_zone], target_label: zone, regex: (.+), replacement: '${{1}}'}}
  - {{source_labels: [__meta_kubernetes_service_name], target_label: job, replacement: '${{1}}'}}
  - {{source_labels: [__meta_kubernetes_service_label_app], target_label: job, regex: (.+), replacement: '${{1}}'}}
  - {{target_label: endpoint, replacement: http}}
label_limit: 30
scrape_protocols: [PrometheusText0.0.4]
"
        )
    };
    let slices = expected(
        "__meta_kubernetes_endpointslice",
        "endpointslice",
        ", namespaces: {names: [a, b]}",
    );
    becomes(ObjectKind::ServiceMonitor, &spec, &[&slices]);
    let mut spec = spec;
    spec["serviceDiscoveryRole"] = json!("Endpoints");
    spec["namespaceSelector"] = json!({"any": true});
    let endpoints = expected("__meta_kubernetes_endpoint", "endpoints", "");
    becomes(ObjectKind::ServiceMonitor, &spec, &[&endpoints]);
}

#[test]
fn a_scrape_config_becomes_the_job_of_the_operator() {
    let spec = json!({
        "jobName": "outside",
        "staticConfigs": [{"targets": ["a:1"], "labels": {"env": "dev"}}],
        "httpSDConfigs": [{"url": "http://sd/targets", "refreshInterval": "30s", "enableHTTP2": false}],
        "dnsSDConfigs": [{"names": ["x.example"], "type": "A", "port": 9100}],
        "kubernetesSDConfigs": [{
            "role": "Node",
            "apiServer": "https://other:6443",
            "tlsConfig": {"insecureSkipVerify": true},
            "selectors": [{"role": "Node", "label": "a=b"}],
        }],
        "scrapeInterval": "1m",
        "metricsPath": "/probe",
        "params": {"module": ["http"]},
        "scheme": "HTTPS",
        "enableCompression": false,
        "nameValidationScheme": "UTF8",
        "nameEscapingScheme": "AllowUTF8",
        "relabelings": [{"targetLabel": "cluster", "replacement": ""}],
        "metricRelabelings": [{"action": "LabelDrop", "regex": "pod"}],
    });
    let expected = "
job_name: scrapeConfig/shop/web
static_configs: [{targets: ['a:1'], labels: {env: dev}}]
http_sd_configs: [{url: 'http://sd/targets', refresh_interval: 30s, enable_http2: false}]
dns_sd_configs: [{names: [x.example], type: A, port: 9100}]
kubernetes_sd_configs: [{role: node, api_server: 'https://other:6443', tls_config: {insecure_skip_verify: true}, selectors: [{role: node, label: a=b}]}]
scrape_interval: 1m
metrics_path: /probe
params: {module: [http]}
scheme: https
enable_compression: false
metric_name_validation_scheme: utf8
metric_name_escaping_scheme: allow-utf-8
relabel_configs:
  - {source_labels: [job], target_label: __tmp_prometheus_job_name}
  - {target_label: job, replacement: outside}
  - {target_label: cluster, replacement: ''}
metric_relabel_configs: [{action: labeldrop, regex: pod}]
";
    becomes(ObjectKind::ScrapeConfig, &spec, &[expected]);
}

#[test]
fn what_is_not_taken_of_an_object_is_said_with_its_place() {
    let endpoint = |endpoint: serde_json::Value| json!({"podMetricsEndpoints": [endpoint]});
    let table = [
        (
            endpoint(json!({"port": "a", "colour": "red"})),
            1,
            "podMetricsEndpoints[0].colour has no effect",
        ),
        (
            json!({"podMetricsEndpoints": [{}], "shape": 1}),
            1,
            "podMonitor shop/web: shape has no effect",
        ),
        (
            json!({"podMetricsEndpoints": [{}, {}], "scrapeClass": "x"}),
            0,
            "scrapeClass is not supported",
        ),
        (json!({}), 0, "podMetricsEndpoints has no endpoint"),
        (
            endpoint(json!({"path": 1, "port": 7})),
            0,
            "podMetricsEndpoints[0].port is not a text",
        ),
        (
            endpoint(json!({"bearerTokenFile": "/etc/shadow"})),
            0,
            "podMetricsEndpoints[0].bearerTokenFile needs `allow_file_access`",
        ),
        (
            json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}, "podMetricsEndpoints": [{}]}),
            0,
            "selector.matchExpressions[0].operator is not In",
        ),
        (
            endpoint(json!({"basicAuth": {"username": {"key": "k"}}})),
            0,
            "basicAuth.username.name or the key",
        ),
        (json!([1]), 0, "its specification is not a map"),
    ];
    for (spec, jobs, expected) in table {
        let generated = generated(ObjectKind::PodMonitor, &spec);
        assert_eq!(generated.jobs.len(), jobs, "{spec}");
        let said = generated.notices.join("\n");
        assert!(said.contains(expected), "{said}");
        assert!(said.contains("podMonitor shop/web: "), "{said}");
    }
    let said = generated(
        ObjectKind::ScrapeConfig,
        &json!({"consulSDConfigs": [{"server": "a"}]}),
    )
    .notices;
    assert!(said[0].contains("consulSDConfigs has no effect"), "{said:?}");
    assert!(said[1].contains("none of staticConfigs"), "{said:?}");
    let spec = endpoint(json!({"bearerTokenFile": "/run/token"}));
    let allowed = add(
        ObjectKind::PodMonitor,
        &spec,
        "allow_file_access: true",
        &mut Values::default(),
    );
    assert_eq!(allowed.notices, Vec::<String>::new());
    assert!(
        allowed.jobs[0]
            .options
            .contains("\"bearer_token_file\":\"/run/token\"")
    );
}

#[tokio::test]
async fn values_come_from_the_secrets_and_maps_that_an_object_names() {
    let server = FakeApiServer::start().await;
    let metadata = json!({"name": "auth", "namespace": "shop"});
    // `token`, `user` and `pass` with a line end.
    let data = json!({"t": "dG9rZW4=", "u": "dXNlcg==", "p": "cGFzcwo="});
    server.apply_quietly("secrets", &json!({"metadata": metadata, "data": data}));
    server.apply_quietly(
        "configmaps",
        &json!({"metadata": metadata, "data": {"ca": "PEM"}}),
    );
    let named = |key: &str| json!({"name": "auth", "key": key});
    let spec = json!({"endpoints": [
        {"authorization": {"type": "Token", "credentials": named("t")}, "tlsConfig": {"ca": {"configMap": named("ca")}}},
        {"basicAuth": {"username": named("u"), "password": named("p")}},
        {"bearerTokenSecret": named("t")},
        {"bearerTokenSecret": named("absent")},
        {"bearerTokenSecret": {"name": "other", "key": "t", "optional": true}},
    ]});
    let cluster = Cluster::shared(ApiClient::new(server.server()).unwrap(), &Arc::default());
    let mut values = Values::default();
    let first = add(ObjectKind::ServiceMonitor, &spec, "", &mut values);
    assert!(first.jobs.is_empty() && first.notices.is_empty(), "{first:?}");
    values.read(&cluster).await;
    let second = add(ObjectKind::ServiceMonitor, &spec, "", &mut values);
    let options: Vec<_> = second
        .jobs
        .iter()
        .map(|job| options_for_test(job, &config("")))
        .collect();
    let authorization = options[0].authorization.as_ref().unwrap();
    assert_eq!(authorization.r#type, "Token");
    let shown =
        |secret: &Option<tidegate_config::Secret>| secret.as_ref().map(|text| text.expose().to_owned());
    assert_eq!(shown(&authorization.credentials).as_deref(), Some("token"));
    assert_eq!(shown(&options[0].tls_config.ca).as_deref(), Some("PEM"));
    let basic = options[1].basic_auth.as_ref().unwrap();
    assert_eq!(
        (basic.username.as_str(), shown(&basic.password).as_deref()),
        ("user", Some("pass"))
    );
    assert_eq!(shown(&options[2].bearer_token).as_deref(), Some("token"));
    assert_eq!((options.len(), shown(&options[3].bearer_token)), (4, None));
    let [notice] = second.notices.as_slice() else {
        panic!("{:?}", second.notices)
    };
    assert!(
        notice.contains("secrets shop/auth, key absent: the object has no such key"),
        "{notice}"
    );
    assert!(
        notice.contains("the job serviceMonitor/shop/web/3 is skipped: "),
        "{notice}"
    );
    // `t` is named twice and read once.
    assert_eq!(server.count("/api/v1/namespaces/shop/secrets/auth"), 4);
    values.begin();
    values.forget_unused();
    assert_eq!(values.next_read(), None, "values that no object names go");
}

#[test]
fn selectors_have_the_form_of_the_api() {
    let config = config(
        "pod_monitor_namespace_selector: {matchLabels: {team: core},
            matchExpressions: [{key: a, operator: In, values: [b, c]}, {key: d, operator: NotIn, values: [e]},
                {key: f, operator: Exists}, {key: g, operator: DoesNotExist}]}",
    );
    let text = config.prometheus_cr.pod_monitor_namespace_selector.text();
    assert_eq!(text, "team=core,a in (b,c),d notin (e),f,!g");
}
