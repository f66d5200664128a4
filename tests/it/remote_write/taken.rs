// SPDX-License-Identifier: Apache-2.0

//! The result of writes to the receiver by real Prometheus servers, and by our own exporter.

use super::{Otlp, every_kind, now_ms};
use crate::kit::pages::{Page, Pages};
use crate::kit::points::{Point, Value};
use crate::kit::{Gateway, OtlpSink, Prometheus, Release, free_port};

/// A page with everything that text has.
const PAGE: &str = "# HELP app_requests_total What came.
# TYPE app_requests_total counter
app_requests_total{code=\"200\"} 1027
# TYPE app_temperature_celsius gauge
app_temperature_celsius -3.5
# TYPE app_latency_seconds histogram
app_latency_seconds_bucket{le=\"0.5\"} 5
app_latency_seconds_bucket{le=\"+Inf\"} 9
app_latency_seconds_sum 4.25
app_latency_seconds_count 9
# TYPE app_pause_seconds summary
app_pause_seconds{quantile=\"0.5\"} 0.25
app_pause_seconds_sum 17.5
app_pause_seconds_count 300
app_untyped 7
";

/// A gateway that takes remote writes and hands on OTLP.
fn gateway(port: u16, sink: &OtlpSink) -> Gateway {
    Gateway::start(&format!(
        "receivers:
  prometheusremotewrite: {{endpoint: \"127.0.0.1:{port}\"}}
exporters:
  otlphttp: {{endpoint: \"{}\"}}
service:
  pipelines:
    metrics: {{receivers: [prometheusremotewrite], exporters: [otlphttp]}}
",
        sink.endpoint()
    ))
}

fn last<'a>(points: &'a [Point], name: &str) -> &'a Point {
    let found = points.iter().rfind(|point| point.name == name);
    found.unwrap_or_else(|| {
        panic!(
            "no {name} in {:?}",
            points.iter().map(|point| &point.name).collect::<Vec<_>>()
        )
    })
}

fn sum(value: f64) -> Value {
    Value::Sum {
        value,
        monotonic: true,
        temporality: 2,
    }
}

/// A server that scrapes the page and writes it to the gateway.
fn writer(release: Release, pages: &Pages, to: u16) -> Prometheus {
    let (message, flags) = match release {
        Release::Stable => ("", &[][..]),
        Release::Newest => (
            "protobuf_message: io.prometheus.write.v2.Request, ",
            &["--enable-feature=metadata-wal-records"][..],
        ),
    };
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - {{job_name: app, static_configs: [{{targets: [\"127.0.0.1:{}\"], labels: {{instance: the-instance}}}}]}}
remote_write:
  - {{url: \"http://127.0.0.1:{to}/api/v1/write\", {message}queue_config: {{batch_send_deadline: 100ms, max_samples_per_send: 5}},
     metadata_config: {{send_interval: 500ms}}}}
",
        pages.port()
    );
    Prometheus::start_with(release, &config, flags)
}

#[test]
fn what_prometheus_writes_comes_out_as_it_scraped_it() {
    for release in Release::ALL {
        let (pages, sink, port) = (Pages::start(), OtlpSink::start(), free_port());
        pages.show(
            "/metrics",
            Page {
                content_type: "text/plain; version=0.0.4".to_owned(),
                body: PAGE.into(),
            },
        );
        let gateway = gateway(port, &sink);
        let server = writer(release, &pages, port);
        // Until types are known, everything is a gauge in 1.0.
        sink.wait_until("types are known", |sink| {
            let points = sink.points_of("app_pause_seconds_count");
            points.last().is_some_and(|point| point.value == sum(300.0))
        });
        sink.clear();
        sink.wait_until("every series came again", |sink| {
            let points = sink.points();
            [
                "app_requests_total",
                "app_untyped",
                "app_latency_seconds_count",
                "app_pause_seconds",
                "app_temperature_celsius",
                "up",
            ]
            .iter()
            .all(|name| points.iter().any(|point| point.name == *name))
        });
        let points = sink.points();
        let table = [
            ("app_requests_total", sum(1027.0)),
            ("app_temperature_celsius", Value::Gauge(-3.5)),
            ("app_latency_seconds_count", sum(9.0)),
            ("app_latency_seconds_sum", sum(4.25)),
            ("app_pause_seconds", Value::Gauge(0.25)),
            ("app_pause_seconds_sum", sum(17.5)),
            ("app_untyped", Value::Gauge(7.0)),
            ("up", Value::Gauge(1.0)),
        ];
        for (name, value) in table {
            let point = last(&points, name);
            assert_eq!(point.value, value, "{release:?} {name}");
            assert_eq!(point.resource["service.name"], "app");
            assert_eq!(point.resource["service.instance.id"], "the-instance");
            assert!(!point.attributes.contains_key("job"), "{point:?}");
        }
        assert_eq!(last(&points, "app_requests_total").attributes["code"], "200");
        let infinite = points
            .iter()
            .rfind(|point| point.name == "app_latency_seconds_bucket" && point.attributes["le"] == "+Inf");
        assert_eq!(infinite.expect("a bucket").value, sum(9.0));
        // Samples of a series come in the order of their time, however the server deals them out.
        let times: Vec<u64> = sink
            .points_of("app_untyped")
            .iter()
            .map(|point| point.time_ns)
            .collect();
        assert!(times.is_sorted(), "{times:?}");
        pages.hide("/metrics");
        sink.wait_until("the series have ended", |sink| {
            let ended =
                |point: &&opentelemetry_proto::tonic::metrics::v1::NumberDataPoint| point.flags & 1 == 1;
            gauges(sink, "app_temperature_celsius")
                .iter()
                .any(|point| ended(&point))
        });
        assert_eq!(
            gateway
                .own_metrics()
                .matches("remote_write_dropped_samples")
                .count(),
            0
        );
        drop(server);
        gateway.stop();
    }
}

/// The points of a gauge as they came.
fn gauges(sink: &OtlpSink, name: &str) -> Vec<opentelemetry_proto::tonic::metrics::v1::NumberDataPoint> {
    use opentelemetry_proto::tonic::metrics::v1::metric::Data;
    let requests = sink.metrics().into_iter();
    let metrics = requests
        .flat_map(|request| request.resource_metrics)
        .flat_map(|resource| resource.scope_metrics)
        .flat_map(|scope| scope.metrics);
    let points = metrics
        .filter(|metric| metric.name == name)
        .filter_map(|metric| metric.data);
    points
        .flat_map(|data| match data {
            Data::Gauge(gauge) => gauge.data_points,
            _ => Vec::new(),
        })
        .collect()
}

#[test]
fn what_one_gateway_writes_another_takes() {
    let (sink, port, otlp) = (OtlpSink::start(), free_port(), Otlp::new());
    let taker = gateway(port, &sink);
    let writer = Gateway::start(&format!(
        "receivers:
{}exporters:
  prometheusremotewrite:
    endpoint: \"http://127.0.0.1:{port}/api/v1/write\"
    protobuf_message: auto
    max_batch_request_parallelism: 1
service:
  pipelines:
    metrics: {{receivers: [otlp], exporters: [prometheusremotewrite]}}
",
        otlp.receiver()
    ));
    let time = now_ms();
    otlp.push(&every_kind(time));
    sink.wait_until("all points arrived", |sink| sink.points().len() == 13);
    let points = sink.points();
    let requests = last(&points, "rw_requests_total");
    assert_eq!(
        (&requests.value, requests.time_ns),
        (&sum(1027.0), time * 1_000_000)
    );
    assert_eq!(requests.start_time_ns, (time - 60_000) * 1_000_000);
    assert_eq!(
        (requests.scope.as_str(), requests.attribute("service.namespace")),
        ("lib", "ns")
    );
    assert_eq!(
        (requests.attribute("service.name"), requests.attribute("zone")),
        ("svc", "z")
    );
    let temperature = last(&points, "rw_temperature_celsius");
    assert_eq!(
        (&temperature.value, temperature.unit.as_str()),
        (&Value::Gauge(-3.5), "Cel")
    );
    assert_eq!(last(&points, "rw_latency_seconds_count").value, sum(6.0));
    assert_eq!(
        last(&points, "rw_size_bytes").value,
        Value::Other,
        "an exponential histogram"
    );
    writer.stop();
    taker.stop();
}
