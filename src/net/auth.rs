//! `auth: {authenticator: ID}`: how receivers and exporters name the extension that authenticates.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request};

use crate::component::account::SenderKey;
use crate::component::auth::{Authenticator, Credentials, Unauthenticated};
use crate::component::services::Services;
use crate::component::{ComponentError, Context};

crate::options! {
    /// Which extension authenticates.
    pub struct AuthConfig {
        /// Its id, `basicauth/server` say; it must be in `service::extensions` too.
        pub authenticator: String = required,
    }
}

/// Lets in whom the configured extension knows; everybody where none is configured.
#[derive(Clone, Default)]
pub struct Door(Option<Keeper>);

#[derive(Clone)]
struct Keeper {
    authenticator: Arc<dyn Authenticator>,
    /// Whose door it is.
    component: Arc<str>,
}

/// The address of who sent a request, in its extensions. Those of this machine have none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub(crate) address: IpAddr,
    /// Whether many senders may have it: a proxy forwards for them.
    pub(crate) is_shared: bool,
}

impl Sender {
    /// What it is told from others by; `None`: it shares its address.
    pub(crate) fn key(self) -> Option<SenderKey> {
        (!self.is_shared).then(|| SenderKey::of(self.address))
    }
}

/// What somebody is told who is not let in.
#[derive(Debug)]
pub struct NotAdmitted {
    /// Why.
    pub why: Unauthenticated,
    /// The value of `WWW-Authenticate`.
    pub challenge: HeaderValue,
}

impl NotAdmitted {
    /// When to come back, where nothing is checked for now.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self.why {
            Unauthenticated::Wrong(_) => None,
            Unauthenticated::TooOften { retry_after, .. } => Some(retry_after),
        }
    }
}

impl Door {
    /// As configured; the error says that the extension is not there.
    pub fn of(config: Option<&AuthConfig>, base: &Context) -> Result<Self, ComponentError> {
        let authenticator = config.map(|config| config.authenticator(base)).transpose()?;
        Ok(Self(authenticator.map(|authenticator| Keeper {
            authenticator,
            component: base.id.clone(),
        })))
    }

    /// Decides by a request's headers, and by the address that it has from [`super::http::serve`]. Says by what its sender
    /// is told from others: by who it proves to be, or else by an address that it shares with nobody.
    pub async fn admit<B>(&self, request: &Request<B>) -> Result<Option<SenderKey>, NotAdmitted> {
        let sender: Option<Sender> = request.extensions().get().copied();
        let Some(keeper) = &self.0 else {
            return Ok(sender.and_then(Sender::key));
        };
        let (authenticator, headers) = (&keeper.authenticator, request.headers());
        let checked = authenticator
            .check(headers, sender.map(|sender| sender.address))
            .await;
        match checked {
            Ok(()) => Ok(authenticator.identity(headers)),
            Err(why) => {
                let labels = [
                    ("component", keeper.component.to_string()),
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
    /// What lets senders in.
    fn authenticator(&self, base: &Context) -> Result<Arc<dyn Authenticator>, ComponentError> {
        let found = self.services(base)?.authenticator;
        found.ok_or_else(|| self.wrong(base, "has nothing configured to check senders by"))
    }

    /// What identifies us.
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
