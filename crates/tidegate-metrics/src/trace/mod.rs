// SPDX-License-Identifier: Apache-2.0

//! Spans and their context: W3C trace context in and out, and exemplars that link metrics with spans.

mod context;
#[cfg(feature = "tracing")]
mod spans;
mod tracer;

#[cfg(feature = "otel")]
pub use context::exemplars_from_otel;
pub use context::{BadContext, TraceContext};
#[cfg(feature = "tracing")]
pub(crate) use spans::export_runtime;
#[cfg(feature = "tracing")]
pub use spans::{Spans, SpansBuilder};
pub use tracer::{ActiveSpan, DetachedSpan, Tracer};
