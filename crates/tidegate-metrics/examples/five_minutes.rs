//! A declared set of metrics, served over HTTP, and a composite that calls back.
//!
//! `cargo run -p tidegate-metrics --example five_minutes`

use std::sync::Arc;
use std::time::Duration;

use tidegate_metrics::{
    Counter, CounterFamily, Gauge, Histogram, MetricSet, MetricsRegistry, Prometheus, Trigger, serve_http,
};

#[derive(MetricSet)]
#[metrics(prefix = "service", labels(model))]
struct Service {
    /// Requests processed.
    requests: Counter,
    /// Answers by status.
    #[metric(labels(code))]
    answers: CounterFamily,
    /// Requests in flight.
    inflight: Gauge,
    /// Time to the first token.
    #[metric(unit = "s", buckets = "latency")]
    ttft: Histogram,
}

pub(crate) fn main() {
    run().unwrap_or_else(|error| panic!("{error}"));
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let registry = Arc::new(Prometheus::new());
    let server = serve_http(registry.clone(), "127.0.0.1:0")?;
    let service = Service::register(&registry, &[("model", "llama")])?;

    let (slow, heard) = std::sync::mpsc::channel();
    let ttft = registry
        .composite("ttft")
        .of(&service.ttft)
        .window(Duration::from_secs(10))
        .build()?;
    let _alarm = ttft.on_change(Trigger::above(0.5).hysteresis(0.1), move |change| {
        // Sending fails only when nobody listens any more.
        let _ = slow.send((change.is_crossed, change.value));
    })?;

    for (code, took) in [("200", 0.25), ("200", 0.75), ("503", 2.0)] {
        let _one = service.inflight.track();
        service.requests.inc();
        service.answers.with(&[code]).inc();
        service.ttft.observe(took);
    }

    let now = ttft.get();
    assert_eq!((now.min, now.avg, now.max), (Some(0.25), Some(1.0), Some(2.0)));
    let (is_slow, value) = heard.recv_timeout(Duration::from_secs(20))?;
    println!(
        "slow: {is_slow}, {value:.2} s on average; scrape http://{}/metrics",
        server.address()
    );
    print!("{}", registry.prometheus_format_str());
    Ok(())
}
