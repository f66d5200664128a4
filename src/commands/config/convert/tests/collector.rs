// SPDX-License-Identifier: Apache-2.0

//! Files of the Collector: what they lose, and what their vendor exporters become.

use super::*;

fn of_collector(text: &str) -> (String, String) {
    converted(text, SourceFormat::Collector, &[])
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
fn lists_of_headers_stay_as_they_are() {
    let text = "receivers:
  nop: null
exporters:
  kafka:
    record_headers:
      - name: site
        value: a
      - name: site
        value: b
  otlphttp:
    endpoint: \"${env:ENDPOINT}\"
    headers:
      - name: x-key
        value: \"${env:KEY}\"
service:
  pipelines:
    traces:
      receivers:
        - nop
      exporters:
        - kafka
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
            "in.yaml:3: exporters::datadog/eu: converted to `otlphttp/datadog-eu` with `vendor: datadog`: \
             set the variable DATADOG_EU_OTLP_ENDPOINT to the OTLP endpoint of the account, \
             for example https://otlp.datadoghq.eu",
            "in.yaml:4: exporters::datadog/eu::api::site: converted: the variable DATADOG_EU_OTLP_ENDPOINT",
            "in.yaml:5: exporters::datadog/eu::hostname: not in tidegate: use the options of `otlphttp`",
        ],
    );
    assert_eq!(report.lines().count(), 3, "{report}");
}

#[test]
fn the_exporter_of_new_relic_names_the_endpoints_and_the_kind_of_key() {
    let (output, report) = of_collector(
        "receivers: {nop: }
exporters: {newrelic: {apikey: \"${env:NEW_RELIC_KEY}\", timeout: 30s, metrics_host_override: metric-api.eu.newrelic.com}}
service: {pipelines: {metrics: {receivers: [nop], exporters: [newrelic]}}}
",
    );
    has_all(
        &output,
        &[
            "  otlphttp/newrelic:\n    endpoint: \"${env:NEWRELIC_OTLP_ENDPOINT}\"\n    vendor: newrelic\n    \
             api_key: \"${env:NEW_RELIC_KEY}\"\n    timeout: ",
            "- otlphttp/newrelic",
        ],
    );
    has_all(
        &report,
        &[
            "exporters::newrelic: converted to `otlphttp/newrelic` with `vendor: newrelic`: set the variable \
             NEWRELIC_OTLP_ENDPOINT to the OTLP endpoint of the account, for example https://otlp.nr-data.net, \
             or https://otlp.eu01.nr-data.net in the EU; that endpoint needs a license key, not an insert key",
            "exporters::newrelic::metrics_host_override: converted: the variable NEWRELIC_OTLP_ENDPOINT",
        ],
    );
    assert_eq!(report.lines().count(), 2, "{report}");
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
