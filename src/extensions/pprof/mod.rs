// SPDX-License-Identifier: Apache-2.0

//! `pprof`: a processor-time profile over HTTP, in the format and at the path of Go's `net/http/pprof`. So `go
//! tool pprof http://localhost:1777/debug/pprof/profile` reads it. Nothing is sampled without a request.

use std::io::Write;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::StatusCode;
use serde_json::json;
use tidegate_profiler::{Profile, Sampling};

use crate::component::{
    ComponentError, ConfigType, Context, ErrorDoc, Extension, ExtensionFactory, Factory, Lifecycle, Stability,
};
use crate::config::{Node, Problems};
use crate::net::auth::AuthConfig;
use crate::net::errors::{AUTH_ERRORS, LISTENER_ERRORS, PAGE_ERRORS, SOCKET_ERRORS};
use crate::net::pages::{self, Answer, PageServer, Pages, Request, ServerConfig, Takes, Why};
use crate::net::{Endpoint, SocketFileConfig, TlsServerConfig, tls};

/// The port of the Collector's extension.
const PORT: u16 = 1777;
/// The default duration of a profile, as in Go.
const USUAL: Duration = Duration::from_secs(30);
/// The longest profile.
const LONGEST: Duration = Duration::from_secs(600);

crate::options! {
    /// Options of the `pprof` extension.
    pub struct PprofConfig {
        /// Address to listen on: `host:port` or `unix:/path`.
        pub endpoint: Endpoint = Endpoint::localhost(PORT),
        /// Permissions, owner and allowed peers of the socket file of a `unix:` endpoint.
        pub socket: SocketFileConfig = SocketFileConfig::default(),
        /// Authentication of clients by an extension. Unset: every client that can connect is admitted.
        pub auth: Option<AuthConfig> = None,
        /// TLS of the server. Unset: no TLS.
        pub tls: Option<TlsServerConfig> = None,
        /// Host names that a request may use, besides addresses and `localhost`. They count only if the endpoint
        /// is a loopback address. The check protects against web pages whose host name resolves to this machine.
        pub allowed_hosts: Vec<String> = Vec::new(),
        /// Most connections of one address. The server closes further ones. Unset: a quarter of all 512
        /// connections, and connections of this machine don't count.
        pub max_connections_per_peer: Option<NonZeroUsize> = None,
        /// Accepted, without effect: there is no profile of blocking.
        pub block_profile_fraction: u64 = 0,
        /// Accepted, without effect: there is no profile of locks.
        pub mutex_profile_fraction: u64 = 0,
        /// Accepted, without effect: profiles are available only over HTTP.
        pub save_to_file: String = String::new(),
    }
    check = PprofConfig::check
}

impl PprofConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        let unused = [
            ("block_profile_fraction", self.block_profile_fraction != 0),
            ("mutex_profile_fraction", self.mutex_profile_fraction != 0),
            ("save_to_file", !self.save_to_file.is_empty()),
        ];
        for (key, _) in unused.into_iter().filter(|(_, is_set)| *is_set) {
            cx.at(at.child(key))
                .help("fetch a profile of processor time from /debug/pprof/profile")
                .warning(format!("{key} has no effect in tidegate"));
        }
    }
}

/// The errors of `pprof`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::answered(
        "The parameter `seconds` is not a number of 1 or more.",
        "400",
        "Correct the parameter.",
    ),
    ErrorDoc::answered(
        "Another client takes a profile.",
        "503",
        "Try again when that profile is complete.",
    ),
    ErrorDoc::answered(
        "The operating system does not let the gateway take a profile.",
        "500 with the reason",
        "Follow the reason in the answer.",
    ),
];

/// The factory of `pprof`.
pub static FACTORY: ExtensionFactory = Factory {
    kind: "pprof",
    aliases: &[],
    stability: Stability::Beta,
    help: "serves profiles of processor time for `go tool pprof`",
    errors: &[ERRORS, PAGE_ERRORS, AUTH_ERRORS, LISTENER_ERRORS, SOCKET_ERRORS],
    config: ConfigType::of::<PprofConfig>(),
    build: |settings, cx| {
        Ok(Arc::new(Pprof {
            config: settings.get(),
            base: cx,
            server: PageServer::default(),
        }))
    },
};

struct Pprof {
    config: Arc<PprofConfig>,
    base: Context,
    server: PageServer,
}

impl Extension for Pprof {}

#[async_trait]
impl Lifecycle for Pprof {
    fn check_files(&self) -> Result<(), ComponentError> {
        tls::check_files(self.config.tls.as_ref(), &self.base)
    }

    async fn start(&self) -> Result<(), ComponentError> {
        let server = ServerConfig {
            tls: self.config.tls.as_ref(),
            auth: self.config.auth.as_ref(),
            allowed_hosts: &self.config.allowed_hosts,
            max_connections_per_peer: self.config.max_connections_per_peer,
            ..ServerConfig::at(&self.config.endpoint, &self.config.socket)
        };
        self.server.start(&self.base, server, Arc::new(Profiles)).await
    }

    async fn stop(&self, deadline: Instant) {
        self.server.stop(deadline).await;
    }
}

struct Profiles;

const INDEX: &str = "<!doctype html><title>pprof</title><h1>pprof</h1>\
    <p><a href=\"profile?seconds=10\">profile?seconds=10</a>: processor time, for <code>go tool pprof</code></p>\
    <p><a href=\"cmdline\">cmdline</a>: the command line</p>";

#[async_trait]
impl Pages for Profiles {
    fn takes(&self) -> Takes {
        Takes::Paths
    }

    async fn page(&self, request: Request) -> Answer {
        match request.path.as_str() {
            "/debug/pprof" | "/debug/pprof/" => {
                pages::text(StatusCode::OK, "text/html; charset=utf-8", INDEX.to_owned())
            }
            "/debug/pprof/profile" => profile(&request).await,
            "/debug/pprof/cmdline" => {
                let arguments: Vec<_> = std::env::args().collect();
                pages::text(StatusCode::OK, "text/plain; charset=utf-8", arguments.join("\0"))
            }
            _ => failure(
                StatusCode::NOT_FOUND,
                "there is a profile of processor time only, at /debug/pprof/profile",
            ),
        }
    }
}

fn failure(status: StatusCode, why: &str) -> Answer {
    pages::json(status, &json!({"error": why}))
}

/// The request's `seconds`; `None`: it is not a number of 1 or more. Longer times are cut.
fn length(request: &Request) -> Option<Duration> {
    let Some(seconds) = request.get("seconds") else {
        return Some(USUAL);
    };
    let seconds = seconds.parse().ok().filter(|seconds| *seconds > 0)?;
    Some(Duration::from_secs(seconds).min(LONGEST))
}

/// Samples while the client waits. If the client disconnects, sampling ends.
async fn profile(request: &Request) -> Answer {
    let Some(length) = length(request) else {
        return failure(StatusCode::BAD_REQUEST, "seconds: expected a number of 1 or more");
    };
    let sampling = match Sampling::start() {
        Ok(sampling) => sampling,
        Err(error) => {
            let busy = failure(StatusCode::SERVICE_UNAVAILABLE, &error.to_string());
            return Why::Busy.mark(busy);
        }
    };
    tokio::time::sleep(length).await;
    let profile = sampling.stop();
    match tokio::task::spawn_blocking(move || compressed(&profile)).await {
        Ok(Ok(body)) => pages::bytes("application/octet-stream", body),
        Ok(Err(error)) => failure(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        Err(error) => failure(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn compressed(profile: &Profile) -> std::io::Result<Bytes> {
    let mut coder = GzEncoder::new(Vec::new(), Compression::fast());
    coder.write_all(&profile.encode())?;
    coder.finish().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(seconds: &str) -> Option<Duration> {
        length(&Request::of("", vec![("seconds".to_owned(), seconds.to_owned())]))
    }

    #[test]
    fn a_profile_takes_as_long_as_was_asked_within_bounds() {
        assert_eq!(asked("5"), Some(Duration::from_secs(5)));
        assert_eq!(asked("100000"), Some(LONGEST));
        assert_eq!([asked("0"), asked("-1"), asked("x")], [None; 3]);
    }
}
