// SPDX-License-Identifier: Apache-2.0

//! The registry that pushes OTLP, for programs that may fork: the thread that pushes is its maker's only.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use tidegate_metrics::{
    AnyFamily, ExportError, FamilySpec, FamilyValues, MetricsRegistry, Otel, OtelError, Protocol,
    RegisterError, Temporality, Tracer, set_reporter,
};

use super::LabelPairs;

/// How values are pushed; what is `None` is as the environment says. Times in seconds.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PushOptions {
    endpoint: Option<String>,
    protocol: Option<String>,
    temporality: Option<String>,
    interval: Option<f64>,
    timeout: Option<f64>,
    headers: LabelPairs,
    resource: LabelPairs,
}

impl PushOptions {
    pub(super) fn build(self) -> PyResult<Pushing> {
        set_reporter(report);
        let mut builder = Otel::builder().env().map_err(refused)?;
        if let Some(endpoint) = self.endpoint {
            builder = builder.endpoint(endpoint);
        }
        if let Some(name) = self.protocol {
            builder = builder.protocol(match name.as_str() {
                "grpc" => Protocol::Grpc,
                "http/protobuf" => Protocol::Http,
                _ => return Err(wrong("protocol", &name, "grpc or http/protobuf")),
            });
        }
        if let Some(name) = self.temporality {
            builder = builder.temporality(match name.as_str() {
                "cumulative" => Temporality::Cumulative,
                "delta" => Temporality::Delta,
                _ => return Err(wrong("temporality", &name, "cumulative or delta")),
            });
        }
        if let Some(interval) = self.interval {
            builder = builder.interval(seconds(interval)?);
        }
        if let Some(timeout) = self.timeout {
            builder = builder.timeout(seconds(timeout)?);
        }
        builder = self
            .headers
            .into_iter()
            .fold(builder, |builder, (k, v)| builder.header(k, v));
        builder = self
            .resource
            .into_iter()
            .fold(builder, |builder, (k, v)| builder.resource(k, v));
        Ok(Pushing {
            otel: builder.build().map_err(refused)?,
            process: std::process::id(),
            is_shut: AtomicBool::new(false),
        })
    }
}

/// The registry and the process that pushes.
pub(crate) struct Pushing {
    otel: Otel,
    process: u32,
    is_shut: AtomicBool,
}

impl Pushing {
    /// Pushes that failed, and points that the collector refused.
    pub(super) fn failures(&self) -> (u64, u64) {
        (self.otel.failed_pushes(), self.otel.rejected_points())
    }

    fn check(&self) -> Result<(), ExportError> {
        if self.process == std::process::id() {
            return Ok(());
        }
        let why = "the registry is of the process that this one was forked from: make one after the fork";
        Err(ExportError::Peer(why.to_owned()))
    }
}

impl MetricsRegistry for Pushing {
    fn register(&self, spec: &FamilySpec) -> Result<AnyFamily, RegisterError> {
        self.otel.register(spec)
    }

    fn gather(&self) -> Vec<FamilyValues> {
        self.otel.gather()
    }

    fn tracer(&self) -> Tracer {
        // In a child of a fork no thread would send the spans.
        self.check()
            .map_or_else(|_| Tracer::default(), |()| self.otel.tracer())
    }

    fn flush(&self, within: Duration) -> Result<(), ExportError> {
        self.check()?;
        self.otel.flush(within)
    }

    /// The second time there is nothing to do.
    fn shutdown(&self, within: Duration) -> Result<(), ExportError> {
        self.check()?;
        if self.is_shut.swap(true, Relaxed) {
            Ok(())
        } else {
            self.otel.shutdown(within)
        }
    }
}

/// Into Python's log; on standard error once the interpreter has ended.
fn report(text: &str) {
    let log = |py: Python<'_>| {
        let told = py.import("tidegate._report")?.call_method1("warn", (text,));
        told.map(drop)
    };
    if !matches!(Python::try_attach(log), Some(Ok(()))) {
        eprintln!("tidegate: {text}");
    }
}

fn seconds(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn wrong(what: &str, name: &str, expected: &str) -> PyErr {
    PyValueError::new_err(format!("{what} {name}: expected {expected}"))
}

fn refused(error: OtelError) -> PyErr {
    match error {
        OtelError::Io(error) => PyOSError::new_err(error.to_string()),
        error => PyValueError::new_err(error.to_string()),
    }
}
