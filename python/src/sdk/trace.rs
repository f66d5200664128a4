// SPDX-License-Identifier: Apache-2.0

//! W3C trace context, and the span that an observation remembers.

use std::sync::{Mutex, OnceLock, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tidegate_metrics::{DetachedSpan, SpanRef, Tracer, set_source};

/// Which span a request belongs to: what its headers `traceparent` and `tracestate` say.
#[pyclass(frozen, eq, hash, module = "tidegate._tidegate", from_py_object)]
#[derive(Clone, PartialEq)]
pub(crate) struct TraceContext(tidegate_metrics::TraceContext);

impl std::hash::Hash for TraceContext {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.span.hash(state);
    }
}

#[pymethods]
impl TraceContext {
    /// Of identifiers in hexadecimal; `ValueError` if they are none.
    #[new]
    #[pyo3(signature = (trace_id, span_id, *, is_sampled = true, state = String::new()))]
    fn new(trace_id: &str, span_id: &str, is_sampled: bool, state: String) -> PyResult<Self> {
        let mut context = parsed(&format!("00-{trace_id}-{span_id}-00"))?;
        (context.0.is_sampled, context.0.state) = (is_sampled, state);
        Ok(context)
    }

    /// The context in the headers; `None` if they have no valid one.
    #[staticmethod]
    fn _extract(parent: Option<&str>, state: Option<&str>) -> Option<Self> {
        let header = |name: &str| if name == "traceparent" { parent } else { state };
        tidegate_metrics::TraceContext::extract(header).map(Self)
    }

    /// The headers of a request that belongs to it.
    fn headers(&self) -> Vec<(String, String)> {
        let mut headers = Vec::new();
        self.0
            .inject(|name, value| headers.push((name.to_owned(), value.to_owned())));
        headers
    }

    /// The trace: 32 hexadecimal digits.
    #[getter]
    fn trace_id(&self) -> String {
        self.0.span.trace_hex().to_string()
    }

    /// The span: 16 hexadecimal digits.
    #[getter]
    fn span_id(&self) -> String {
        self.0.span.span_hex().to_string()
    }

    /// Whether it is recorded.
    #[getter]
    fn is_sampled(&self) -> bool {
        self.0.is_sampled
    }

    /// The data of vendors: `tracestate`.
    #[getter]
    fn state(&self) -> &str {
        &self.0.state
    }

    /// As `traceparent`.
    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<TraceContext {}>", self.0)
    }
}

/// Something that takes time. It ends with `_end`, or when no reference to it is left.
#[pyclass(frozen, module = "tidegate._tidegate")]
pub(crate) struct Span(Mutex<Option<DetachedSpan>>);

impl Span {
    pub(crate) fn begin(tracer: &Tracer, name: &str, parent: Option<&TraceContext>) -> Self {
        let span = tracer.begin(name, parent.map(|context| &context.0));
        Self(Mutex::new(Some(span)))
    }

    fn with<T>(&self, of: impl FnOnce(&DetachedSpan) -> T) -> Option<T> {
        let span = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        span.as_ref().map(of)
    }
}

#[pymethods]
impl Span {
    /// Gives it an attribute; after its end, nothing.
    fn set(&self, key: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let value = value.str()?.to_string();
        self.with(|span| span.set(key, &value));
        Ok(())
    }

    /// Says that it failed, and why.
    fn fail(&self, reason: &str) {
        self.with(|span| span.fail(reason));
    }

    /// The context that requests to other programs carry; `None` if the registry sends no spans, and after its end.
    #[getter]
    fn context(&self) -> Option<TraceContext> {
        self.with(DetachedSpan::context)?.map(TraceContext)
    }

    fn _end(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn __repr__(&self) -> String {
        match self.context() {
            Some(context) => format!("<tidegate.Span {}>", context.0),
            None => "<tidegate.Span>".to_owned(),
        }
    }
}

fn parsed(parent: &str) -> PyResult<TraceContext> {
    let context = parent.parse().map(TraceContext);
    context.map_err(|_| PyValueError::new_err(format!("{parent}: no identifiers of a trace and a span")))
}

/// The callable that gives the span of the calling thread or task, as a `TraceContext` or `None`.
static SOURCE: OnceLock<Py<PyAny>> = OnceLock::new();

/// Has recording ask `source` for the span, where a family keeps exemplars. The first one stays.
#[pyfunction]
pub(crate) fn set_span_source(source: Py<PyAny>) {
    if SOURCE.set(source).is_ok() {
        set_source(current);
    }
}

/// The span that the interpreter is in. `None` if the span is not sampled: it is not exported.
fn current() -> Option<SpanRef> {
    Python::try_attach(|py| {
        let context = SOURCE.get()?.bind(py).call0().ok()?;
        let context = context.cast::<TraceContext>().ok()?.get();
        context.0.is_sampled.then_some(context.0.span)
    })?
}
