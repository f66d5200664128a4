// SPDX-License-Identifier: Apache-2.0

//! Reports of the library's own errors.

use std::sync::OnceLock;

static REPORTER: OnceLock<fn(&str)> = OnceLock::new();

/// Sets the callback for errors without a caller, for example of a push in the background:
/// for programs with logs of another kind than `tracing`. The first one that is set stays; `false`: there was one.
pub fn set_reporter(reporter: fn(&str)) -> bool {
    REPORTER.set(reporter).is_ok()
}

/// Reports an error that has no caller.
#[cfg(any(
    feature = "composites",
    feature = "http",
    feature = "metrics-facade",
    feature = "otel"
))]
pub(crate) fn error(text: &str) {
    if let Some(reporter) = REPORTER.get() {
        return reporter(text);
    }
    #[cfg(feature = "tracing")]
    tracing::error!(target: "tidegate_metrics", "{text}");
    #[cfg(not(feature = "tracing"))]
    eprintln!("tidegate-metrics: {text}");
}
