// SPDX-License-Identifier: Apache-2.0

//! Spans that belong to a registry, as its instruments do.

use std::marker::PhantomData;

#[cfg(feature = "tracing")]
use opentelemetry::trace::{SpanBuilder, Status, TraceContextExt, Tracer as _};
#[cfg(feature = "tracing")]
use opentelemetry::{Context, ContextGuard, KeyValue};

use super::TraceContext;
use crate::registry::{Labels, MetricsRegistry};
use crate::set::Member;
use crate::{Description, RegisterError};

/// Makes spans that go where the values of its registry go: a field of a `MetricSet`, or
/// [`MetricsRegistry::tracer`]. Of a registry without a way for spans it makes none.
///
/// ```
/// use tidegate_metrics::{Counter, MetricSet, Prometheus, Tracer};
///
/// #[derive(MetricSet)]
/// struct Worker {
///     /// Requests processed.
///     requests: Counter,
///     /// The spans of this worker.
///     spans: Tracer,
/// }
///
/// let worker = Worker::register(&Prometheus::new(), &[])?;
/// let span = worker.spans.start("request");
/// span.set("model", "llama");
/// worker.requests.inc();
/// # Ok::<(), tidegate_metrics::RegisterError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Tracer {
    #[cfg(feature = "tracing")]
    sdk: Option<opentelemetry_sdk::trace::SdkTracer>,
}

impl Tracer {
    #[cfg(feature = "tracing")]
    pub(crate) fn of(sdk: opentelemetry_sdk::trace::SdkTracer) -> Self {
        Self { sdk: Some(sdk) }
    }

    /// Whether its spans go anywhere.
    pub fn is_real(&self) -> bool {
        #[cfg(feature = "tracing")]
        return self.sdk.is_some();
        #[cfg(not(feature = "tracing"))]
        return false;
    }

    /// Begins a span within the one that this thread is in. It is the thread's span until it is dropped, which ends it.
    pub fn start(&self, name: &str) -> ActiveSpan {
        self.start_within(name, None)
    }

    /// Begins a span that another process caused; `None`: as [`Self::start`].
    pub fn start_within(&self, name: &str, parent: Option<&TraceContext>) -> ActiveSpan {
        let span = self.begin(name, parent);
        ActiveSpan {
            #[cfg(feature = "tracing")]
            _within: span.0.clone().map(Context::attach),
            span,
            of_thread: PhantomData,
        }
    }

    /// Begins a span that does not belong to a thread: for tasks that move between threads, and for other languages.
    /// `None`: within the span that this thread is in.
    pub fn begin(&self, name: &str, parent: Option<&TraceContext>) -> DetachedSpan {
        #[cfg(feature = "tracing")]
        if let Some(sdk) = &self.sdk {
            let parent = parent.map_or_else(Context::current, TraceContext::to_otel);
            let span = sdk.build_with_context(SpanBuilder::from_name(name.to_owned()), &parent);
            return DetachedSpan(Some(parent.with_span(span)));
        }
        let _ = (name, parent);
        DetachedSpan::default()
    }
}

/// A span that has begun. Dropping it ends the span.
#[derive(Debug, Default)]
#[must_use = "a span ends when it is dropped"]
pub struct DetachedSpan(#[cfg(feature = "tracing")] Option<Context>);

impl DetachedSpan {
    /// Gives it an attribute.
    pub fn set(&self, key: &str, value: &str) {
        #[cfg(feature = "tracing")]
        if let Some(context) = &self.0 {
            let attribute = KeyValue::new(key.to_owned(), value.to_owned());
            context.span().set_attribute(attribute);
        }
        let _ = (key, value);
    }

    /// Says that it failed, and why.
    pub fn fail(&self, reason: &str) {
        #[cfg(feature = "tracing")]
        if let Some(context) = &self.0 {
            context.span().set_status(Status::error(reason.to_owned()));
        }
        let _ = reason;
    }

    /// The context that requests to other programs carry; `None`: its registry does not send spans.
    pub fn context(&self) -> Option<TraceContext> {
        #[cfg(feature = "tracing")]
        if let Some(context) = &self.0 {
            return TraceContext::of(context);
        }
        None
    }
}

#[cfg(feature = "tracing")]
impl Drop for DetachedSpan {
    fn drop(&mut self) {
        if let Some(context) = &self.0 {
            context.span().end();
        }
    }
}

/// The span that this thread is in. Dropping it ends the span.
#[derive(Debug)]
#[must_use = "a span ends when it is dropped"]
pub struct ActiveSpan {
    span: DetachedSpan,
    #[cfg(feature = "tracing")]
    _within: Option<ContextGuard>,
    /// It stays on its thread.
    of_thread: PhantomData<*const ()>,
}

impl std::ops::Deref for ActiveSpan {
    type Target = DetachedSpan;

    fn deref(&self) -> &DetachedSpan {
        &self.span
    }
}

impl Member for Tracer {
    fn register(
        registry: &dyn MetricsRegistry,
        _: &Description,
        _: Labels<'_>,
        _: &[&str],
    ) -> Result<Self, RegisterError> {
        Ok(registry.tracer())
    }
}
