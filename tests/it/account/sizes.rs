// SPDX-License-Identifier: Apache-2.0

//! The largest points and requests that the configuration permits.

use super::*;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;

/// The receiver rejects a point with more elements than configured: the sender, the page and the counters agree.
#[test]
fn a_receiver_takes_as_many_elements_as_its_configuration_says() {
    let (otlp, page) = (free_port(), free_port());
    let gateway = Gateway::start(&format!(
        "
receivers: {{otlp: {{max_elements_per_item: 10, protocols: {{http: {{endpoint: 127.0.0.1:{otlp}}}}}}}}}
exporters: {{prometheus: {{endpoint: 127.0.0.1:{page}}}}}
service: {{pipelines: {{metrics: {{receivers: [otlp], exporters: [prometheus]}}}}}}
"
    ));
    let with = |name: &str, attributes: usize| {
        let attributes = (0..attributes).map(|at| attribute(&format!("k{at}"), "v"));
        let point = NumberDataPoint {
            attributes: attributes.collect(),
            ..int(1)
        };
        gauge(name, [point])
    };
    // A point is an element itself.
    let body = request(Vec::new(), "", [with("sound", 9), with("absurd", 10)]);
    let answer = http::post(
        otlp,
        "/v1/metrics",
        "application/x-protobuf",
        &body.encode_to_vec(),
    );
    let answer = answer.expect("an answer");
    assert_eq!(answer.status, 200);
    let response = ExportMetricsServiceResponse::decode(&*answer.body).expect("it can be read");
    let partial = response.partial_success.expect("a part was rejected");
    assert_eq!(partial.rejected_data_points, 1);
    assert!(
        partial.error_message.contains("may have 10 attributes")
            && partial.error_message.contains("`max_elements_per_item`"),
        "{}",
        partial.error_message
    );
    let text = http::get(page, "/metrics").expect("a page").text();
    assert!(text.contains("\nsound{") && !text.contains("absurd"), "{text}");
    for (name, expected) in [
        ("otelcol_receiver_accepted_metric_points", 1.0),
        ("otelcol_receiver_failed_metric_points", 1.0),
    ] {
        assert_eq!(gateway.own_metric(name, &[]), expected, "{name}");
    }
    gateway.stop();
}

/// The largest remote write that is taken by default follows the memory limit.
#[test]
fn the_largest_remote_write_follows_the_memory_limit() {
    const MIB: usize = 1 << 20;
    for (limit_mib, status) in [(512, 413), (2048, 400)] {
        let port = free_port();
        let gateway = Gateway::start(&format!(
            "
receivers: {{prometheusremotewrite: {{endpoint: 127.0.0.1:{port}}}}}
processors: {{memory_limiter: {{check_interval: 1s, limit_mib: {limit_mib}}}}}
exporters: {{debug: {{}}}}
service:
  pipelines: {{metrics: {{receivers: [prometheusremotewrite], processors: [memory_limiter], exporters: [debug]}}}}
"
        ));
        let headers = [
            ("content-type", "application/x-protobuf"),
            ("content-encoding", "snappy"),
        ];
        // The body is not valid snappy. The gateway notices that only if the body is not too large.
        let body = vec![0xff; 40 * MIB];
        let answer = http::request("POST", port, "/api/v1/write", &headers, &body).expect("an answer");
        assert_eq!(answer.status, status, "{limit_mib} MiB: {}", answer.text());
        let labels = ["receiver=\"prometheusremotewrite\"", "reason=\"too_large\""];
        let refused = gateway.own_metric("tidegate_memory_refusals_total", &labels);
        assert_eq!(refused, f64::from(u8::from(status == 413)), "{limit_mib} MiB");
        gateway.stop();
    }
}
