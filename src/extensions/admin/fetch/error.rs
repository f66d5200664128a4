// SPDX-License-Identifier: Apache-2.0

//! Why a peer gives no history.

/// Why a peer gave no history.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("its name can't be resolved: {0}")]
    Lookup(std::io::Error),
    #[error("{0}")]
    Unreachable(String),
    #[error("it answers {0}")]
    Refused(String),
    #[error("it is not ready: {0}")]
    Busy(String),
    #[error("its answer is not a page of history: {0}")]
    Malformed(String),
    #[error("this gateway has no memory for its answer")]
    Memory,
    #[error("it does not answer in time")]
    Timeout,
}

impl FetchError {
    /// The label of the counter.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Lookup(_) | Self::Unreachable(_) => "unreachable",
            Self::Refused(_) | Self::Busy(_) => "refused",
            Self::Malformed(_) => "malformed",
            Self::Memory => "memory",
            Self::Timeout => "timeout",
        }
    }

    pub(super) fn count(&self) {
        metrics::counter!("tidegate_history_fetch_failures_total", "reason" => self.reason()).increment(1);
    }
}
