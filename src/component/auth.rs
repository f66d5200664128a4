//! Who may send, and as whom we send: what authenticator extensions do for receivers and exporters.

use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderMap, HeaderValue, Uri};

use super::account::SenderKey;
use crate::batch::ClientMetadata;

/// Decides by a request's headers, before its body is read.
#[async_trait]
pub trait Authenticator: Send + Sync {
    /// Whether the sender is who may send. `from` is its address; none for those of this machine.
    async fn check(&self, headers: &HeaderMap, from: Option<IpAddr>) -> Result<(), Unauthenticated>;

    /// Who a sender is that was let in. Headers that spell the same user or token in other ways have the same key.
    fn identity(&self, headers: &HeaderMap) -> Option<SenderKey>;

    /// The `WWW-Authenticate` of a refusal (RFC 9110, 11.6.1).
    fn challenge(&self) -> HeaderValue;
}

/// Why a sender is not let in. It says nothing that helps to guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unauthenticated {
    /// It does not show who it is.
    #[error("{0}")]
    Wrong(&'static str),
    /// Its address has shown so much that is wrong that nothing more of it is checked for now.
    #[error("{why}")]
    TooOften {
        /// For people.
        why: &'static str,
        /// When something is checked again.
        retry_after: Duration,
    },
}

impl Unauthenticated {
    /// The `reason` of a counter.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Wrong(_) => "wrong",
            Self::TooOften { .. } => "too_often",
        }
    }
}

/// Proves to a peer who sends.
pub trait Credentials: Send + Sync {
    /// Adds what is needed to the headers of one request; `client` is what is kept of the request that brought the
    /// data. The error says why that can't be known now.
    fn apply(&self, headers: &mut HeaderMap, client: Option<&ClientMetadata>) -> Result<(), String>;

    /// Whether a request must be signed as a whole, by [`Self::sign`].
    fn signs_requests(&self) -> bool {
        false
    }

    /// Signs a request that is otherwise complete, by further headers.
    fn sign(&self, _method: &str, _uri: &Uri, _headers: &mut HeaderMap, _body: &[u8]) -> Result<(), String> {
        Ok(())
    }
}
