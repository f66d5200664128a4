//! `auth: {authenticator: ID}`: how receivers and exporters name the extension that authenticates.

use std::sync::Arc;

use crate::component::auth::{Authenticator, Credentials};
use crate::component::services::Services;
use crate::component::{ComponentError, Context};

crate::options! {
    /// Which extension authenticates.
    pub struct AuthConfig {
        /// Its id, `basicauth/server` say; it must be in `service::extensions` too.
        pub authenticator: String = required,
    }
}

impl AuthConfig {
    /// What lets senders in.
    pub fn authenticator(&self, base: &Context) -> Result<Arc<dyn Authenticator>, ComponentError> {
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
