// SPDX-License-Identifier: Apache-2.0

//! A declared set of metrics, served over HTTP, and a composite of them.

use std::{sync::Arc, time::Duration};
use tidegate_metrics::{
    Counter, Gauge, Histogram, MetricSet, MetricsRegistry, Prometheus, Trigger, serve_http,
};

#[derive(MetricSet)]
#[metrics(prefix = "service", labels(model))]
struct Service {
    /// Requests processed.
    requests: Counter,
    /// Requests in flight.
    inflight: Gauge,
    /// Time to the first token.
    #[metric(unit = "s", buckets = "latency")]
    ttft: Histogram,
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let registry = Arc::new(Prometheus::new());
    let server = serve_http(registry.clone(), "127.0.0.1:0")?; // /metrics, /health, /live
    let service = Service::register(&registry, &[("model", "llama")])?;

    // A composite sees what is recorded after it was made.
    let ttft = registry
        .composite("ttft")
        .of(&service.ttft)
        .window(Duration::from_secs(10))
        .build()?;
    let _alarm = ttft.on_change(Trigger::above(0.5).hysteresis(0.1), |change| {
        println!("slow: {:.2} s", change.value);
    })?;

    service.requests.inc();
    let _one = service.inflight.track(); // until it is dropped
    service.ttft.observe(0.2); // or start_timer(), or time(|| ..)

    println!("{:?}", ttft.get().avg); // Some(0.2)
    println!("scrape http://{}/metrics", server.address());
    print!("{}", registry.prometheus_format_str());
    Ok(())
}
