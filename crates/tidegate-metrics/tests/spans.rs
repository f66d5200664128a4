// SPDX-License-Identifier: Apache-2.0

//! Spans that reach a collector: from a program without a runtime, without those of the sending itself, with those of
//! the last moment.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[path = "../examples/spans.rs"]
mod guide;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use tidegate_metrics::{Counter, Fanout, MetricSet, MetricsRegistry, Null, Otel, Spans, Tracer};
use tonic::{Request, Response, Status};
use tracing_subscriber::prelude::*;

const SOON: Duration = Duration::from_secs(60);

#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    metrics: Arc<Mutex<Vec<ExportMetricsServiceRequest>>>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.spans.lock().unwrap().push(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Collector {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.metrics.lock().unwrap().push(request.into_inner());
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

impl Collector {
    fn start() -> (SocketAddr, Self) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let collector = Self::default();
        let (spans, metrics) = (collector.clone(), collector.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            // The test does not cover the collector's own spans.
            let quiet = tracing::subscriber::NoSubscriber::default();
            let _quiet = tracing::subscriber::set_default(quiet);
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let incoming = tonic::transport::server::TcpIncoming::from(listener);
                let server = tonic::transport::Server::builder()
                    .add_service(TraceServiceServer::new(spans))
                    .add_service(MetricsServiceServer::new(metrics));
                server.serve_with_incoming(incoming).await.unwrap();
            });
        });
        (address, collector)
    }

    /// Names of the spans that arrived.
    fn names(&self) -> Vec<String> {
        let requests = self.spans.lock().unwrap();
        let resources = requests.iter().flat_map(|request| &request.resource_spans);
        let scopes = resources.flat_map(|resource| &resource.scope_spans);
        let spans = scopes.flat_map(|scope| &scope.spans);
        spans.map(|span| span.name.clone()).collect()
    }
}

fn attributes(resource: Option<&Resource>) -> BTreeMap<String, String> {
    let attributes = &resource.unwrap().attributes;
    attributes
        .iter()
        .map(|attribute| (attribute.key.clone(), format!("{:?}", attribute.value)))
        .collect()
}

/// The only test here with a subscriber for all threads: what sending makes would be seen.
#[test]
fn one_span_of_a_program_without_a_runtime_arrives_as_one() {
    let (address, collector) = Collector::start();
    let spans = Spans::builder()
        .endpoint(format!("http://{address}"))
        .resource("service.name", "test")
        .build()
        .unwrap();
    tracing_subscriber::registry().with(spans.layer()).init();
    tracing::info_span!("first").in_scope(|| ());
    spans.flush().unwrap();
    // Spans that the first push made would leave with these.
    spans.flush().unwrap();
    spans.flush().unwrap();
    tracing::info_span!("last").in_scope(|| ());
    drop(spans);
    assert_eq!(collector.names(), ["first", "last"]);
}

#[derive(MetricSet)]
struct Worker {
    /// Requests processed.
    requests: Counter,
    /// The spans of this worker.
    spans: Tracer,
}

#[test]
fn struct_spans_and_registry_are_of_one_resource_and_go_one_way() {
    let (address, collector) = Collector::start();
    let registry = Otel::builder()
        .endpoint(format!("http://{address}"))
        .resource("service.name", "test")
        .build()
        .unwrap();
    let registry = Arc::new(registry);
    // Within a runtime as well, and through another registry.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let inside = runtime.enter();
    let fanout = Fanout::new(vec![Arc::new(Null::default()), registry.clone()]);
    let worker = Worker::register(&fanout, &[]).unwrap();
    assert!(worker.spans.is_real());
    let outer = worker.spans.start("outer");
    let remote = outer.context().unwrap();
    {
        let inner = worker.spans.start("inner");
        inner.set("model", "llama");
        inner.fail("of the test");
        worker.requests.inc();
    }
    drop(outer);
    drop(worker.spans.start_within("from elsewhere", Some(&remote)));
    registry.shutdown(SOON).unwrap();
    drop(inside);
    assert_eq!(collector.names(), ["inner", "outer", "from elsewhere"]);
    let spans = collector.spans.lock().unwrap();
    let of_spans = &spans[0].resource_spans[0];
    let found = &of_spans.scope_spans[0].spans;
    assert_eq!(found[0].parent_span_id, found[1].span_id);
    assert_eq!(found[2].parent_span_id, found[1].span_id);
    assert_eq!(found[0].status.as_ref().unwrap().message, "of the test");
    let metrics = collector.metrics.lock().unwrap();
    let of_metrics = attributes(metrics[0].resource_metrics[0].resource.as_ref());
    assert_eq!(attributes(of_spans.resource.as_ref()), of_metrics);
    assert!(of_metrics.contains_key("service.instance.id"), "{of_metrics:?}");
}

#[test]
fn a_registry_without_a_way_for_spans_makes_none() {
    let worker = Worker::register(&Null::default(), &[]).unwrap();
    assert!(!worker.spans.is_real());
    assert!(worker.spans.start("request").context().is_none());
}

#[test]
#[ignore = "the next test runs it in a process of its own"]
fn program_of_the_guide() {
    guide::main().unwrap();
}

#[test]
fn the_guide_s_program_sends_its_spans_and_values() {
    let (address, collector) = Collector::start();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "program_of_the_guide", "--ignored", "--nocapture"])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}"))
        .env("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=mine")
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    assert!(
        printed.contains("traceparent: 00-0af7651916cd43dd8448eb211c80319c-"),
        "{printed}"
    );
    assert_eq!(collector.names(), ["request", "generate"]);
    let metrics = collector.metrics.lock().unwrap();
    let resource = attributes(metrics[0].resource_metrics[0].resource.as_ref());
    assert!(resource["service.instance.id"].contains("mine"), "{resource:?}");
}
