// SPDX-License-Identifier: Apache-2.0

//! Values and spans of one program, by one way to one collector.

use tidegate_metrics::{Histogram, MetricSet, MetricsRegistry, Otel, TraceContext, Tracer};
use tracing_subscriber::prelude::*;

#[derive(MetricSet)]
#[metrics(prefix = "worker")]
struct Worker {
    /// Time to the first token.
    #[metric(unit = "s", exemplars)]
    ttft: Histogram,
    /// Spans, of the same resource and to the same collector.
    spans: Tracer,
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let registry = Otel::from_env()?; // OTEL_EXPORTER_OTLP_ENDPOINT, or http://127.0.0.1:4317
    let worker = Worker::register(&registry, &[])?;

    let span = worker.spans.start("request"); // until it is dropped
    span.set("model", "llama");
    worker.ttft.observe(0.2); // its exemplar names the span
    drop(span);

    // Spans of `tracing`, by the same way. The filter of the layer drops the spans of sending.
    tracing_subscriber::registry()
        .with(registry.spans()?.layer())
        .init();
    let headers = [(
        "traceparent",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )];
    let of = |name: &str| {
        headers
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| *value)
    };
    let span = tracing::info_span!("generate");
    if let Some(remote) = TraceContext::extract(of) {
        remote.adopt(&span); // what came in
    }
    if let Some(context) = TraceContext::of_span(&span) {
        context.inject(|name, value| println!("{name}: {value}")); // what goes out
    }
    drop(span);

    registry.shutdown(std::time::Duration::from_secs(5))?; // the last values and spans
    Ok(())
}
