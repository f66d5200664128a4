// SPDX-License-Identifier: Apache-2.0

//! A real Alertmanager.

use super::authority::Authority;
use super::process::Process;
use super::{free_port, http, testenv};
use serde_json::Value;
use std::fs;
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned};

const CONFIG: &str = "route: {receiver: none}\nreceivers: [{name: none}]\n";

/// Debian's Alertmanager reads its templates at one path only, so it gets a `/usr/share` of its own.
const LAUNCH: &str = "mount --rbind \"$1/usr/share\" /usr/share && shift && exec \"$@\"";

/// The only user of a guarded Alertmanager.
pub(crate) const USER: &str = "ann";

/// The password of [`USER`]...
pub(crate) const PASSWORD: &str = "s3cr3t-word";

/// ...as the Alertmanager keeps it...
const HASH: &str = "$2b$04$abcdefghijklmnopqrstuuwz0R8gxBLj0tYpXWff3vuypSOSNzxtC";

/// ...and as clients send it, with the name.
const AUTHORIZATION: &str = "Basic YW5uOnMzY3IzdC13b3Jk";

/// The longest wait for one answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A running Alertmanager; it is killed when this is dropped.
pub(crate) struct Alertmanager {
    process: Process,
    directory: TempDir,
    endpoint: Endpoint,
}

/// Where it listens, and the clients that it takes over TLS.
struct Endpoint {
    port: u16,
    client: Option<Arc<ClientConfig>>,
}

impl Alertmanager {
    /// Starts one on this port of 127.0.0.1, and waits until it is ready.
    pub(crate) fn start_at(port: u16) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        Self::launch(directory, Endpoint { port, client: None })
    }

    /// Starts one that serves [`USER`] over TLS, and nobody else. Its certificate is for `localhost`.
    pub(crate) fn start_guarded() -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let path = |name: &str| directory.path().join(name);
        let (authority, certificate, key) = (Authority::new(), path("own.pem"), path("own.key"));
        authority.write(&path("ca.pem"));
        authority.write_signed(&certificate, &key);
        let web = format!(
            "tls_server_config: {{cert_file: {certificate:?}, key_file: {key:?}}}\nbasic_auth_users: {{{USER}: \"{HASH}\"}}\n"
        );
        fs::write(path("web.yml"), web).expect("a file in a fresh directory");
        let endpoint = Endpoint {
            port: free_port(),
            client: Some(authority.client()),
        };
        Self::launch(directory, endpoint)
    }

    fn launch(directory: TempDir, endpoint: Endpoint) -> Self {
        let mut process = Process::start("alertmanager", &mut command(directory.path(), &endpoint));
        process.wait_until("the Alertmanager is ready", || {
            endpoint.get("/-/ready").is_ok_and(|answer| answer.status == 200)
        });
        Self {
            process,
            directory,
            endpoint,
        }
    }

    /// The port of 127.0.0.1 where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.endpoint.port
    }

    /// The certificate of the authority that has signed its own, if it is guarded.
    pub(crate) fn authority(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Its log.
    pub(crate) fn log(&self) -> String {
        self.process.stderr.text()
    }

    /// The alerts that fire.
    pub(crate) fn alerts(&self) -> Vec<Value> {
        let answer = self.endpoint.get("/api/v2/alerts").expect("an answer");
        answer.json().as_array().cloned().expect("a list")
    }

    /// The number of alerts that it has taken, of all states.
    pub(crate) fn received(&self) -> f64 {
        let page = self.endpoint.get("/metrics").expect("an answer").text();
        let lines = page
            .lines()
            .filter(|line| line.starts_with("alertmanager_alerts_received_total{"));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum()
    }
}

fn command(directory: &Path, endpoint: &Endpoint) -> Command {
    let config = directory.join("alertmanager.yml");
    fs::write(&config, CONFIG).expect("a file in a fresh directory");
    let parts = testenv("alertmanager");
    let mut command = Command::new("unshare");
    command
        .args(["--map-root-user", "--mount", "sh", "-c", LAUNCH, "sh"])
        .arg(&parts)
        .arg(parts.join("usr/bin/prometheus-alertmanager"))
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.path={}", directory.join("data").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{}", endpoint.port))
        .arg("--cluster.listen-address=");
    if endpoint.client.is_some() {
        command.arg(format!(
            "--web.config.file={}",
            directory.join("web.yml").display()
        ));
    }
    command
}

impl Endpoint {
    /// GETs a path.
    fn get(&self, path: &str) -> io::Result<http::Response> {
        let Some(client) = &self.client else {
            return http::get(self.port, path);
        };
        let name = ServerName::try_from("localhost").expect("a name");
        let connection = ClientConnection::new(client.clone(), name).map_err(io::Error::other)?;
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let headers = [("host", "localhost"), ("authorization", AUTHORIZATION)];
        let stream = StreamOwned::new(connection, stream);
        http::request_over(stream, "GET", path, &headers, b"")
    }
}
