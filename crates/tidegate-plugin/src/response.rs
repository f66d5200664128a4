// SPDX-License-Identifier: Apache-2.0

//! Answers of calls to a plugin, on both sides of the ABI.

use std::fmt;
use std::time::Duration;

use crate::abi::status;

/// An answer. Every one but `Ok` says why, for the log of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All of it is where it belongs.
    Ok,
    /// All but some items, which are not sent again.
    Partial {
        /// How many.
        lost_items: u64,
        /// Why.
        why: String,
    },
    /// Not now: the same batch comes again.
    Retry {
        /// When; `None`: as the gateway thinks.
        after: Option<Duration>,
        /// Why.
        why: String,
    },
    /// Never.
    Refused {
        /// Why.
        why: String,
    },
    /// Never, because of something in it: the gateway looks for what it is.
    Invalid {
        /// Why.
        why: String,
    },
    /// Smaller batches, please.
    TooLarge {
        /// Why.
        why: String,
    },
}

impl Answer {
    /// `status` as the ABI has it.
    pub fn status(&self) -> i32 {
        match self {
            Self::Ok => status::OK,
            Self::Partial { .. } => status::PARTIAL,
            Self::Retry { .. } => status::RETRY,
            Self::Refused { .. } => status::REFUSED,
            Self::Invalid { .. } => status::INVALID,
            Self::TooLarge { .. } => status::TOO_LARGE,
        }
    }

    /// One word for it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Partial { .. } => "partial",
            Self::Retry { .. } => "retry",
            Self::Refused { .. } => "refused",
            Self::Invalid { .. } => "invalid",
            Self::TooLarge { .. } => "too_large",
        }
    }

    /// The reason of the answer; empty for `Ok`.
    pub fn why(&self) -> &str {
        match self {
            Self::Ok => "",
            Self::Partial { why, .. }
            | Self::Retry { why, .. }
            | Self::Refused { why }
            | Self::Invalid { why }
            | Self::TooLarge { why } => why,
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why() {
            "" => f.write_str(self.name()),
            why => write!(f, "{}: {why}", self.name()),
        }
    }
}
