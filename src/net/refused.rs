//! Requests that are refused. Their answers say why, and [`super::http::serve`] counts them by that: nobody else does.

use std::sync::Arc;

use http::Response;

use crate::component::account::count_refusal;
use crate::component::{Account, Ceiling, Context};

/// Why a request is refused, in the extensions of its answer. What other counters count already has none there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It names no host, two of them, or one that is not served here.
    Host,
    /// Its head is broken or too long.
    Head,
    /// Nothing is at its path.
    Path,
    /// Its method is not allowed at its path.
    Method,
    /// Its body has another type than those that are taken.
    MediaType,
    /// Its body has another coding than those that are taken.
    Coding,
    /// Its body broke off, is framed wrongly, or can't be unpacked.
    Body,
    /// Its parameters can't be read, or are too many.
    Parameters,
    /// Its query can't be computed.
    Query,
    /// Others have what it asks for.
    Busy,
    /// Memory, processors or time are too short for it.
    Short(Of),
}

/// What memory, processors or time are too short for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// The head of the request.
    Head,
    /// The body, before anything of it was read.
    Admission,
    /// The rest of the body.
    Body,
    /// The body, which comes too slowly while memory is short.
    SlowBody,
    /// The body, which does not come in time.
    IdleBody,
    /// What the body unpacks to.
    Unpacking,
    /// What the body is decoded to.
    Decoding,
    /// The work on it.
    Work,
    /// The body, which is larger than the limit.
    TooLarge,
    /// The request, also if nothing else were there.
    All,
}

impl Why {
    /// The answer, which says so.
    pub fn mark<B>(self, mut answer: Response<B>) -> Response<B> {
        answer.extensions_mut().insert(self);
        answer
    }

    /// What an answer says.
    pub fn of<B>(answer: &Response<B>) -> Option<Self> {
        answer.extensions().get::<Self>().copied()
    }

    /// The `reason` of a counter.
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
    /// The `reason` of `tidegate_memory_refusals_total`.
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

/// The component that a server belongs to.
#[derive(Clone, Debug)]
pub struct ServedBy {
    /// What it is: the label of its id among refusals for lack of memory.
    class: &'static str,
    id: Arc<str>,
    /// Large heads of requests are on this account.
    pub(super) memory: Arc<Account>,
    /// Up to here: as the bodies of these requests.
    pub(super) ceiling: Ceiling,
}

impl Default for ServedBy {
    /// A component without a name, whose memory has no limit.
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

    /// Any other part of the gateway.
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
