// SPDX-License-Identifier: Apache-2.0

//! Authenticator extensions: they authenticate the senders of receivers, and the requests of exporters.

use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderMap, HeaderValue, Uri};

use super::account::SenderKey;
use crate::batch::ClientMetadata;

/// Authenticates a request by its headers, before the receiver reads the body.
#[async_trait]
pub trait Authenticator: Send + Sync {
    /// Authenticates a sender. `from` is its address, `None` for senders on this machine.
    async fn check(&self, headers: &HeaderMap, from: Option<IpAddr>) -> Result<(), Unauthenticated>;

    /// The identity of an authenticated sender. Equal users or tokens have equal keys, whatever the spelling of
    /// the headers.
    fn identity(&self, headers: &HeaderMap) -> Option<SenderKey>;

    /// The `WWW-Authenticate` of a refusal (RFC 9110, 11.6.1).
    fn challenge(&self) -> HeaderValue;
}

/// The reason why a sender is not authenticated. The text gives nothing away that helps to guess credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unauthenticated {
    /// The request has no valid credentials.
    #[error("{0}")]
    Wrong(&'static str),
    /// The address has failed too often, so its requests are not checked for a while.
    #[error("{why}")]
    TooOften {
        /// The message for the sender.
        why: &'static str,
        /// The time after which requests of this address are checked again.
        retry_after: Duration,
    },
}

impl Unauthenticated {
    /// The `reason` label of the counter.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Wrong(_) => "wrong",
            Self::TooOften { .. } => "too_often",
        }
    }
}

/// Adds the gateway's credentials to the requests of an exporter.
pub trait Credentials: Send + Sync {
    /// Adds credentials to the headers of one request. `client` is the metadata of the request that brought the
    /// data.
    ///
    /// # Errors
    /// The credentials are not available now; the message says why.
    fn apply(&self, headers: &mut HeaderMap, client: Option<&ClientMetadata>) -> Result<(), String>;

    /// Whether each request needs a signature over its whole content, from [`Self::sign`].
    fn signs_requests(&self) -> bool {
        false
    }

    /// Adds the headers of a signature to a request that is otherwise complete.
    ///
    /// # Errors
    /// The signature can't be made now; the message says why.
    fn sign(&self, _method: &str, _uri: &Uri, _headers: &mut HeaderMap, _body: &[u8]) -> Result<(), String> {
        Ok(())
    }
}
