// SPDX-License-Identifier: Apache-2.0

//! Why a list or watch ends.

use std::time::Duration;

use http::StatusCode;
use tidegate_runtime::NoRoom;

/// Why a list or watch ends.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The file of a token or header can't be read.
    #[error("credentials: {0}")]
    Credentials(String),
    /// No connection, or it broke.
    #[error("{0}")]
    Connection(String),
    /// The server does not answer in time.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The server redirects elsewhere, or without an end.
    #[error("redirected {0}")]
    Redirect(String),
    /// The server refuses the request.
    #[error("server returned HTTP status {0}{1}")]
    Status(StatusCode, String),
    /// The server no longer has this version.
    #[error("the server has no events since this version")]
    Expired,
    /// The body is not as the API has it.
    #[error("{0}")]
    Body(String),
    /// The memory limit leaves no room for an object.
    #[error(transparent)]
    Memory(#[from] NoRoom),
}

impl WatchError {
    /// The `reason` of a counter.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Credentials(_) => "credentials",
            Self::Connection(_) => "connection",
            Self::TimedOut(_) => "timeout",
            Self::Redirect(_) => "redirect",
            Self::Status(..) => "status",
            Self::Expired => "expired",
            Self::Body(_) => "body",
            Self::Memory(_) => "memory",
        }
    }

    /// Whether the events since the last version are lost, so that only a list helps.
    pub(crate) fn loses_events(&self) -> bool {
        matches!(self, Self::Expired | Self::Body(_) | Self::Memory(_))
    }
}
