// SPDX-License-Identifier: Apache-2.0

//! The options of `history::peers`.

use std::time::Duration;

use crate::config::{Node, Problems};
use crate::net::TlsClientConfig;
use crate::net::auth::AuthConfig;
use crate::net::headers::{self, Headers};
use crate::net::url::Url;

crate::options! {
    /// Other replicas of the cluster, whose history this gateway fetches when it starts.
    pub struct PeersConfig {
        /// Base URLs of the `admin` extensions of the replicas. Each address of a host name is a peer. The own address may be
        /// among them.
        pub endpoints: Vec<Url> = required,
        /// TLS of `https` URLs. The certificate must have the host of the URL, not its address.
        pub tls: TlsClientConfig = TlsClientConfig::default(),
        /// Additional request headers. Their values are secrets.
        pub headers: Headers = Headers::new(),
        /// Credentials of the gateway, from an extension.
        pub auth: Option<AuthConfig> = None,
        /// Longest time of the fetch, from all peers together. A single answer may take a third of it.
        pub timeout: Duration = Duration::from_secs(30),
    }
    check = PeersConfig::check
}

impl PeersConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        headers::check(&self.headers, at.child("headers"), cx);
        if self.endpoints.is_empty() {
            cx.at(at.child("endpoints")).error("must not be empty");
        }
        if self.timeout.is_zero() {
            cx.at(at.child("timeout")).error("must be more than 0");
        }
    }
}
