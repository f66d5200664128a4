// SPDX-License-Identifier: Apache-2.0

//! A request in flight in cells, until the process ends, as `docs/guides/sdk.md` shows it.

use std::{path::Path, thread::sleep, time::Duration};

use tidegate_metrics::{Gauge, MetricSet, Shm};

#[derive(MetricSet)]
#[metrics(prefix = "demo", labels(language))]
struct Worker {
    /// Requests in flight
    inflight: Gauge,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let registry = Shm::create(Path::new("cells/demo"), &[("service.name", "demo")])?;
    let worker = Worker::register(&registry, &[("language", "rust")])?;
    let _request = worker.inflight.track();
    sleep(Duration::from_secs(600));
    Ok(())
}
