// SPDX-License-Identifier: Apache-2.0

//! Names of peers: whether DNS has them, and with `--connect` whether they accept connections.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::report::Report;
use super::roles::Role;
use super::sites::Site;
use crate::commands::Failure;
use crate::commands::run::runtime;
use crate::config::{Decode, Problems};
use crate::net::TlsClientConfig;
use crate::net::client::{Connector, UseTls};
use crate::net::tls::ALPN_HTTP;

/// Most time for the lookup of a name.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// Most time for a connection with its handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Most lookups and connections at the same time.
const CONCURRENT: usize = 64;

/// Most names and connections of one run.
const MAX_PEERS: usize = 512;

/// A host that the gateway connects to.
struct Contact<'a> {
    site: &'a Site<'a>,
    address: Address,
}

/// The parts of an address or URL that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Address {
    scheme: Option<String>,
    /// Without brackets.
    host: String,
    port: Option<u16>,
}

pub(super) fn check(sites: &[Site<'_>], connects: bool, report: &mut Report<'_>) -> Result<(), Failure> {
    let mut peers: Vec<Contact<'_>> = Vec::new();
    for site in sites.iter().filter(|site| is_peer(site)) {
        for text in site.text.split(',').map(str::trim) {
            match unix_path(text) {
                Some(path) => check_socket(site, path, report),
                None => peers.extend(address(text).map(|address| Contact { site, address })),
            }
        }
    }
    if peers.is_empty() {
        return Ok(());
    }
    peers.truncate(MAX_PEERS);
    let runtime = runtime()?;
    let names = names(&peers);
    let results = runtime.block_on(all(names.into_iter().map(|name| (name.clone(), lookup(name)))));
    report_names(&peers, &results, report);
    if connects {
        let reached = peers
            .iter()
            .filter(|peer| results.get(&peer.address.host) != Some(&Err(())));
        report_connections(reached, &runtime, report);
    }
    // A resolver that hangs must not hold up the command.
    runtime.shutdown_background();
    Ok(())
}

/// Whether the gateway itself connects to the value. A proxy resolves the other names.
fn is_peer(site: &Site<'_>) -> bool {
    let is_proxy = site.path.ends_with("::proxy_url");
    let has_proxy = site.table.get("proxy_url").is_some_and(|proxy| !proxy.is_null());
    matches!(site.role, Role::Peer | Role::Target) && (is_proxy || !has_proxy)
}

fn unix_path(text: &str) -> Option<&Path> {
    let path = text
        .strip_prefix("unix:")
        .map(|path| path.strip_prefix("//").unwrap_or(path));
    path.or(Some(text).filter(|text| text.starts_with('/')))
        .map(Path::new)
}

/// gRPC's own prefixes for resolved names.
const RESOLVERS: [&str; 4] = ["dns:///", "passthrough:///", "dns:", "passthrough:"];

/// The parts of `host`, `host:port`, `[::1]:port` or a URL. The login of a URL is dropped.
fn address(text: &str) -> Option<Address> {
    let resolved = RESOLVERS.iter().find_map(|prefix| text.strip_prefix(prefix));
    // A host may have the name `dns`.
    let text = resolved.filter(|rest| rest.contains(':')).unwrap_or(text);
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (Some(scheme.to_ascii_lowercase()), rest),
        None => (None, text),
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit('@').next()?;
    let (host, port) = match authority.strip_prefix('[') {
        Some(inner) => inner.split_once(']')?,
        None => authority
            .rfind(':')
            .map_or((authority, ""), |colon| authority.split_at(colon)),
    };
    let port = port.strip_prefix(':').and_then(|port| port.parse().ok());
    (!host.is_empty()).then(|| Address {
        scheme,
        host: host.to_owned(),
        port,
    })
}

fn check_socket(site: &Site<'_>, path: &Path, report: &mut Report<'_>) {
    report.begin_check();
    if !path.exists() {
        let message = format!("the socket {} does not exist", site.shown());
        report.warning(
            &site.position(),
            message,
            "start the program that listens on it, or fix the path",
        );
    }
}

/// The names to look up, without addresses.
fn names(peers: &[Contact<'_>]) -> BTreeSet<String> {
    let hosts = peers.iter().map(|peer| &peer.address.host);
    hosts
        .filter(|host| host.parse::<IpAddr>().is_err())
        .cloned()
        .collect()
}

async fn lookup(name: String) -> Result<(), ()> {
    let found = timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host((name.as_str(), 0))).await;
    match found {
        Ok(Ok(mut addresses)) => addresses.next().map(drop).ok_or(()),
        _ => Err(()),
    }
}

/// Runs all tasks side by side, [`CONCURRENT`] at a time: the result of each by its key.
async fn all<K, T, F>(tasks: impl Iterator<Item = (K, F)>) -> BTreeMap<K, T>
where
    K: Ord + Send + 'static,
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(CONCURRENT));
    let mut running = JoinSet::new();
    for (key, task) in tasks {
        let permits = permits.clone();
        running.spawn(async move {
            let _permit = permits.acquire_owned().await;
            (key, task.await)
        });
    }
    let mut results = BTreeMap::new();
    while let Some(finished) = running.join_next().await {
        results.extend(finished);
    }
    results
}

fn report_names(peers: &[Contact<'_>], results: &BTreeMap<String, Result<(), ()>>, report: &mut Report<'_>) {
    for Contact { site, address } in peers {
        let Some(result) = results.get(&address.host) else {
            continue;
        };
        report.begin_check();
        if result.is_err() {
            let host = if site.shown().starts_with('"') {
                format!("\"{}\"", address.host)
            } else {
                "the host".to_owned()
            };
            let message = format!("can't resolve {host} within {} s", LOOKUP_TIMEOUT.as_secs());
            let help = "fix the name, or the DNS of this machine (/etc/resolv.conf)";
            match site.role {
                Role::Target => report.warning(&site.position(), message, help),
                _ => report.error(&site.position(), message, help),
            }
        }
    }
}

/// The address of a peer in quotes, or the reason why the message does not show it.
fn shown_peer(site: &Site<'_>) -> String {
    let shown = site.shown();
    if shown.starts_with('"') {
        shown
    } else {
        "the peer of a variable or secret".to_owned()
    }
}

/// Opens a connection to each peer that has a port, and closes it.
fn report_connections<'a>(
    peers: impl Iterator<Item = &'a Contact<'a>>,
    runtime: &tokio::runtime::Runtime,
    report: &mut Report<'_>,
) {
    let mut sites = Vec::new();
    let mut tasks = Vec::new();
    for peer in peers {
        let Some((uri, connector)) = connection(peer) else {
            continue;
        };
        tasks.push((sites.len(), connect(connector, uri)));
        sites.push(peer.site);
    }
    let results = runtime.block_on(all(tasks.into_iter()));
    for (index, result) in results {
        let Some(site) = sites.get(index) else { continue };
        report.begin_check();
        if let Err(error) = result {
            let message = format!("can't connect to {}: {error}", shown_peer(site));
            let help = "start the peer, or check address, firewall and `tls`";
            match site.role {
                Role::Target => report.warning(&site.position(), message, help),
                _ => report.error(&site.position(), message, help),
            }
        }
    }
}

async fn connect(connector: Connector, uri: Uri) -> Result<(), String> {
    match timeout(CONNECT_TIMEOUT, connector.connect(uri)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs())),
    }
}

/// The URL to connect to, and the connector with the component's own TLS.
fn connection(peer: &Contact<'_>) -> Option<(Uri, Connector)> {
    let Address { scheme, host, port } = &peer.address;
    let tls = tls(peer.site);
    let is_secure = match scheme.as_deref() {
        Some("https") => true,
        // gRPC, where no scheme says it.
        None => peer.site.component == "exporters.otlp" && !tls.insecure,
        Some(_) => false,
    };
    let port = port.or(match scheme.as_deref() {
        Some("https") => Some(443),
        Some("http") => Some(80),
        Some("nats" | "tls") => Some(4222),
        _ => None,
    })?;
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.clone()
    };
    let use_tls = if is_secure { UseTls::Always } else { UseTls::Never };
    let uri = format!("http://{host}:{port}/").parse::<Uri>().ok()?;
    // Another check reports files that are unusable.
    Some((uri, Connector::new(None, use_tls, &tls, ALPN_HTTP).ok()?))
}

/// The `tls` block beside the option; the default without one, or if it has other options.
fn tls(site: &Site<'_>) -> TlsClientConfig {
    let node = site.table.get("tls").filter(|tls| !tls.is_null());
    node.and_then(|tls| TlsClientConfig::decode(tls, &mut Problems::default()))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::sites::tests::with_sites;
    use super::*;

    #[test]
    fn hosts_and_ports_of_all_spellings_are_read() {
        let table = [
            ("a.example", None, "a.example", None),
            ("a.example:1", None, "a.example", Some(1)),
            ("[::1]:2", None, "::1", Some(2)),
            ("dns:///a:3", None, "a", Some(3)),
            ("dns:4", None, "dns", Some(4)),
            ("https://u:p@a.example/x?y", Some("https"), "a.example", None),
            ("nats://a:4222", Some("nats"), "a", Some(4222)),
        ];
        for (text, scheme, host, port) in table {
            let expected = Address {
                scheme: scheme.map(str::to_owned),
                host: host.to_owned(),
                port,
            };
            assert_eq!(address(text), Some(expected), "{text}");
        }
        assert_eq!(address(""), None);
        assert_eq!(address("[::1"), None);
        assert_eq!(unix_path("unix:///a"), Some(Path::new("/a")));
        assert_eq!(unix_path("a:1"), None);
    }

    fn messages(endpoint: &str, connects: bool) -> String {
        let text = format!(
            "
receivers: {{nop: }}
exporters: {{otlp: {{endpoint: \"{endpoint}\", tls: {{insecure: true}}}}}}
service: {{pipelines: {{logs: {{receivers: [nop], exporters: [otlp]}}}}}}
"
        );
        let mut messages = String::new();
        with_sites(&text, |sites, problems| {
            check(sites, connects, &mut Report::new(problems)).unwrap();
            messages = problems.to_string();
        });
        messages
    }

    #[test]
    fn a_name_that_dns_does_not_have_is_an_error() {
        let said = messages("nowhere.invalid:4317", false);
        assert!(
            said.contains("error: exporters::otlp::endpoint: can't resolve"),
            "{said}"
        );
        assert_eq!(messages("localhost:4317", false), "");
        assert_eq!(messages("127.0.0.1:4317", false), "");
    }

    #[test]
    fn connections_are_opened_only_if_asked_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        assert_eq!(messages(&address, true), "");
        drop(listener);
        assert_eq!(messages(&address, false), "");
        let said = messages(&address, true);
        assert!(said.contains("can't connect to"), "{said}");
    }
}
