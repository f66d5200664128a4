// SPDX-License-Identifier: Apache-2.0

//! The same component through OTLP, received by a server that speaks the protocol; other libraries' front ends.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod kit;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kit::{MODEL, work};
use opentelemetry::KeyValue;
use opentelemetry::metrics::MeterProvider;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::metrics::v1::{metric::Data, number_data_point::Value};
use prost::Message;
use tidegate_metrics::{
    Description, Facade, Fanout, Meters, MetricsRegistry, Otel, Prometheus, Protocol, Spans, Temporality,
    TraceContext, text::Format,
};
use tonic::{Request, Response, Status};
use tracing_subscriber::prelude::*;

type Received = Arc<Mutex<Vec<ExportMetricsServiceRequest>>>;

/// A collector: takes all requests, unless it is set to refuse.
#[derive(Clone, Default)]
struct Collector {
    received: Received,
    refuses: Arc<Mutex<bool>>,
}

#[tonic::async_trait]
impl MetricsService for Collector {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        assert_eq!(request.metadata().get("api-key").unwrap(), "secret");
        if *self.refuses.lock().unwrap() {
            return Err(Status::unavailable("of the test"));
        }
        self.received.lock().unwrap().push(request.into_inner());
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

fn grpc() -> (SocketAddr, Collector) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let collector = Collector::default();
    let service = MetricsServiceServer::new(collector.clone());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let incoming = tonic::transport::server::TcpIncoming::from(listener);
            let server = tonic::transport::Server::builder().add_service(service);
            server.serve_with_incoming(incoming).await.unwrap();
        });
    });
    (address, collector)
}

/// The same over HTTP: reads requests as far as a test needs it.
fn http() -> (SocketAddr, Received) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let received = Received::default();
    let shared = received.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut bytes = Vec::new();
            let (mut head, mut length) = (None, usize::MAX);
            while head.is_none_or(|head: usize| bytes.len() < head + length) {
                let mut part = [0; 4096];
                let read = stream.read(&mut part).unwrap();
                assert_ne!(read, 0);
                bytes.extend_from_slice(&part[..read]);
                if head.is_none()
                    && let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n")
                {
                    let text = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
                    assert!(text.starts_with("post /v1/metrics "), "{text}");
                    assert!(text.contains("content-type: application/x-protobuf"), "{text}");
                    let field = text
                        .lines()
                        .find_map(|line| line.strip_prefix("content-length: "));
                    (head, length) = (Some(end + 4), field.unwrap().parse().unwrap());
                }
            }
            let body = &bytes[head.unwrap()..];
            shared
                .lock()
                .unwrap()
                .push(ExportMetricsServiceRequest::decode(body).unwrap());
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                .unwrap();
        }
    });
    (address, received)
}

/// A push: values by name and attributes; histograms by their count and sum.
fn values(request: &ExportMetricsServiceRequest) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    for metric in &request.resource_metrics[0].scope_metrics[0].metrics {
        let mut add = |suffix: &str, attributes: &[_], value: f64| {
            let text = |attribute: &opentelemetry_proto::tonic::common::v1::KeyValue| {
                let value = attribute.value.as_ref().unwrap().value.as_ref().unwrap();
                match value {
                    opentelemetry_proto::tonic::common::v1::any_value::Value::StringValue(value) => {
                        format!("{}={value:?}", attribute.key)
                    }
                    other => panic!("{other:?}"),
                }
            };
            let mut labels: Vec<String> = attributes.iter().map(text).collect();
            labels.sort();
            let old = all.insert(format!("{}{suffix}{{{}}}", metric.name, labels.join(",")), value);
            assert_eq!(old, None);
        };
        let mut numbers = |points: &[opentelemetry_proto::tonic::metrics::v1::NumberDataPoint]| {
            for point in points {
                let value = match point.value.unwrap() {
                    Value::AsInt(value) => value as f64,
                    Value::AsDouble(value) => value,
                };
                add("", &point.attributes, value);
            }
        };
        match metric.data.as_ref().unwrap() {
            Data::Sum(sum) => numbers(&sum.data_points),
            Data::Gauge(gauge) => numbers(&gauge.data_points),
            Data::Histogram(histogram) => {
                for point in &histogram.data_points {
                    assert_eq!(point.explicit_bounds, [0.1, 0.5, 1.0]);
                    assert_eq!(point.count, point.bucket_counts.iter().sum::<u64>());
                    add("_count", &point.attributes, point.count as f64);
                    add("_sum", &point.attributes, point.sum.unwrap());
                }
            }
            Data::ExponentialHistogram(histogram) => {
                for point in &histogram.data_points {
                    let positive = point.positive.as_ref().unwrap();
                    assert_eq!(positive.bucket_counts.iter().sum::<u64>(), point.count);
                    add("_count", &point.attributes, point.count as f64);
                    add("_sum", &point.attributes, point.sum.unwrap());
                }
            }
            other => panic!("{other:?}"),
        }
    }
    all
}

fn expected() -> BTreeMap<String, f64> {
    let model = format!("model={MODEL:?}");
    let named = |name: &str, before: &str, after: &str| format!("{name}{{{before}{model}{after}}}");
    [
        (named("service_requests", "", ""), 10.0),
        (named("service_answers", "code=\"200\",method=\"GET\",", ""), 7.0),
        (named("service_answers", "code=\"503\",method=\"GET\",", ""), 3.0),
        (named("service_energy", "", ""), 2.5),
        (named("service_open", "", ""), 6.0),
        (named("service_cache", "", ""), 0.75),
        (named("service_ttft_count", "", ""), 10.0),
        (named("service_ttft_sum", "", ""), 5.625),
        (named("service_transfers_count", "direction=\"out\",", ""), 10.0),
        (named("service_transfers_sum", "direction=\"out\",", ""), 1023.0),
        (named("service_queue_depth", "", ""), 4.0),
    ]
    .into()
}

const SOON: Duration = Duration::from_secs(60);

#[test]
fn otlp_carries_what_was_recorded_over_grpc_and_http() {
    let (address, collector) = grpc();
    let builder = || {
        Otel::builder()
            .header("api-key", "secret")
            .resource("service.name", "test")
    };
    let over_grpc = Arc::new(builder().endpoint(format!("http://{address}")).build().unwrap());
    let (address, received) = http();
    let over_http = builder()
        .endpoint(format!("http://{address}"))
        .protocol(Protocol::Http)
        .build()
        .unwrap();
    let both = Fanout::new(vec![over_grpc.clone(), Arc::new(over_http)]);
    let service = work(&both);
    both.flush(SOON).unwrap();
    for received in [&collector.received, &received] {
        let requests = received.lock().unwrap();
        assert_eq!(requests.len(), 1);
        assert_eq!(values(&requests[0]), expected());
        let resource = requests[0].resource_metrics[0].resource.as_ref().unwrap();
        assert!(
            resource
                .attributes
                .iter()
                .any(|attribute| attribute.key == "service.name")
        );
    }
    // A refused push loses nothing: the next push carries the same values and newer ones.
    *collector.refuses.lock().unwrap() = true;
    service.requests.inc();
    assert!(over_grpc.flush(SOON).is_err());
    assert_eq!(over_grpc.failed_pushes(), 1);
    *collector.refuses.lock().unwrap() = false;
    over_grpc.shutdown(SOON).unwrap();
    let last = values(collector.received.lock().unwrap().last().unwrap());
    assert_eq!(last[&format!("service_requests{{model={MODEL:?}}}")], 11.0);
    assert!(over_grpc.flush(Duration::ZERO).is_err(), "it was shut down");
}

#[test]
fn deltas_add_up_whatever_was_refused() {
    let (address, collector) = grpc();
    let builder = Otel::builder()
        .header("api-key", "secret")
        .temporality(Temporality::Delta);
    let registry = builder.endpoint(format!("http://{address}")).build().unwrap();
    let service = work(&registry);
    registry.flush(SOON).unwrap();
    service.requests.add(5);
    service.ttft.observe(0.25);
    service.transfers.with(&["out"]).observe(1e9);
    *collector.refuses.lock().unwrap() = true;
    assert!(registry.flush(SOON).is_err());
    *collector.refuses.lock().unwrap() = false;
    service.requests.add(2);
    registry.flush(SOON).unwrap();
    let received = collector.received.lock().unwrap();
    assert_eq!(values(&received[0]), expected());
    let second = values(&received[1]);
    let of = |name: &str| second[&format!("{name}{{model={MODEL:?}}}")];
    assert_eq!(
        (of("service_requests"), of("service_open"), of("service_cache")),
        (7.0, 6.0, 0.75)
    );
    assert_eq!((of("service_ttft_count"), of("service_ttft_sum")), (1.0, 0.25));
    let out = |name: &str| second[&format!("{name}{{direction=\"out\",model={MODEL:?}}}")];
    assert_eq!(
        (out("service_transfers_count"), out("service_transfers_sum")),
        (1.0, 1e9)
    );
}

#[test]
fn it_pushes_by_itself_and_refuses_what_is_no_endpoint() {
    let (address, collector) = grpc();
    let builder = Otel::builder()
        .header("api-key", "secret")
        .interval(Duration::from_millis(5));
    let registry = builder.endpoint(format!("http://{address}")).build().unwrap();
    work(&registry);
    let start = std::time::Instant::now();
    while collector.received.lock().unwrap().len() < 3 {
        assert!(start.elapsed() < SOON);
        std::thread::sleep(Duration::from_millis(1));
    }
    for bad in ["", "localhost:4317", "ftp://a", "http://"] {
        assert!(Otel::builder().endpoint(bad).build().is_err(), "{bad}");
    }
    assert!(Otel::builder().header("a b", "c").build().is_err());
}

#[test]
fn spans_and_metrics_know_each_other() {
    let exporter = opentelemetry_sdk::trace::InMemorySpanExporter::default();
    let spans = Spans::builder()
        .resource("service.name", "test")
        .export_to(exporter.clone());
    let subscriber = tracing_subscriber::registry().with(spans.layer());
    let registry = Prometheus::new();
    let (remote, inside) = tracing::subscriber::with_default(subscriber, || {
        let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let remote = TraceContext::extract(|name| (name == "traceparent").then_some(header)).unwrap();
        let span = tracing::info_span!("request");
        assert!(remote.adopt(&span));
        let service = work(&registry);
        let inside = span.in_scope(|| {
            service.ttft.observe(0.0625);
            TraceContext::current().unwrap()
        });
        assert_eq!(TraceContext::of_span(&span), Some(inside.clone()));
        (remote, inside)
    });
    assert_eq!((inside.span.trace, inside.is_sampled), (remote.span.trace, true));
    spans.flush().unwrap();
    let exported = exporter.get_finished_spans().unwrap();
    assert_eq!(exported.len(), 1);
    assert_eq!(exported[0].span_context.span_id().to_bytes(), inside.span.span);
    assert_eq!(exported[0].parent_span_id.to_bytes(), remote.span.span);
    let page = registry.page(Format::OpenMetrics);
    let (trace, span) = (inside.span.trace_hex(), inside.span.span_hex());
    let exemplar = format!("le=\"0.1\"}} 2 # {{span_id=\"{span}\",trace_id=\"{trace}\"}} 0.0625 ");
    assert!(page.contains(&exemplar), "{page}");
    kit::samples(&page);
}

#[test]
fn the_meter_of_opentelemetry_records_here() {
    let registry = Arc::new(Prometheus::new());
    let meter = Meters::new(registry.clone()).meter("test");
    let counter = meter
        .u64_counter("http.requests")
        .with_description("Requests")
        .build();
    counter.add(
        2,
        &[KeyValue::new("http.method", "GET"), KeyValue::new("code", 200)],
    );
    counter.add(
        3,
        &[KeyValue::new("code", 200), KeyValue::new("http.method", "GET")],
    );
    counter.add(1, &[KeyValue::new("code", 500)]);
    meter
        .f64_histogram("time")
        .with_unit("s")
        .with_boundaries(vec![1.0])
        .build()
        .record(0.5, &[]);
    meter.i64_up_down_counter("open").build().add(-2, &[]);
    meter.f64_up_down_counter("level").build().add(-0.5, &[]);
    meter.u64_gauge("depth").build().record(7, &[]);
    let page = kit::samples(&registry.prometheus_format_str());
    let expected = [
        (r"depth{}", 7.0),
        (r#"http_requests_total{code="200",http_method="GET"}"#, 5.0),
        (r#"http_requests_total{code="500"}"#, 1.0),
        (r"level{}", -0.5),
        (r"open{}", -2.0),
        (r#"time_seconds_bucket{le="+Inf"}"#, 1.0),
        (r#"time_seconds_bucket{le="1"}"#, 1.0),
        (r"time_seconds_count{}", 1.0),
        (r"time_seconds_sum{}", 0.5),
    ];
    assert_eq!(
        page,
        expected.map(|(name, value)| (name.to_owned(), value)).into()
    );
}

#[test]
fn the_metrics_facade_records_here() {
    let registry = Arc::new(Prometheus::new());
    let before = tidegate_metrics::misused();
    metrics::with_local_recorder(&Facade::new(registry.clone()), || {
        metrics::describe_histogram!("wait-time", metrics::Unit::Seconds, "Waiting");
        metrics::counter!("requests", "model" => "m", "code" => "200").increment(2);
        metrics::counter!("requests", "code" => "200", "model" => "m").increment(1);
        metrics::counter!("requests", "code" => "500", "other" => "left out").increment(1);
        metrics::counter!("total").absolute(9);
        metrics::gauge!("depth").set(4.0);
        metrics::gauge!("depth").decrement(1.0);
        metrics::histogram!("wait-time").record(0.5);
    });
    assert!(tidegate_metrics::misused() > before);
    let page = kit::samples(&registry.prometheus_format_str());
    let of = |name: &str| page[name];
    assert_eq!(of(r#"requests_total{code="200",model="m"}"#), 3.0);
    assert_eq!(of(r#"requests_total{code="500"}"#), 1.0);
    assert_eq!((of("total{}"), of("depth{}")), (9.0, 3.0));
    assert_eq!(
        (of("wait_time_seconds_sum{}"), of("wait_time_seconds_count{}")),
        (0.5, 1.0)
    );
}

#[test]
fn what_other_libraries_can_not_register_is_reported_and_does_nothing() {
    let registry = Arc::new(Prometheus::new());
    let _gauge = registry.gauge(&Description::new("a", ""), &[]).unwrap();
    let meter = Meters::new(registry.clone()).meter("test");
    meter.u64_counter("a").build().add(1, &[]);
    assert_eq!(registry.gather().len(), 1);
}
