//! Options of the target discoveries.

use std::num::NonZeroU16;
use std::path::PathBuf;

use super::http::{self, http_options};
use super::units::Text;
use crate::config::{Node, Ordered, Problems};
use crate::prom::duration::PromDuration;

crate::options! {
    /// Targets with labels in common.
    pub struct StaticConfig {
        /// `host:port` of each.
        pub targets: Vec<String> = Vec::new(),
        /// Labels of all of them.
        pub labels: Ordered<Text> = Ordered::default(),
    }
}

crate::options! {
    /// Targets from files of JSON or YAML.
    pub struct FileSdConfig {
        /// Paths; the last part may hold a `*`. Names end in .json, .yml or .yaml.
        pub files: Vec<String> = required,
        /// How often they are read again, besides at every change.
        pub refresh_interval: PromDuration = PromDuration::seconds(300),
    }
    check = FileSdConfig::check
}

http_options! {
    /// Targets from an HTTP service.
    pub struct HttpSdConfig {
        /// Where to ask.
        pub url: String = required,
        /// How often.
        pub refresh_interval: PromDuration = PromDuration::seconds(60),
    }
    refused = http::REFUSED;
    check = HttpSdConfig::check
}

crate::choices! {
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

crate::options! {
    /// Targets from DNS.
    pub struct DnsSdConfig {
        /// Names to look up.
        pub names: Vec<String> = required,
        /// Records to ask for.
        pub r#type: RecordType = RecordType::Srv,
        /// The targets' port, where the records have none.
        pub port: Option<NonZeroU16> = None,
        /// How often.
        pub refresh_interval: PromDuration = PromDuration::seconds(30),
        /// DNS servers as `address:port`, instead of those of `resolv_conf`. (Not in Prometheus.)
        pub servers: Vec<String> = Vec::new(),
        /// Names the servers and the domains to search. (Not in Prometheus.)
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
                .error("a URL with credentials in it is not supported");
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
