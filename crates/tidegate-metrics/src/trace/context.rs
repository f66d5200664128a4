// SPDX-License-Identifier: Apache-2.0

//! W3C trace context: which span a request belongs to, as two headers.

use std::fmt;
use std::str::FromStr;

use crate::SpanRef;

/// The header that names the span.
const TRACEPARENT: &str = "traceparent";
/// The header with what vendors have to say.
const TRACESTATE: &str = "tracestate";
/// A trace state longer than this is omitted, as the specification allows.
const MAX_STATE: usize = 512;

/// Which span a request belongs to (W3C Trace Context, level 1).
///
/// ```
/// # use tidegate_metrics::TraceContext;
/// let context: TraceContext = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse()?;
/// assert!(context.is_sampled);
/// let mut headers = Vec::new();
/// context.inject(|name, value| headers.push((name.to_owned(), value.to_owned())));
/// assert_eq!(headers[0].1, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
/// # Ok::<(), tidegate_metrics::BadContext>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The span.
    pub span: SpanRef,
    /// Whether it is recorded.
    pub is_sampled: bool,
    /// The data of vendors; passed on as it is.
    pub state: String,
}

/// A `traceparent` that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a traceparent: expected 00-<32 hexadecimal digits>-<16 of them>-<2 of them>")]
pub struct BadContext;

impl TraceContext {
    /// The context of a request, by its headers (names in lower case). `None`: it has none, or one that makes no sense,
    /// which has to be ignored.
    pub fn extract<'a>(header: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        let mut context: Self = header(TRACEPARENT)?.parse().ok()?;
        let state = header(TRACESTATE).unwrap_or_default().trim();
        if state.len() <= MAX_STATE && state.chars().all(|c| (' '..='~').contains(&c)) {
            state.clone_into(&mut context.state);
        }
        Some(context)
    }

    /// The headers of a request that belongs to it.
    pub fn inject(&self, mut set: impl FnMut(&str, &str)) {
        set(TRACEPARENT, &self.to_string());
        if !self.state.is_empty() {
            set(TRACESTATE, &self.state);
        }
    }

    /// The span that this thread is in: OpenTelemetry's, and with it that of `tracing` where its layer is there.
    #[cfg(feature = "otel")]
    pub fn current() -> Option<Self> {
        opentelemetry::Context::map_current(Self::of)
    }

    /// The span of an OpenTelemetry context.
    #[cfg(feature = "otel")]
    pub fn of(context: &opentelemetry::Context) -> Option<Self> {
        use opentelemetry::trace::TraceContextExt;
        let span = context.span();
        let span = span.span_context();
        Some(Self {
            span: SpanRef::new(span.trace_id().to_bytes(), span.span_id().to_bytes())?,
            is_sampled: span.is_sampled(),
            state: span.trace_state().header(),
        })
    }

    /// As an OpenTelemetry context whose span is this one, in another process.
    #[cfg(feature = "otel")]
    pub fn to_otel(&self) -> opentelemetry::Context {
        use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
        let flags = if self.is_sampled {
            TraceFlags::SAMPLED
        } else {
            TraceFlags::default()
        };
        let context = SpanContext::new(
            TraceId::from_bytes(self.span.trace),
            SpanId::from_bytes(self.span.span),
            flags,
            true,
            TraceState::from_str(&self.state).unwrap_or_default(),
        );
        opentelemetry::Context::new().with_remote_span_context(context)
    }
}

/// Has recording ask OpenTelemetry for the span that a thread is in: instruments described with exemplars remember it.
/// `false`: another source is set already.
#[cfg(feature = "otel")]
pub fn exemplars_from_otel() -> bool {
    crate::set_source(|| {
        use opentelemetry::trace::TraceContextExt;
        opentelemetry::Context::map_current(|context| {
            let span = context.span();
            let span = span.span_context();
            // A span that is not sampled is not exported.
            span.is_sampled()
                .then(|| SpanRef::new(span.trace_id().to_bytes(), span.span_id().to_bytes()))
                .flatten()
        })
    })
}

impl FromStr for TraceContext {
    type Err = BadContext;

    /// Reads a `traceparent`. Of versions to come only the beginning is read, as the specification wants it.
    fn from_str(text: &str) -> Result<Self, BadContext> {
        let text = text.trim();
        let mut parts = text.splitn(5, '-');
        let mut part = |digits: usize| {
            let part = parts
                .next()
                .filter(|part| part.len() == digits)
                .ok_or(BadContext)?;
            let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
            part.chars().all(is_digit).then_some(part).ok_or(BadContext)
        };
        let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return Err(BadContext);
        }
        let trace = u128::from_str_radix(trace, 16).map_err(|_| BadContext)?;
        let span = u64::from_str_radix(span, 16).map_err(|_| BadContext)?;
        let flags = u8::from_str_radix(flags, 16).map_err(|_| BadContext)?;
        Ok(Self {
            span: SpanRef::new(trace.to_be_bytes(), span.to_be_bytes()).ok_or(BadContext)?,
            is_sampled: flags & 1 == 1,
            state: String::new(),
        })
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.is_sampled);
        write!(
            f,
            "00-{}-{}-{flags:02x}",
            self.span.trace_hex(),
            self.span.span_hex()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_context_reads_back_and_nonsense_is_none() {
        let context: TraceContext = GOOD.parse().unwrap();
        assert_eq!(context.to_string(), GOOD);
        let later = "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-what comes";
        assert!(!later.parse::<TraceContext>().unwrap().is_sampled);
        for bad in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-ä-b7ad6b7169203331-01",
        ] {
            assert_eq!(bad.parse::<TraceContext>(), Err(BadContext), "{bad}");
        }
    }

    #[test]
    fn headers_carry_it_with_the_state() {
        let state = "a=1,b=2";
        let header = |name: &str| match name {
            "traceparent" => Some(GOOD),
            "tracestate" => Some(state),
            _ => None,
        };
        let context = TraceContext::extract(header).unwrap();
        let mut headers = Vec::new();
        context.inject(|name, value| headers.push(format!("{name}: {value}")));
        assert_eq!(
            headers,
            [format!("traceparent: {GOOD}"), format!("tracestate: {state}")]
        );
        assert_eq!(TraceContext::extract(|_| None), None);
    }

    #[cfg(feature = "otel")]
    #[test]
    fn it_goes_through_opentelemetry_and_back() {
        let mut context: TraceContext = GOOD.parse().unwrap();
        context.state = "a=1".to_owned();
        assert_eq!(TraceContext::of(&context.to_otel()), Some(context.clone()));
        let _inside = context.to_otel().attach();
        assert_eq!(TraceContext::current(), Some(context));
    }
}
