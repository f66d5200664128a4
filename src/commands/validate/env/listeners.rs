// SPDX-License-Identifier: Apache-2.0

//! Addresses and sockets to listen on: whether they are free now, and whether two components want the same.

use std::ffi::OsStr;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::Path;

use rustix::fs::Access;
use rustix::net::SocketType;
use tokio::net::TcpSocket;

use super::directories::denied;
use super::port_holders::{self, overlap};
use super::report::{Position, Report};
use super::roles::Role;
use super::sites::Site;
use crate::config::{Document, Node};
use crate::net::Endpoint;
use crate::net::unix::check_vacant;
use crate::service::Plan;

/// The longest path of a socket, in bytes.
const MAX_SOCKET_PATH: usize = 107;

/// The receiver whose protocols may share a port.
const OTLP: &str = "receivers::otlp";

/// The options of its addresses.
const OTLP_PROTOCOLS: [&str; 2] = ["::protocols::grpc::endpoint", "::protocols::http::endpoint"];

/// The length of the hidden name that a socket has before its permissions are set: `.`, and 8 digits.
const HIDDEN_NAME: usize = 9;

/// Finds the addresses of a host, in the order in which the gateway tries them.
pub(super) type Resolve = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// An endpoint that the gateway binds at its start.
pub(super) struct Listener {
    at: Position,
    endpoint: Endpoint,
    socket_type: SocketType,
    /// The value in quotes, or `the value` where it must not be shown.
    shown: String,
    resolve: Resolve,
}

impl Listener {
    fn of_site(site: &Site<'_>, resolve: Resolve) -> Option<Self> {
        let (endpoint, socket_type) = match site.role {
            Role::Listen => (site.text.parse::<Endpoint>().ok()?, SocketType::STREAM),
            Role::StreamSocket => (Endpoint::Unix(site.text.as_str().into()), SocketType::STREAM),
            Role::DatagramSocket => (Endpoint::Unix(site.text.as_str().into()), SocketType::DGRAM),
            _ => return None,
        };
        Some(Self {
            at: site.position(),
            endpoint,
            socket_type,
            shown: site.shown(),
            resolve,
        })
    }

    /// The addresses of the host.
    fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        match &self.endpoint {
            Endpoint::Tcp { host, port } => (self.resolve)(host, *port),
            Endpoint::Unix(_) => Ok(Vec::new()),
        }
    }

    /// The path of its component: `receivers::otlp/a`.
    fn component(&self) -> Option<&str> {
        let path = self.at.path.as_str();
        let (section, rest) = path.split_once("::")?;
        let (id, _) = rest.split_once("::")?;
        path.get(..section.len() + 2 + id.len())
    }

    /// An `otlp` receiver and its protocol: `receivers::otlp/a` and `::protocols::grpc::endpoint`.
    fn otlp_protocol(&self) -> Option<(&str, &str)> {
        let (receiver, option) = self.at.path.split_at_checked(self.component()?.len())?;
        let id = receiver.strip_prefix(OTLP)?;
        let is_otlp = id.is_empty() || id.starts_with('/');
        (is_otlp && OTLP_PROTOCOLS.contains(&option)).then_some((receiver, option))
    }

    /// Whether both are the protocols of one `otlp` receiver, which share the port.
    fn shares_port(&self, other: &Self) -> bool {
        let any_port = matches!(self.endpoint, Endpoint::Tcp { port: 0, .. });
        let pair = self.otlp_protocol().zip(other.otlp_protocol());
        let is_pair = pair.is_some_and(|(one, other)| one.0 == other.0 && one.1 != other.1);
        is_pair && self.endpoint == other.endpoint && !any_port
    }

    /// Whether this and another listener can't both be bound. It looks host names up if two have the same port.
    fn clashes(&self, other: &Self) -> bool {
        match (&self.endpoint, &other.endpoint) {
            (Endpoint::Unix(one), Endpoint::Unix(other)) => one == other,
            (Endpoint::Tcp { port: 0, .. }, _) => false,
            (
                Endpoint::Tcp { host, port },
                Endpoint::Tcp {
                    host: other_host,
                    port: other_port,
                },
            ) => {
                // A host with several addresses takes the first free one.
                let overlaps = || {
                    let [own, others] =
                        [self, other].map(|listener| listener.addresses().unwrap_or_default());
                    let pair = own.first().zip(others.first());
                    pair.is_some_and(|(one, other)| overlap(one.ip(), other.ip()))
                };
                port == other_port && (host.eq_ignore_ascii_case(other_host) || overlaps())
            }
            _ => false,
        }
    }

    /// Whether `held`, which is bound, may have the address or the socket of this one. Any address of a host name counts, because
    /// a listener takes the first one that is free.
    fn may_be(&self, held: &Self) -> bool {
        match (&self.endpoint, &held.endpoint) {
            (Endpoint::Unix(one), Endpoint::Unix(other)) => is_same_file(one, other),
            (
                Endpoint::Tcp { host, port },
                Endpoint::Tcp {
                    host: held_host,
                    port: held_port,
                },
            ) => {
                let overlaps = || {
                    let [own, others] = [self, held].map(|listener| listener.addresses().unwrap_or_default());
                    let is_held = |one: &SocketAddr| others.iter().any(|other| overlap(one.ip(), other.ip()));
                    own.iter().any(is_held)
                };
                // A listener on port 0 holds a port that the system has chosen.
                let is_chosen = || {
                    *held_port == 0
                        && self
                            .addresses()
                            .unwrap_or_default()
                            .into_iter()
                            .any(port_holders::is_own)
                };
                (port == held_port || is_chosen()) && (host.eq_ignore_ascii_case(held_host) || overlaps())
            }
            _ => false,
        }
    }
}

/// Whether two paths lead to one file.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    one == other || real(one).is_some_and(|one| real(other) == Some(one))
}

/// What the components of a configuration listen on.
pub(in crate::commands) struct Listening(Vec<Listener>);

impl Listening {
    /// All listeners of a configuration.
    pub(super) const fn of(listeners: Vec<Listener>) -> Self {
        Self(listeners)
    }

    /// Whether this configuration has a listener with this path and endpoint.
    fn has(&self, listener: &Listener) -> bool {
        let is_same =
            |held: &Listener| held.at.path == listener.at.path && held.endpoint == listener.endpoint;
        self.0.iter().any(is_same)
    }

    /// Reports every listener whose address an earlier one has, apart from pairs that `running` has too.
    pub(super) fn check_clashes(&self, running: &Self, report: &mut Report<'_>) {
        let run = |one: &Listener, other: &Listener| running.has(one) && running.has(other);
        report_clashes(&self.0, run, report);
    }

    /// The paths of a component of this configuration and one of another, for all pairs that want the same address or
    /// socket.
    pub(in crate::commands) fn clashes(&self, other: &Self) -> Vec<[String; 2]> {
        let mut clashes = Vec::new();
        for one in &self.0 {
            let others = other.0.iter().filter(|other| one.clashes(other));
            for [one, other] in others.filter_map(|other| Some([one.component()?, other.component()?])) {
                if one != other {
                    clashes.push([one.to_owned(), other.to_owned()]);
                }
            }
        }
        clashes
    }

    /// Reports addresses and sockets that this machine can't give, apart from those that `running` may hold.
    pub(super) fn check_beside(&self, running: &Self, report: &mut Report<'_>) {
        let is_new = |listener: &&Listener| !running.0.iter().any(|held| listener.may_be(held));
        for listener in self.0.iter().filter(is_new) {
            check_listener(listener, report);
        }
    }
}

/// All listeners of the components that run, and those of the gateway's own metrics.
pub(super) fn all(sites: &[Site<'_>], document: &Document, plan: &Plan, resolve: Resolve) -> Vec<Listener> {
    let of_components = sites.iter().filter_map(|site| Listener::of_site(site, resolve));
    let telemetry = document.service.telemetry.as_ref();
    let span = telemetry.map(|node| node.key_span().unwrap_or(node.span()));
    let metrics = &plan.telemetry.metrics;
    // Another check reports an address that can't be read.
    let pages = metrics.pages().unwrap_or_default();
    let of_telemetry = pages.into_iter().map(|(endpoint, _)| {
        let hides = telemetry.is_some_and(has_substitution);
        let shown = if hides {
            "the value".to_owned()
        } else {
            format!("\"{endpoint}\"")
        };
        let at = Position {
            span,
            path: metrics.option_of(&endpoint),
        };
        Listener {
            at,
            endpoint,
            socket_type: SocketType::STREAM,
            shown,
            resolve,
        }
    });
    of_components.chain(of_telemetry).collect()
}

/// Whether a value came out of `${...}`.
fn has_substitution(node: &Node) -> bool {
    let entries = node.as_map().unwrap_or_default();
    let items = node.as_list().unwrap_or_default();
    node.is_substituted()
        || entries.iter().any(|entry| has_substitution(&entry.value))
        || items.iter().any(has_substitution)
}

/// Reports every listener whose address an earlier one has.
pub(super) fn check_clashes(listeners: &[Listener], report: &mut Report<'_>) {
    report_clashes(listeners, |_, _| false, report);
}

/// The same apart from pairs that `run` already.
fn report_clashes(
    listeners: &[Listener],
    run: impl Fn(&Listener, &Listener) -> bool,
    report: &mut Report<'_>,
) {
    for (index, listener) in listeners.iter().enumerate() {
        let mut earlier = listeners.iter().take(index);
        let clashing = earlier.find(|earlier| {
            !run(listener, earlier) && !listener.shares_port(earlier) && listener.clashes(earlier)
        });
        if let Some(earlier) = clashing {
            report.error(
                &listener.at,
                format!("{} listens there too, on {}", earlier.at.path, earlier.shown),
                "give each its own address",
            );
        }
    }
}

/// Reports clashes, and addresses and sockets that this machine can't give.
pub(super) fn check(listeners: &[Listener], report: &mut Report<'_>) {
    check_clashes(listeners, report);
    for listener in listeners {
        check_listener(listener, report);
    }
}

fn check_listener(listener: &Listener, report: &mut Report<'_>) {
    report.begin_check();
    match &listener.endpoint {
        Endpoint::Tcp { .. } => check_tcp(listener, report),
        Endpoint::Unix(path) => check_unix(listener, path, report),
    }
}

fn check_tcp(listener: &Listener, report: &mut Report<'_>) {
    let (at, shown) = (&listener.at, &listener.shown);
    let addresses = match listener.addresses() {
        Ok(addresses) => addresses,
        Err(error) => {
            let message = format!("can't resolve the host of {shown}: {error}");
            return report.error(
                at,
                message,
                "write an address of this machine, or fix the name in DNS",
            );
        }
    };
    let mut failed: Option<(SocketAddr, io::Error)> = None;
    for address in addresses {
        match bind(address) {
            Ok(()) => {
                // A machine without IPv6 has no second address of `localhost`.
                if let Some((other, error)) = failed.filter(|(_, error)| is_in_use(error)) {
                    let message = format!(
                        "the gateway would listen on {address} only: {}",
                        why(other, &error)
                    );
                    report.warning(at, message, "write the address that clients connect to");
                }
                return;
            }
            Err(error) if failed.is_none() => failed = Some((address, error)),
            Err(_) => {}
        }
    }
    if let Some((address, error)) = failed {
        let message = format!("can't listen on {shown}: {}", why(address, &error));
        report.error(at, message, remedy(&error));
    }
}

/// The reason of a failed bind, with the process that holds the address.
fn why(address: SocketAddr, error: &io::Error) -> String {
    match port_holders::of_address(address).filter(|_| is_in_use(error)) {
        Some(holder) => format!("{holder} listens there"),
        None => error.to_string(),
    }
}

fn is_in_use(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "stop that process or choose another port; a gateway that runs with this configuration holds its ports too"
        }
        io::ErrorKind::AddrNotAvailable => "write an address of an interface of this machine",
        io::ErrorKind::PermissionDenied => {
            "choose a port from 1024, or give the gateway the capability CAP_NET_BIND_SERVICE"
        }
        _ => "choose another address",
    }
}

/// Binds and releases an address. No client can connect meanwhile, because the socket does not listen.
fn bind(address: SocketAddr) -> io::Result<()> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // As the gateway binds: connections that have just ended do not hold the port.
    socket.set_reuseaddr(true)?;
    socket.bind(address)
}

/// The addresses of this machine or of DNS. An empty host means every interface.
pub(super) fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if !host.is_empty() {
        return Ok((host, port).to_socket_addrs()?.collect());
    }
    let any = SocketAddr::from(([0u16; 8], port));
    match bind(any) {
        // The machine has no IPv6.
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            Ok(vec![SocketAddr::from(([0u8; 4], port))])
        }
        _ => Ok(vec![any]),
    }
}

/// The address that is known without a look at the machine or DNS. `localhost` is `::1`, which most machines try first.
pub(super) fn written_address(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let ip: IpAddr = match host {
        "" => Ipv6Addr::UNSPECIFIED.into(),
        "localhost" => Ipv6Addr::LOCALHOST.into(),
        host => host.parse().map_err(io::Error::other)?,
    };
    Ok(vec![SocketAddr::new(ip, port)])
}

fn check_unix(listener: &Listener, path: &Path, report: &mut Report<'_>) {
    let (at, shown) = (&listener.at, &listener.shown);
    let name = path.file_name().map_or(0, OsStr::len);
    // The socket begins with a hidden name in the same directory.
    let length = path.as_os_str().len() - name + name.max(HIDDEN_NAME);
    if length > MAX_SOCKET_PATH {
        let message = format!("{shown} is too long for a socket: {length} bytes, limit {MAX_SOCKET_PATH}");
        return report.error(at, message, "choose a shorter path");
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    if !directory.is_dir() {
        let message = format!("the directory of {shown} does not exist");
        return report.error(at, message, "make the directory first");
    }
    if let Some(reason) = denied(directory, Access::WRITE_OK | Access::EXEC_OK) {
        let message = format!("can't make the socket {shown}: its directory {reason}");
        return report.error(at, message, "let the gateway's user write into the directory");
    }
    if let Err(error) = check_vacant(path, listener.socket_type) {
        let reason = match error {
            crate::net::ListenError::InUse(_) => "another process listens there",
            _ => "the file exists and is not a socket",
        };
        let message = format!("can't make the socket {shown}: {reason}");
        report.error(
            at,
            message,
            "stop the process, move the file away, or choose another path",
        );
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::super::sites::tests::with_sites;
    use super::*;
    use crate::component::testing::free_port;
    use crate::config::Problems;

    /// The messages about the endpoints of two receivers.
    fn messages(one: &str, other: &str) -> String {
        let grpc = |endpoint: &str| format!("{{protocols: {{grpc: {{endpoint: \"{endpoint}\"}}}}}}");
        let (one, other) = (grpc(one), grpc(other));
        messages_of(&format!("otlp: {one}, otlp/b: {other}"), "otlp, otlp/b")
    }

    /// The messages about receivers that all run.
    fn messages_of(receivers: &str, ids: &str) -> String {
        let text = format!(
            "
receivers: {{{receivers}}}
exporters: {{nop: }}
service: {{pipelines: {{logs: {{receivers: [{ids}], exporters: [nop]}}}}}}
"
        );
        let mut messages = String::new();
        with_sites(&text, |sites, problems| {
            let listeners = sites.iter();
            let listeners = listeners.filter_map(|site| Listener::of_site(site, addresses));
            check(&listeners.collect::<Vec<_>>(), &mut Report::new(problems));
            messages = problems.to_string();
        });
        messages
    }

    #[test]
    fn a_held_port_names_its_holder_and_a_free_one_is_fine() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = held.local_addr().unwrap().to_string();
        let messages_of_held = messages(&address, "127.0.0.1:0");
        let pid = format!("(pid {}) listens there", std::process::id());
        assert!(messages_of_held.contains(&pid), "{messages_of_held}");
        assert!(messages_of_held.contains("receivers::otlp::protocols::grpc::endpoint"));
        drop(held);
        assert_eq!(messages("127.0.0.1:0", "127.0.0.1:0"), "");
    }

    #[test]
    fn only_listeners_that_a_running_configuration_does_not_hold_are_checked() {
        let [held, taken] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [held, taken_address] = [&held, &taken].map(|one| one.local_addr().unwrap().to_string());
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let _live = UnixListener::bind(path("live")).unwrap();
        std::os::unix::fs::symlink(directory.path(), path("link")).unwrap();
        let listening = |endpoints: &[String]| {
            let listeners = endpoints.iter().map(|text| Listener {
                at: Position {
                    span: None,
                    path: text.clone(),
                },
                endpoint: text.parse().unwrap(),
                socket_type: SocketType::STREAM,
                shown: text.clone(),
                resolve: addresses,
            });
            Listening(listeners.collect())
        };
        let unix = |name: &str| format!("unix:{}", path(name).display());
        let running = listening(&[held.clone(), unix("live")]);
        let said_beside = |running: &Listening, endpoint: &str| {
            let mut problems = Problems::default();
            let new = listening(&[endpoint.to_owned()]);
            new.check_beside(running, &mut Report::new(&mut problems));
            problems.to_string()
        };
        let said = |endpoint: &str| said_beside(&running, endpoint);
        let (_, port) = held.rsplit_once(':').unwrap();
        let addresses = [held.clone(), format!("0.0.0.0:{port}"), "127.0.0.1:0".to_owned()];
        let sockets = ["live", "link/live", "new"].map(unix);
        for fine in addresses.iter().chain(&sockets) {
            assert_eq!(said(fine), "", "{fine}");
        }
        let refused = said(&taken_address);
        assert!(refused.contains("listens there"), "{refused}");
        let any_port = listening(&["127.0.0.1:0".to_owned()]);
        assert_eq!(said_beside(&any_port, &taken_address), "", "it may hold the port");
        let elsewhere = listening(&["127.0.0.2:0".to_owned()]);
        let refused = said_beside(&elsewhere, &taken_address);
        assert!(refused.contains("listens there"), "{refused}");
        drop(taken);
        assert_eq!(said(&taken_address), "");
    }

    #[test]
    fn no_host_is_looked_up_for_ports_that_differ() {
        let listener = |endpoint: &str| Listener {
            at: Position {
                span: None,
                path: endpoint.to_owned(),
            },
            endpoint: endpoint.parse().unwrap(),
            socket_type: SocketType::STREAM,
            shown: endpoint.to_owned(),
            resolve: |host, _| panic!("{host} was looked up"),
        };
        assert!(!listener("a.test:1").may_be(&listener("b.test:2")));
    }

    #[test]
    fn two_listeners_on_one_address_are_an_error_of_the_second() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        let socket = path.to_str().unwrap();
        let said = messages(socket, socket);
        let expected = "receivers::otlp/b::protocols::grpc::endpoint: receivers::otlp::protocols::grpc::endpoint listens there too";
        assert!(said.contains(expected), "{said}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_protocols_of_one_otlp_receiver_may_share_an_address() {
        let directory = tempfile::tempdir().unwrap();
        let socket = format!("unix:{}", directory.path().join("a.sock").display());
        let port = free_port();
        let address = format!("127.0.0.1:{port}");
        let of = |grpc: &str, http: &str| {
            format!("{{protocols: {{grpc: {{endpoint: \"{grpc}\"}}, http: {{endpoint: \"{http}\"}}}}}}")
        };
        for shared in [&address, &socket] {
            let one = format!("otlp/a: {}", of(shared, shared));
            assert_eq!(messages_of(&one, "otlp/a"), "", "{shared}");
            let two = format!("{one}, otlp/b: {}", of("127.0.0.1:0", shared));
            let said = messages_of(&two, "otlp/a, otlp/b");
            assert_eq!(said.matches("listens there too").count(), 1, "{said}");
        }
        // Endpoints that overlap and are not equal are two listeners.
        let wide = format!("0.0.0.0:{port}");
        let said = messages_of(&format!("otlp: {}", of(&address, &wide)), "otlp");
        assert!(said.contains("listens there too"), "{said}");
    }

    #[test]
    fn clashes_are_found_without_a_look_at_the_machine() {
        let clashes = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|text| {
                let at = Position {
                    span: None,
                    path: text.to_owned(),
                };
                Listener {
                    at,
                    endpoint: text.parse().unwrap(),
                    socket_type: SocketType::STREAM,
                    shown: text.to_owned(),
                    resolve: written_address,
                }
            });
            assert_eq!(one.clashes(&other), other.clashes(&one));
            one.clashes(&other)
        };
        for (one, other) in [
            ("127.0.0.1:4317", "127.0.0.1:4317"),
            ("127.0.0.1:4317", "0.0.0.0:4317"),
            ("127.0.0.1:4317", "[::]:4317"),
            (":4317", "127.0.0.1:4317"),
            ("localhost:4317", "[::]:4317"),
            ("gateway.example:4317", "Gateway.example:4317"),
            ("unix:/run/a.sock", "unix:/run/a.sock"),
        ] {
            assert!(clashes(one, other), "{one} {other}");
        }
        for (one, other) in [
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("127.0.0.1:4317", "127.0.0.2:4317"),
            ("127.0.0.1:4317", "127.0.0.1:4318"),
            ("[::1]:4317", "0.0.0.0:4317"),
            ("gateway.example:4317", "127.0.0.1:4317"),
            ("unix:/run/a.sock", "unix:/run/b.sock"),
        ] {
            assert!(!clashes(one, other), "{one} {other}");
        }
    }

    #[test]
    fn clashes_of_a_running_configuration_are_no_errors_of_the_next() {
        let without_ipv6: Resolve = |host, port| {
            let host = if host == "localhost" { "127.0.0.1" } else { host };
            written_address(host, port)
        };
        let of = |resolve: Resolve, endpoints: &[&str]| {
            let listeners = endpoints.iter().enumerate().map(|(index, text)| Listener {
                at: Position {
                    span: None,
                    path: format!("receivers::otlp/{index}::protocols::grpc::endpoint"),
                },
                endpoint: text.parse().unwrap(),
                socket_type: SocketType::STREAM,
                shown: (*text).to_owned(),
                resolve,
            });
            Listening::of(listeners.collect())
        };
        let said = |new: &Listening, running: &Listening| {
            let mut problems = Problems::default();
            new.check_clashes(running, &mut Report::new(&mut problems));
            problems.to_string()
        };
        let runs = ["localhost:4317", "[::1]:4317"];
        let other = of(written_address, &["localhost:4317", "[::1]:4318"]);
        assert_eq!(said(&of(without_ipv6, &runs), &other), "");
        let running = of(written_address, &runs);
        assert_eq!(said(&running, &running), "");
        let refused = said(&running, &other);
        assert!(refused.contains("listens there too"), "{refused}");
        let three = of(written_address, &[runs[0], runs[1], "[::]:4317"]);
        let refused = said(&three, &running);
        assert_eq!(refused.matches("listens there too").count(), 1, "{refused}");
    }

    #[test]
    fn components_of_two_configurations_that_want_one_address_are_named() {
        let of = |receiver: &str, zpages: &str| {
            let text = format!(
                "
receivers: {{otlp: {{protocols: {{http: {{endpoint: \"{receiver}\"}}}}}}}}
exporters: {{nop: }}
extensions: {{zpages: {{endpoint: \"{zpages}\"}}}}
service: {{extensions: [zpages], pipelines: {{logs: {{receivers: [otlp], exporters: [nop]}}}}}}
"
            );
            let mut listening = Listening(Vec::new());
            with_sites(&text, |sites, _| {
                let listeners = sites.iter();
                let listeners = listeners.filter_map(|site| Listener::of_site(site, addresses));
                listening = Listening::of(listeners.collect());
            });
            listening
        };
        let old = of("127.0.0.1:4318", "127.0.0.1:1");
        let new = of("127.0.0.1:2", "127.0.0.1:4318");
        let expected = ["receivers::otlp".to_owned(), "extensions::zpages".to_owned()];
        assert_eq!(old.clashes(&new), [expected]);
        assert!(old.clashes(&old).is_empty(), "a component does not hinder itself");
    }

    #[test]
    fn sockets_need_a_directory_a_short_path_and_no_listener() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let _live = UnixListener::bind(path("live")).unwrap();
        std::fs::write(path("file"), "").unwrap();
        for (name, expected) in [
            ("live".to_owned(), "another process listens there"),
            ("file".to_owned(), "exists and is not a socket"),
            ("missing/a".to_owned(), "does not exist"),
            ("x".repeat(120), "too long for a socket"),
        ] {
            let said = messages(&path(&name), "127.0.0.1:0");
            assert!(said.contains(expected), "{name}: {said}");
        }
        assert_eq!(messages(&path("new"), "127.0.0.1:0"), "");
    }
}
