// SPDX-License-Identifier: Apache-2.0

//! Options of the target discoveries.

use std::num::NonZeroU16;
use std::path::PathBuf;

use super::http::{self, http_options};
use super::units::ScalarText;
use tidegate_config::{Node, Ordered, Problems};
use tidegate_prometheus::duration::PromDuration;

tidegate_config::options! {
    /// Targets with common labels.
    pub struct StaticConfig {
        /// Addresses of targets: `host:port`.
        pub targets: Vec<String> = Vec::new(),
        /// Labels of all these targets.
        pub labels: Ordered<ScalarText> = Ordered::default(),
    }
}

tidegate_config::options! {
    /// Targets from JSON or YAML files.
    pub struct FileSdConfig {
        /// Paths of the files, which end in .json, .yml or .yaml. The last part may contain one `*`.
        pub files: Vec<String> = required,
        /// Interval of reads. Each change of a file causes a read too.
        pub refresh_interval: PromDuration = PromDuration::seconds(300),
    }
    check = FileSdConfig::check
}

http_options! {
    /// Targets from an HTTP service.
    pub struct HttpSdConfig {
        /// URL of the service.
        pub url: String = required,
        /// Interval of requests.
        pub refresh_interval: PromDuration = PromDuration::seconds(60),
    }
    refused = http::REFUSED;
    check = HttpSdConfig::check
}

tidegate_config::choices! {
    /// A type of DNS record.
    pub enum RecordType {
        /// Host and port of a service.
        Srv = "SRV" | "srv",
        /// IPv4 addresses.
        A = "A" | "a",
        /// IPv6 addresses.
        Aaaa = "AAAA" | "aaaa",
        /// Mail exchangers.
        Mx = "MX" | "mx",
        /// Name servers.
        Ns = "NS" | "ns",
    }
}

tidegate_config::options! {
    /// Targets from DNS.
    pub struct DnsSdConfig {
        /// DNS names of the targets.
        pub names: Vec<String> = required,
        /// Type of DNS records.
        pub r#type: RecordType = RecordType::Srv,
        /// Port of the targets. SRV records have their own.
        pub port: Option<NonZeroU16> = None,
        /// Interval of lookups.
        pub refresh_interval: PromDuration = PromDuration::seconds(30),
        /// DNS servers as `address:port`, instead of those of `resolv_conf`. Prometheus has no such option.
        pub servers: Vec<String> = Vec::new(),
        /// File with the DNS servers and search domains. Prometheus has no such option.
        pub resolv_conf: PathBuf = PathBuf::from("/etc/resolv.conf"),
    }
    check = DnsSdConfig::check
}

fn check_interval(interval: PromDuration, at: &Node, cx: &mut Problems) {
    if interval.is_zero() {
        cx.at(at.child("refresh_interval"))
            .error("must be greater than zero");
    }
}

/// The endings of names of target files.
const ENDINGS: &[&str] = &[".json", ".yml", ".yaml"];

impl FileSdConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        check_interval(self.refresh_interval, at, cx);
        if self.files.is_empty() {
            cx.at(at.child("files")).error("must name at least one file");
        }
        let nodes = at.child("files").as_list().unwrap_or_default();
        for (file, node) in self.files.iter().zip(nodes) {
            let lower = file.to_ascii_lowercase();
            let (directory, name) = file.rsplit_once('/').unwrap_or(("", file));
            let stars = name.matches('*').count();
            if directory.contains('*') || stars > 1 || !ENDINGS.iter().any(|end| lower.ends_with(end)) {
                cx.at(node)
                    .help(
                        "only the last part of the path may hold a `*`, one; it ends in .json, .yml or .yaml",
                    )
                    .error(format!("path name {file:?} is not valid for file discovery"));
            }
        }
    }
}

impl HttpSdConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        check_interval(self.refresh_interval, at, cx);
        self.check_http(at, cx);
        let uri = self.url.parse::<::http::Uri>().ok();
        let usable = uri.is_some_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some_and(|host| !host.is_empty())
        });
        // A URL with credentials would be a secret, but it becomes a label.
        let has_credentials = uri_authority(&self.url).contains('@');
        if !usable {
            cx.at(at.child("url"))
                .error("expected a URL that begins with http:// or https://");
        } else if has_credentials {
            cx.at(at.child("url"))
                .help("use `basic_auth`")
                .error("a URL must not contain credentials");
        }
    }
}

/// The authority of a URL, between the scheme and the path.
fn uri_authority(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

impl DnsSdConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        check_interval(self.refresh_interval, at, cx);
        if self.names.is_empty() {
            cx.at(at.child("names")).error("must name at least one name");
        }
        if self.r#type != RecordType::Srv && self.port.is_none() {
            cx.at(at)
                .help("add `port: 9100`, say")
                .error("a port is required for all record types except SRV");
        }
        let nodes = at.child("servers").as_list().unwrap_or_default();
        for (server, node) in self.servers.iter().zip(nodes) {
            if server.parse::<std::net::SocketAddr>().is_err() {
                cx.at(node)
                    .error("expected an address with a port, such as 10.0.0.2:53");
            }
        }
    }
}
