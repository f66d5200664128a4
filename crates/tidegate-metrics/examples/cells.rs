// SPDX-License-Identifier: Apache-2.0

//! Requests and their latency in cells, as `docs/guides/sdk.md` shows it in three languages.

use std::path::Path;

use tidegate_metrics::{Counter, Histogram, MetricSet, Shm};

#[derive(MetricSet)]
#[metrics(prefix = "demo", labels(language))]
struct Demo {
    /// Requests answered
    requests: Counter,
    /// Time of a request
    #[metric(unit = "s", buckets = "latency")]
    latency: Histogram,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let registry = Shm::create(Path::new("cells/demo"), &[("service.name", "demo")])?;
    let demo = Demo::register(&registry, &[("language", "rust")])?;
    for number in 1..=100 {
        demo.requests.inc();
        demo.latency.observe(f64::from(number) * 0.001);
    }
    Ok(())
}
