// SPDX-License-Identifier: Apache-2.0

//! Spans, exported to an OpenTelemetry collector.

#![allow(unsafe_code)]

use std::ffi::c_char;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_metrics::{Spans, TraceContext};
use tracing::{Dispatch, Span, dispatcher, field};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;

use crate::arguments::{
    Growing, borrow, give, growing, labels, nanos, optional_text, output, release, retain, text, tg_label,
};
use crate::status::{Failure, guard, tg_status};
use crate::trace::tg_trace_context;

/// The time that a tracer without a shutdown waits for the export of its last spans.
const LAST_PUSH: Duration = Duration::from_secs(5);

/// Exports spans. Several threads may use one at once.
pub struct tg_tracer {
    dispatch: Dispatch,
    running: Mutex<Option<Spans>>,
}

/// Something that takes time. Any thread may use it.
pub struct tg_span(Span);

/// Where spans go. Zero is the default of every field; TG_TRACER() makes one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tg_tracer_options {
    /// sizeof(tg_tracer_options).
    pub size: usize,
    /// Over gRPC to this collector, http://host:port; NULL: what the environment variables of OpenTelemetry say, or
    /// http://127.0.0.1:4317.
    pub endpoint: *const c_char,
    /// Attributes of the resource: "service.name" and the like.
    pub resource: *const tg_label,
    /// How many attributes.
    pub resource_count: usize,
}

// SAFETY: it begins with its size, and all fields may be zero.
unsafe impl Growing for tg_tracer_options {}

impl tg_tracer {
    fn lock(&self) -> MutexGuard<'_, Option<Spans>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shutdown(&self, within: Duration) -> Result<(), Failure> {
        let running = self.lock().take();
        running.map_or(Ok(()), |spans| Ok(spans.shutdown(within)?))
    }
}

impl Drop for tg_tracer {
    fn drop(&mut self) {
        // A caller that needs the result shuts it down itself.
        let _ = self.shutdown(LAST_PUSH);
    }
}

/// # Safety
/// As of [`tg_tracer_new`].
unsafe fn start(given: *const tg_tracer_options) -> Result<tg_tracer, Failure> {
    // SAFETY: the caller's promise, here and below.
    let options = unsafe { growing(given, "options") }?;
    let mut builder = Spans::builder();
    if let Some(endpoint) = unsafe { optional_text(options.endpoint, "endpoint") }? {
        builder = builder.endpoint(endpoint);
    }
    for (key, value) in unsafe { labels(options.resource, options.resource_count, "resource") }? {
        builder = builder.resource(key, value);
    }
    let spans = builder.build()?;
    // The code and the thread that `tracing` knows are those of this library, not of the program.
    let layer = spans
        .unfiltered_layer()
        .with_location(false)
        .with_threads(false)
        .with_target(false);
    let layer = layer.with_tracked_inactivity(false);
    Ok(tg_tracer {
        dispatch: Dispatch::new(tracing_subscriber::registry().with(layer)),
        running: Mutex::new(Some(spans)),
    })
}

/// Exports spans in batches, on threads of its own. `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_tracer_new(
    options: *const tg_tracer_options,
    tracer: *mut *mut tg_tracer,
) -> tg_status {
    // SAFETY: the contract of the header.
    guard(|| unsafe { give(tracer, || start(options)) })
}

/// Begins a span. `parent` is what caused it, here or in another process; NULL: nothing, it begins a trace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_span_start(
    tracer: *const tg_tracer,
    name: *const c_char,
    parent: *const tg_trace_context,
    span: *mut *mut tg_span,
) -> tg_status {
    let begin = || {
        // SAFETY: the contract of the header, here and below.
        let tracer = unsafe { borrow(tracer, "tracer") }?;
        let name = unsafe { text(name, "name") }?;
        let parent = unsafe { parent.as_ref() }
            .map(tg_trace_context::context)
            .transpose()?;
        let span = dispatcher::with_default(&tracer.dispatch, || {
            tracing::info_span!(
                parent: None,
                "span",
                otel.name = name,
                otel.status_code = field::Empty,
                otel.status_description = field::Empty,
            )
        });
        if let Some(parent) = parent {
            parent.adopt(&span);
        }
        Ok(tg_span(span))
    };
    guard(|| unsafe { give(span, begin) })
}

/// Says something about it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_span_set(
    span: *const tg_span,
    key: *const c_char,
    value: *const c_char,
) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header, here and below.
        let span = &unsafe { borrow(span, "span") }?.0;
        let (key, value) = unsafe { (text(key, "key")?, text(value, "value")?) };
        span.set_attribute(key.to_owned(), value.to_owned());
        Ok(())
    })
}

/// It failed, for this reason.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_span_fail(span: *const tg_span, reason: *const c_char) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header, here and below.
        let span = &unsafe { borrow(span, "span") }?.0;
        span.record("otel.status_code", "ERROR");
        span.record("otel.status_description", unsafe { text(reason, "reason") }?);
        Ok(())
    })
}

/// Its context: the parent of spans within, here or in another process, and what exemplars remember. TG_NONE: it has
/// none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_span_context(span: *const tg_span, context: *mut tg_trace_context) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header, here and below.
        let to = unsafe { output(context, tg_trace_context::NONE, "context") }?;
        let found = TraceContext::of_span(&unsafe { borrow(span, "span") }?.0);
        *to = tg_trace_context::of(&found.ok_or_else(|| Failure::none("it is of no trace"))?);
        Ok(())
    })
}

/// One owner more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_span_retain(span: *const tg_span) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { retain(span) }
}

/// One owner less. With the last one the span ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_span_release(span: *const tg_span) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { release(span) }
}

/// Gets out the spans that have ended. TG_NONE: it was shut down.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_tracer_flush(tracer: *const tg_tracer) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header.
        let running = unsafe { borrow(tracer, "tracer") }?.lock();
        let running = running
            .as_ref()
            .ok_or_else(|| Failure::none("it was shut down"))?;
        Ok(running.flush()?)
    })
}

/// Gets out the spans that have ended, within so much time, and stops: those that end later go nowhere.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_tracer_shutdown(tracer: *const tg_tracer, within_ns: u64) -> tg_status {
    // SAFETY: the contract of the header.
    guard(|| unsafe { borrow(tracer, "tracer") }?.shutdown(nanos(within_ns)))
}

/// One owner more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_tracer_retain(tracer: *const tg_tracer) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { retain(tracer) }
}

/// One owner less. With the last one it is shut down, within five seconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_tracer_release(tracer: *const tg_tracer) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { release(tracer) }
}
