// SPDX-License-Identifier: Apache-2.0

//! The outcome of one attempt to deliver, and of the items of a request.

use std::time::Duration;

use crate::component::Reason;

/// The outcome of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The peer has accepted all items.
    Done,
    /// The peer has accepted all items and added a message.
    Accepted {
        /// The message for the log.
        note: String,
    },
    /// The peer has accepted all items except some that it, or the protocol, can't take. These are not retried.
    Partly(Loss),
    /// The parts had different outcomes. The peer has accepted all items that neither list names.
    Parts(Parts),
    /// The peer can't take the request now.
    Retry {
        /// The delay that the peer asked for (`Retry-After`, `RetryInfo`).
        after: Option<Duration>,
        /// The reason for the log.
        why: String,
    },
    /// The attempt exceeded its time limit. The peer may have the request. It is retried.
    TimedOut {
        /// The reason for the log.
        why: String,
    },
    /// The request failed permanently: a retry would get the same answer.
    Permanent {
        /// The reason for the log.
        why: String,
    },
    /// The peer rejects the credentials, or this sender.
    Denied {
        /// Whether to retry, because the credentials may be renewed.
        retries: bool,
        /// The delay that the peer asked for.
        after: Option<Duration>,
        /// The reason for the log.
        why: String,
    },
    /// The peer permanently refuses some items of the request. It may accept the others.
    Refused {
        /// The reason for the log.
        why: String,
    },
    /// The request is too large; the peer may accept smaller ones.
    TooLarge {
        /// The reason for the log.
        why: String,
    },
}

impl Outcome {
    /// A retryable failure without a delay from the peer.
    pub fn retry(why: impl Into<String>) -> Self {
        Self::Retry {
            after: None,
            why: why.into(),
        }
    }

    /// The peer does not accept the user. A retry may help, because someone may change that.
    pub const fn login(why: String) -> Self {
        Self::Denied {
            retries: true,
            after: None,
            why,
        }
    }

    /// The error, or `None` after success.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Done | Self::Accepted { .. } => None,
            Self::Partly(loss) => Some(&loss.why),
            Self::Parts(Parts { left: Some(left), .. }) => Some(&left.why),
            Self::Parts(Parts { losses, .. }) => losses.first().map(|loss| &*loss.why),
            Self::Retry { why, .. }
            | Self::TimedOut { why }
            | Self::Permanent { why }
            | Self::Denied { why, .. }
            | Self::Refused { why }
            | Self::TooLarge { why } => Some(why),
        }
    }

    /// Makes a final outcome retryable. A request that is too large is still cut.
    pub fn tried_again(self) -> Self {
        match self {
            Self::Denied { after, why, .. } => Self::Denied {
                retries: true,
                after,
                why,
            },
            Self::Permanent { why } | Self::Refused { why } => Self::retry(why),
            other => other,
        }
    }

    /// Replaces the reason.
    pub fn reworded(mut self, reword: impl FnOnce(&str) -> String) -> Self {
        if let Self::Retry { why, .. }
        | Self::TimedOut { why }
        | Self::Permanent { why }
        | Self::Denied { why, .. }
        | Self::Refused { why }
        | Self::TooLarge { why } = &mut self
        {
            *why = reword(why);
        }
        self
    }

    /// A permanent failure.
    pub fn permanent(why: impl Into<String>) -> Self {
        Self::Permanent { why: why.into() }
    }
}

/// The outcomes of the parts of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Lost items.
    pub losses: Vec<Loss>,
    /// Items to retry.
    pub left: Option<Left>,
    /// The message of the peer if it rejected the credentials.
    pub denied: Option<String>,
}

/// Items that are still to be sent. The sender keeps track of them with the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The number of items.
    pub items: usize,
    /// The delay that the peer asked for.
    pub after: Option<Duration>,
    /// The reason for the log.
    pub why: String,
}

/// Lost items, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The number of items.
    pub items: usize,
    /// The drop counter for them.
    pub reason: Reason,
    /// The reason for the log.
    pub why: String,
}
