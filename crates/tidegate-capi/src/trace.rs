// SPDX-License-Identifier: Apache-2.0

//! W3C trace context: which span a request belongs to, in and out.

#![allow(unsafe_code)]

use std::ffi::c_char;

use tidegate_metrics::{SpanRef, TraceContext};

use crate::arguments::{borrow, optional_text, output, text};
use crate::status::{Failure, guard, tg_status};

/// Bytes of a traceparent with its NUL.
pub const TG_TRACEPARENT_SIZE: usize = 56;

/// Room for a tracestate with its NUL: a longer one is omitted, as the specification allows.
pub const TG_TRACESTATE_SIZE: usize = 513;

/// Which span a request belongs to (W3C Trace Context, level 1).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tg_trace_context {
    /// The trace; not all zero.
    pub trace: [u8; 16],
    /// The span; not all zero.
    pub span: [u8; 8],
    /// Whether it is recorded.
    pub is_sampled: bool,
    /// The data of vendors; passed on as it is.
    pub state: [c_char; TG_TRACESTATE_SIZE],
}

impl tg_trace_context {
    pub(crate) const NONE: Self = Self {
        trace: [0; 16],
        span: [0; 8],
        is_sampled: false,
        state: [0; TG_TRACESTATE_SIZE],
    };

    pub(crate) fn of(context: &TraceContext) -> Self {
        let mut own = Self::NONE;
        (own.trace, own.span) = (context.span.trace, context.span.span);
        own.is_sampled = context.is_sampled;
        if context.state.len() < TG_TRACESTATE_SIZE {
            for (to, byte) in own.state.iter_mut().zip(context.state.bytes()) {
                *to = byte as c_char;
            }
        }
        own
    }

    pub(crate) fn context(&self) -> Result<TraceContext, Failure> {
        let state = self.state.iter().map(|c| *c as u8).take_while(|byte| *byte != 0);
        let state = String::from_utf8(state.collect());
        Ok(TraceContext {
            span: self.reference()?,
            is_sampled: self.is_sampled,
            state: state.map_err(|_| Failure::invalid("`state` is not UTF-8"))?,
        })
    }

    fn reference(&self) -> Result<SpanRef, Failure> {
        let span = SpanRef::new(self.trace, self.span);
        span.ok_or_else(|| Failure::invalid("a trace or span of zeros is none"))
    }
}

/// The span that something happened in.
///
/// # Safety
/// `span` is NULL or leads to a context.
pub(crate) unsafe fn span_of(span: *const tg_trace_context) -> Result<SpanRef, Failure> {
    // SAFETY: the caller's promise.
    unsafe { borrow(span, "span") }?.reference()
}

/// Reads the headers of a request. `tracestate` may be NULL. TG_NONE: the first is not a traceparent; ignore it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_trace_context_parse(
    traceparent: *const c_char,
    tracestate: *const c_char,
    context: *mut tg_trace_context,
) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header, here and below.
        let to = unsafe { output(context, tg_trace_context::NONE, "context") }?;
        let parent = unsafe { text(traceparent, "traceparent") }?;
        let state = unsafe { optional_text(tracestate, "tracestate") }?;
        let header = |name: &str| match name {
            "traceparent" => Some(parent),
            _ => state,
        };
        let context = TraceContext::extract(header);
        *to = tg_trace_context::of(&context.ok_or_else(|| Failure::none("no traceparent"))?);
        Ok(())
    })
}

/// Writes the traceparent of a request that belongs to a span: TG_TRACEPARENT_SIZE bytes. Its tracestate, where there
/// is one, is the context's `state`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_trace_context_format(
    context: *const tg_trace_context,
    buffer: *mut c_char,
    capacity: usize,
) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header, here and below.
        let context = unsafe { borrow(context, "context") }?.context()?;
        let needed = std::ptr::null_mut();
        unsafe { crate::arguments::copy_text(&context.to_string(), buffer, capacity, needed) }
    })
}
