// SPDX-License-Identifier: Apache-2.0

//! The span that an observation is made in, as an exemplar remembers it.

use std::fmt;
use std::sync::OnceLock;

/// Names a span: what W3C trace context calls trace-id and parent-id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanRef {
    /// The trace; not all zero.
    pub trace: [u8; 16],
    /// The span; not all zero.
    pub span: [u8; 8],
}

impl SpanRef {
    /// `None`: one of them is all zero, which stands for none.
    pub fn new(trace: [u8; 16], span: [u8; 8]) -> Option<Self> {
        (trace != [0; 16] && span != [0; 8]).then_some(Self { trace, span })
    }

    /// The trace in hexadecimal.
    pub fn trace_hex(&self) -> impl fmt::Display + use<> {
        Hex(self.trace)
    }

    /// The span in hexadecimal.
    pub fn span_hex(&self) -> impl fmt::Display + use<> {
        Hex(self.span)
    }

    /// The span that this thread is in, where [`set_source`] said how to find out.
    pub fn current() -> Option<Self> {
        SOURCE.get().and_then(|source| source())
    }
}

struct Hex<const N: usize>([u8; N]);

impl<const N: usize> fmt::Display for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Tells the span that the calling thread is in; must not block.
pub type SpanSource = fn() -> Option<SpanRef>;

static SOURCE: OnceLock<SpanSource> = OnceLock::new();

/// Says how to find out which span a thread is in. The first one that is set stays; `false`: there was one.
pub fn set_source(source: SpanSource) -> bool {
    SOURCE.set(source).is_ok()
}
