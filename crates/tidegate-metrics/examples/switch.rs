// SPDX-License-Identifier: Apache-2.0

//! The same component against any registry: the argument chooses.
//!
//! `cargo run -p tidegate-metrics --example switch -- shm /dev/shm/metrics`

use std::path::Path;
use std::sync::Arc;

use tidegate_metrics::{
    Description, Fanout, MetricsRegistry, Null, OpenError, Prometheus, RegisterError, Scope, Shm,
};

/// The only function that knows.
fn registry(kind: &str, directory: &Path) -> Result<Arc<dyn MetricsRegistry>, OpenError> {
    Ok(match kind {
        "shm" => Arc::new(Shm::create(directory, &[("service.name", "switch")])?),
        "both" => Arc::new(Fanout::new(vec![
            Arc::new(Prometheus::new()),
            Arc::new(Shm::create(directory, &[])?),
        ])),
        "null" => Arc::new(Null::new()),
        _ => Arc::new(Prometheus::new()),
    })
}

/// A component, which doesn't.
fn component(registry: Arc<dyn MetricsRegistry>) -> Result<(), RegisterError> {
    let endpoint = Scope::new(registry)
        .prefix("dynamo_component")
        .namespace("demo")
        .component("worker")
        .endpoint("generate");
    let requests = endpoint.counter(&Description::new("requests", "Requests processed"), &[])?;
    (0..3).for_each(|_| requests.inc());
    Ok(())
}

/// The values that a registry shows afterwards.
pub(crate) fn show(kind: &str, directory: &Path) -> Result<String, Box<dyn std::error::Error>> {
    let registry = registry(kind, directory)?;
    component(registry.clone())?;
    Ok(registry.prometheus_format_str())
}

#[allow(dead_code, reason = "the test calls what it calls")]
fn main() {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_default();
    let directory = arguments.next().unwrap_or_else(|| "/dev/shm/metrics".to_owned());
    match show(&kind, Path::new(&directory)) {
        Ok(page) => print!("{page}"),
        Err(error) => eprintln!("{error}"),
    }
}
