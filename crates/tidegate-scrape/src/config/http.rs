// SPDX-License-Identifier: Apache-2.0

//! The HTTP client options of targets and discovery services, in Prometheus's spelling.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ::http::HeaderName;
use tidegate_config::{Node, Ordered, Problems, Secret};
use tidegate_pipeline::net::TlsClientConfig;
use tidegate_pipeline::net::tls::TlsVersion;

/// The shortest interval between checks of token and password files.
pub const SECRET_FILE_INTERVAL: Duration = Duration::from_secs(10);

tidegate_config::options! {
    /// User and password.
    pub struct BasicAuth {
        /// Name of the user.
        pub username: String = String::new(),
        /// File with the user. The receiver reads it again after a change.
        pub username_file: Option<PathBuf> = None,
        /// Password of the user.
        pub password: Option<Secret> = None,
        /// File with the password. The receiver reads it again after a change.
        pub password_file: Option<PathBuf> = None,
    }
    refused = &[
        ("username_ref", "there is no secret manager: use `username_file`"),
        ("password_ref", "there is no secret manager: use `password_file`"),
    ];
    check = BasicAuth::check
}

tidegate_config::options! {
    /// The `Authorization` header.
    pub struct Authorization {
        /// Word before the credentials.
        pub r#type: String = "Bearer".to_owned(),
        /// Credentials after the type, for example a token.
        pub credentials: Option<Secret> = None,
        /// File with the credentials. The receiver reads it again after a change.
        pub credentials_file: Option<PathBuf> = None,
    }
    refused = &[("credentials_ref", "there is no secret manager: use `credentials_file`")];
    check = Authorization::check
}

tidegate_config::choices! {
    /// A version of TLS. Older versions are insecure.
    pub enum PromTlsVersion {
        /// RFC 5246.
        V12 = "TLS12",
        /// RFC 8446.
        V13 = "TLS13",
    }
}

tidegate_config::options! {
    /// TLS of a client.
    pub struct TlsConfig {
        /// Certificate authorities as PEM text.
        pub ca: Option<Secret> = None,
        /// PEM file with certificate authorities.
        pub ca_file: Option<PathBuf> = None,
        /// Client certificate as PEM text.
        pub cert: Option<Secret> = None,
        /// PEM file with the client certificate.
        pub cert_file: Option<PathBuf> = None,
        /// Private key as PEM text.
        pub key: Option<Secret> = None,
        /// PEM file with the private key.
        pub key_file: Option<PathBuf> = None,
        /// Name that the certificate of the target must have. Unset: the host of the address.
        pub server_name: Option<String> = None,
        /// Whether the receiver accepts any certificate of the target.
        pub insecure_skip_verify: bool = false,
        /// Oldest accepted version.
        pub min_version: PromTlsVersion = PromTlsVersion::V12,
        /// Newest accepted version.
        pub max_version: PromTlsVersion = PromTlsVersion::V13,
    }
    refused = &[
        ("ca_ref", "there is no secret manager: use `ca_file`"),
        ("cert_ref", "there is no secret manager: use `cert_file`"),
        ("key_ref", "there is no secret manager: use `key_file`"),
    ];
    check = TlsConfig::check
}

tidegate_config::options! {
    /// The values of one header.
    pub struct HeaderValues {
        /// Values in plain text.
        pub values: Vec<String> = Vec::new(),
        /// Secret values, which are never printed.
        pub secrets: Vec<Secret> = Vec::new(),
        /// Files with values. The receiver reads them again after a change.
        pub files: Vec<PathBuf> = Vec::new(),
    }
}

/// HTTP client options that we don't take.
pub(super) const REFUSED: &[(&str, &str)] = &[
    (
        "oauth2",
        "use `authorization` with `credentials_file` and something that keeps the file fresh",
    ),
    (
        "proxy_url",
        "proxies are not supported: scrape from where the targets can be reached",
    ),
    ("no_proxy", "proxies are not supported"),
    ("proxy_from_environment", "proxies are not supported"),
    ("proxy_connect_header", "proxies are not supported"),
];

/// The common HTTP client options of Prometheus: authentication and connection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HttpOptions {
    /// User and password.
    pub basic_auth: Option<BasicAuth>,
    /// The `Authorization` header.
    pub authorization: Option<Authorization>,
    /// TLS.
    pub tls: TlsConfig,
    /// Whether answers that point elsewhere are followed.
    pub follow_redirects: bool,
    /// Whether TLS may negotiate HTTP/2.
    pub enable_http2: bool,
    /// Further headers.
    pub http_headers: Ordered<HeaderValues>,
}

impl HttpOptions {
    /// The further headers. `fixed` and `file` make the type of the client from a text and from a file with one.
    pub fn headers<T>(&self, fixed: impl Fn(Secret) -> T, file: impl Fn(&Path) -> T) -> Vec<(HeaderName, T)> {
        let mut headers = Vec::new();
        for (name, values) in self.http_headers.iter() {
            // The check of the options refuses other names.
            let Ok(name) = HeaderName::try_from(name) else {
                continue;
            };
            let plain = values.values.iter().map(|text| fixed(Secret::new(text.as_str())));
            let secrets = values.secrets.iter().map(|text| fixed(text.clone()));
            let files = values.files.iter().map(|path| file(path));
            let all = plain.chain(secrets).chain(files);
            headers.extend(all.map(|value| (name.clone(), value)));
        }
        headers
    }
}

/// `options!` with the HTTP client options after those that are given.
macro_rules! http_options {
    ($(#[$meta:meta])* pub struct $name:ident { $($body:tt)* } refused = $refused:expr; $(accepted = $accepted:expr;)? check = $check:path) => {
        tidegate_config::options! {
            $(#[$meta])*
            pub struct $name {
                $($body)*
                /// User and password.
                pub basic_auth: Option<$crate::config::http::BasicAuth> = None,
                /// The `Authorization` header.
                pub authorization: Option<$crate::config::http::Authorization> = None,
                /// The same as `authorization: {credentials: ...}`.
                pub bearer_token: Option<tidegate_config::Secret> = None,
                /// The same as `authorization: {credentials_file: ...}`.
                pub bearer_token_file: Option<std::path::PathBuf> = None,
                /// TLS of `https` requests.
                pub tls_config: $crate::config::http::TlsConfig
                    = $crate::config::http::TlsConfig::default(),
                /// Whether the receiver follows redirects. It sends credentials to the same host and port only.
                pub follow_redirects: bool = true,
                /// Whether TLS may negotiate HTTP/2.
                pub enable_http2: bool = true,
                /// Additional request headers, by name.
                pub http_headers: tidegate_config::Ordered<$crate::config::http::HeaderValues>
                    = tidegate_config::Ordered::default(),
            }
            refused = $refused;
            $(accepted = $accepted;)?
            check = $check
        }

        impl $name {
            /// The HTTP client options.
            pub fn http(&self) -> $crate::config::http::HttpOptions {
                let bearer = $crate::config::http::Authorization::bearer(
                    self.bearer_token.clone(),
                    self.bearer_token_file.clone(),
                );
                $crate::config::http::HttpOptions {
                    basic_auth: self.basic_auth.clone(),
                    authorization: self.authorization.clone().or(bearer),
                    tls: self.tls_config.clone(),
                    follow_redirects: self.follow_redirects,
                    enable_http2: self.enable_http2,
                    http_headers: self.http_headers.clone(),
                }
            }

            fn check_http(&self, at: &tidegate_config::Node, cx: &mut tidegate_config::Problems) {
                let given = [
                    ("basic_auth", self.basic_auth.is_some()),
                    ("authorization", self.authorization.is_some()),
                    ("bearer_token", self.bearer_token.is_some()),
                    ("bearer_token_file", self.bearer_token_file.is_some()),
                ];
                $crate::config::http::check_given(&given, at, cx);
                $crate::config::http::check_headers(&self.http_headers, at.child("http_headers"), cx);
            }
        }
    };
}
pub(super) use http_options;

/// Headers that are ours to set.
const RESERVED_HEADERS: &[&str] = &[
    "authorization",
    "host",
    "content-encoding",
    "content-length",
    "content-type",
    "user-agent",
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "www-authenticate",
    "accept-encoding",
    "x-prometheus-remote-write-version",
    "x-prometheus-remote-read-version",
    "x-prometheus-scrape-timeout-seconds",
    "x-amz-date",
    "x-amz-security-token",
    "x-amz-content-sha256",
];

pub(super) fn check_given(given: &[(&str, bool)], at: &Node, cx: &mut Problems) {
    let mut given = given.iter().filter(|(_, is_given)| *is_given);
    let first = given.next();
    for (name, _) in given {
        cx.at_key(at.child(name)).error(
            "at most one of basic_auth, authorization, bearer_token and bearer_token_file must be configured",
        );
    }
    let _ = first;
}

pub(super) fn check_headers(headers: &Ordered<HeaderValues>, at: &Node, cx: &mut Problems) {
    for (name, values) in headers.iter() {
        let here = at.child(name);
        if http::HeaderName::try_from(name).is_err() {
            cx.at_key(here).error(format!("{name:?} is not a header name"));
        } else if RESERVED_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
            cx.at_key(here)
                .error(format!("setting header {name:?} is not allowed"));
        }
        let plain = values.values.iter().map(String::as_str);
        let all = plain.chain(values.secrets.iter().map(Secret::expose));
        for value in all {
            if http::HeaderValue::try_from(value).is_err() {
                cx.at_key(here)
                    .error("a value has characters that no header may have");
            }
        }
    }
}

impl BasicAuth {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if !self.username.is_empty() && self.username_file.is_some() {
            cx.at_key(at.child("username_file"))
                .error("at most one of username and username_file must be configured");
        }
        if self.password.is_some() && self.password_file.is_some() {
            cx.at_key(at.child("password_file"))
                .error("at most one of password and password_file must be configured");
        }
    }
}

impl Authorization {
    /// The older spelling.
    pub(super) fn bearer(token: Option<Secret>, file: Option<PathBuf>) -> Option<Self> {
        let given = token.is_some() || file.is_some();
        given.then(|| Self {
            credentials: token,
            credentials_file: file,
            ..Self::default()
        })
    }

    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.credentials.is_some() && self.credentials_file.is_some() {
            cx.at_key(at.child("credentials_file"))
                .error("at most one of credentials and credentials_file must be configured");
        }
        if self.r#type.trim().eq_ignore_ascii_case("basic") {
            cx.at(at.child("type"))
                .help("use `basic_auth` instead")
                .error("authorization type cannot be set to \"basic\"");
        }
    }
}

impl TlsConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        let doubles = [
            ("ca_file", self.ca.is_some() && self.ca_file.is_some()),
            ("cert_file", self.cert.is_some() && self.cert_file.is_some()),
            ("key_file", self.key.is_some() && self.key_file.is_some()),
        ];
        for (key, _) in doubles.iter().filter(|(_, double)| *double) {
            cx.at_key(at.child(key))
                .error("provide either a file or the PEM text, but not both");
        }
        let certificate = self.cert.is_some() || self.cert_file.is_some();
        let key = self.key.is_some() || self.key_file.is_some();
        if certificate != key {
            cx.at(at).error("must include both certificate and key");
        }
        if self.min_version == PromTlsVersion::V13 && self.max_version == PromTlsVersion::V12 {
            cx.at(at.child("min_version"))
                .error("min_version cannot be greater than max_version");
        }
    }

    /// The options in the gateway's own form.
    pub fn client(&self) -> TlsClientConfig {
        let version = |version| match version {
            PromTlsVersion::V12 => TlsVersion::V12,
            PromTlsVersion::V13 => TlsVersion::V13,
        };
        TlsClientConfig {
            insecure_skip_verify: self.insecure_skip_verify,
            ca_file: self.ca_file.clone(),
            ca_pem: self.ca.clone(),
            cert_file: self.cert_file.clone(),
            cert_pem: self.cert.clone(),
            key_file: self.key_file.clone(),
            key_pem: self.key.clone(),
            server_name_override: self.server_name.clone(),
            min_version: version(self.min_version),
            max_version: version(self.max_version),
            ..TlsClientConfig::default()
        }
    }
}
