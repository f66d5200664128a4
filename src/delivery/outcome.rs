//! What can come of one attempt to deliver, and what became of items in the end.

use std::time::Duration;

use crate::component::Reason;

/// What came of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The peer has all of it.
    Done,
    /// The peer has all of it, and its answer says something more.
    Accepted {
        /// For the log.
        note: String,
    },
    /// The peer has it, except for items that it (or the protocol) can't take. Not tried again.
    Partly(Loss),
    /// Parts of it fared differently. What is named in neither list, the peer has.
    Parts(Parts),
    /// Not now.
    Retry {
        /// The peer said when (`Retry-After`, `RetryInfo`).
        after: Option<Duration>,
        /// For the log.
        why: String,
    },
    /// Not in time: whether the peer has it nobody knows. Tried again.
    TimedOut {
        /// For the log.
        why: String,
    },
    /// Never: trying again gives the same answer.
    Permanent {
        /// For the log.
        why: String,
    },
    /// The peer does not accept our credentials, or this sender.
    Denied {
        /// Whether to try again: credentials may be renewed.
        retries: bool,
        /// The peer said when to come again.
        after: Option<Duration>,
        /// For the log.
        why: String,
    },
    /// Never, for something that is in it; without that the rest may pass.
    Refused {
        /// For the log.
        why: String,
    },
    /// The peer would take smaller requests.
    TooLarge {
        /// For the log.
        why: String,
    },
}

impl Outcome {
    /// Not now, and the peer did not say when.
    pub fn retry(why: impl Into<String>) -> Self {
        Self::Retry {
            after: None,
            why: why.into(),
        }
    }

    /// What went wrong, if anything did.
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

    /// The same, tried again although it would be final. What is too large is cut all the same.
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

    /// The same with its reason reworded.
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

    /// Never.
    pub fn permanent(why: impl Into<String>) -> Self {
        Self::Permanent { why: why.into() }
    }
}

/// What became of the parts of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Items that are gone.
    pub losses: Vec<Loss>,
    /// Items that are to be tried again.
    pub left: Option<Left>,
    /// The peer does not accept our credentials: what it said.
    pub denied: Option<String>,
}

/// Items of a request that are still to be sent; the sender keeps which ones they are with the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// How many.
    pub items: usize,
    /// The peer said when.
    pub after: Option<Duration>,
    /// For the log.
    pub why: String,
}

/// Items that are gone, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// How many.
    pub items: usize,
    /// The counter they go to.
    pub reason: Reason,
    /// For the log.
    pub why: String,
}
