// SPDX-License-Identifier: Apache-2.0

//! `auth: {authenticator: ID}`: the option of receivers and exporters that names their authenticator extension.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request};

use crate::component::account::SenderKey;
use crate::component::auth::{Authenticator, Credentials, Unauthenticated};
use crate::component::services::Services;
use crate::component::{ComponentError, Context};

tidegate_config::options! {
    /// The extension that authenticates.
    pub struct AuthConfig {
        /// Id of the extension, for example `basicauth/server`; it must be in `service::extensions` too.
        pub authenticator: String = required,
    }
}

/// Authenticates requests with the configured extension. Without one it admits every request.
#[derive(Clone, Default)]
pub struct AuthGate(Option<ConfiguredAuth>);

#[derive(Clone)]
struct ConfiguredAuth {
    authenticator: Arc<dyn Authenticator>,
    /// The component that receives the requests, as a label of the metric.
    component: Arc<str>,
}

/// The address of a sender, in the extensions of its request. Senders on this machine have none.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    /// The address of the peer.
    pub address: IpAddr,
    /// Whether many senders share the address, because a proxy forwards for them.
    pub is_shared: bool,
}

impl Sender {
    /// The key that identifies the sender; `None` if others share its address.
    pub fn key(self) -> Option<SenderKey> {
        (!self.is_shared).then(|| SenderKey::of(self.address))
    }
}

/// The answer to a request that is not admitted.
#[derive(Debug)]
pub struct NotAdmitted {
    /// The reason.
    pub why: Unauthenticated,
    /// The value of `WWW-Authenticate`.
    pub challenge: HeaderValue,
}

impl NotAdmitted {
    /// The delay before the next attempt, while a sender is throttled.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.why {
            Unauthenticated::Wrong(_) => None,
            Unauthenticated::TooOften { retry_after, .. } => Some(retry_after),
        }
    }
}

impl AuthGate {
    /// Creates the gate of a configuration.
    ///
    /// # Errors
    /// The extension is not among `service::extensions`, or it can't check senders.
    pub fn of(config: Option<&AuthConfig>, base: &Context) -> Result<Self, ComponentError> {
        let authenticator = config.map(|config| config.authenticator(base)).transpose()?;
        Ok(Self(authenticator.map(|authenticator| ConfiguredAuth {
            authenticator,
            component: base.id.clone(),
        })))
    }

    /// Whether browsers ask their users for the credentials, because the scheme is `Basic`, or whether it needs none.
    pub fn is_asked_by_browsers(&self) -> bool {
        const SCHEME: &[u8] = b"Basic ";
        self.0.as_ref().is_none_or(|configured| {
            let challenge = configured.authenticator.challenge();
            let scheme = challenge.as_bytes().get(..SCHEME.len());
            scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
        })
    }

    /// Checks a request's headers, and the address that [`super::http::serve`] adds. Returns the key of the
    /// sender: its proven identity, or else its address unless others share it.
    ///
    /// # Errors
    /// The extension rejects the request. The error has its reason and the challenge for the answer.
    pub async fn admit<B>(&self, request: &Request<B>) -> Result<Option<SenderKey>, NotAdmitted> {
        let sender: Option<Sender> = request.extensions().get().copied();
        let Some(configured) = &self.0 else {
            return Ok(sender.and_then(Sender::key));
        };
        let (authenticator, headers) = (&configured.authenticator, request.headers());
        let checked = authenticator
            .check(headers, sender.map(|sender| sender.address))
            .await;
        match checked {
            Ok(()) => Ok(authenticator.identity(headers)),
            Err(why) => {
                let labels = [
                    ("component", configured.component.to_string()),
                    ("reason", why.name().to_owned()),
                ];
                metrics::counter!("tidegate_unauthenticated_requests_total", &labels).increment(1);
                Err(NotAdmitted {
                    why,
                    challenge: authenticator.challenge(),
                })
            }
        }
    }
}

impl AuthConfig {
    /// The authenticator that checks senders.
    fn authenticator(&self, base: &Context) -> Result<Arc<dyn Authenticator>, ComponentError> {
        let found = self.services(base)?.authenticator;
        found.ok_or_else(|| self.wrong(base, "has nothing configured to check senders by"))
    }

    /// The credentials that identify the gateway to its peers.
    ///
    /// # Errors
    /// The extension is not among `service::extensions`, or has no credentials of the gateway.
    pub fn credentials(&self, base: &Context) -> Result<Arc<dyn Credentials>, ComponentError> {
        let found = self.services(base)?.credentials;
        found.ok_or_else(|| self.wrong(base, "has no credentials of ours configured"))
    }

    fn services(&self, base: &Context) -> Result<Services, ComponentError> {
        let found = base.shared.services.get(&self.authenticator);
        found.ok_or_else(|| self.wrong(base, "is not among `service::extensions`"))
    }

    fn wrong(&self, base: &Context, what: &str) -> ComponentError {
        base.error(format!("auth::authenticator: `{}` {what}", self.authenticator))
    }
}
