// SPDX-License-Identifier: Apache-2.0

//! Refused requests. Their answers carry the reason, and [`super::http::serve`] counts them.

use std::sync::Arc;

use http::Response;

use crate::component::account::count_refusal;
use crate::component::{Account, Ceiling, Context};

/// The reason of a refusal, in the extensions of the answer. Answers that another counter counts have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The request has no host, two hosts, or one that is not served here.
    Host,
    /// The head is malformed or too long.
    Head,
    /// The path does not exist.
    Path,
    /// The path does not allow the method.
    Method,
    /// The media type of the body is not supported.
    MediaType,
    /// The coding of the body is not supported.
    Coding,
    /// The body broke off, is framed wrongly, or can't be decompressed.
    Body,
    /// The parameters are invalid or too many.
    Parameters,
    /// The query can't be computed.
    Query,
    /// Other clients use the requested resource.
    Busy,
    /// Memory, processors or time are short for it.
    Short(Of),
}

/// The part of a request that memory, processors or time are short for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// The head of the request.
    Head,
    /// The body, before any of it was read.
    Admission,
    /// The rest of the body.
    Body,
    /// The body, which arrives too slowly while memory is short.
    SlowBody,
    /// The body, which does not arrive in time.
    IdleBody,
    /// The decompressed body.
    Unpacking,
    /// The decoded body.
    Decoding,
    /// The work on it.
    Work,
    /// The body, which exceeds the limit.
    TooLarge,
    /// The request, even in an otherwise idle gateway.
    All,
}

impl Why {
    /// Attaches the reason to an answer.
    pub fn mark<B>(self, mut answer: Response<B>) -> Response<B> {
        answer.extensions_mut().insert(self);
        answer
    }

    /// The reason attached to an answer.
    pub fn of<B>(answer: &Response<B>) -> Option<Self> {
        answer.extensions().get::<Self>().copied()
    }

    /// The `reason` label of the counter.
    fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Head => "head",
            Self::Path => "path",
            Self::Method => "method",
            Self::MediaType => "media_type",
            Self::Coding => "coding",
            Self::Body => "body",
            Self::Parameters => "parameters",
            Self::Query => "query",
            Self::Busy => "busy",
            Self::Short(of) => of.name(),
        }
    }
}

impl Of {
    /// The `reason` label of `tidegate_memory_refusals_total`.
    fn name(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Admission => "admission",
            Self::Body => "body",
            Self::SlowBody => "slow_body",
            Self::IdleBody => "idle_body",
            Self::Unpacking => "unpacking",
            Self::Decoding => "decoding",
            Self::Work => "work",
            Self::TooLarge => "too_large",
            Self::All => "never_fits",
        }
    }
}

/// The component of a server.
#[derive(Clone, Debug)]
pub struct ServedBy {
    /// The class, which is the label name of its id among refusals for lack of memory.
    class: &'static str,
    id: Arc<str>,
    /// The account that reserves large request heads.
    pub(super) memory: Arc<Account>,
    /// The memory limit of these requests' bodies, which also applies to their heads.
    pub(super) ceiling: Ceiling,
}

impl Default for ServedBy {
    /// A component without a name and without a memory limit.
    fn default() -> Self {
        Self::component("", Arc::default())
    }
}

impl ServedBy {
    /// A receiver.
    pub fn receiver(base: &Context, ceiling: Ceiling) -> Self {
        Self {
            ceiling,
            class: "receiver",
            id: base.id.clone(),
            memory: base.shared.memory.clone(),
        }
    }

    /// Another part of the gateway.
    pub fn component(id: impl Into<Arc<str>>, memory: Arc<Account>) -> Self {
        Self {
            ceiling: Ceiling::Soft,
            class: "component",
            id: id.into(),
            memory,
        }
    }

    /// Counts a refused request.
    pub(super) fn count(&self, why: Why) {
        let reason = why.name();
        if let Why::Short(_) = why {
            return count_refusal(self.class, &self.id, reason);
        }
        metrics::counter!("tidegate_requests_refused_total", "component" => self.id.clone(), "reason" => reason)
            .increment(1);
    }
}
