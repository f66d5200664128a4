// SPDX-License-Identifier: Apache-2.0

//! Targets that require a client's identity, and prove their own.

use super::{into_sink, job};
use crate::kit::{Authority, Gateway, OtlpSink, SOON, free_port, wait_until};
use std::path::Path;
use tempfile::TempDir;

/// Writes an authority, and a certificate that it has signed for `localhost`, under these names with `.pem`, `.key`.
fn certificates(directory: &Path) {
    let authority = Authority::new();
    authority.write(&directory.join("ca.pem"));
    authority.write_signed(&directory.join("own.pem"), &directory.join("own.key"));
}

/// A gateway whose page is served over TLS to one user.
fn guarded(port: u16, directory: &Path) -> Gateway {
    let directory = directory.display();
    Gateway::start(&format!(
        "extensions:
  basicauth: {{htpasswd: {{inline: \"ada:s3cr3t-word\"}}}}
receivers:
  uds: {{datagram: {{path: in.sock}}}}
exporters:
  prometheus:
    endpoint: \"127.0.0.1:{port}\"
    tls: {{cert_file: {directory}/own.pem, key_file: {directory}/own.key}}
    auth: {{authenticator: basicauth}}
service:
  extensions: [health_check, basicauth]
  pipelines: {{metrics: {{receivers: [uds], exporters: [prometheus]}}}}
"
    ))
}

#[test]
fn credentials_and_certificates_decide() {
    let directory = TempDir::new().expect("a temporary directory");
    let path = directory.path().display();
    certificates(directory.path());
    std::fs::write(directory.path().join("password"), "s3cr3t-word\n").expect("a file");
    std::fs::write(directory.path().join("token"), "dG9rZW4\n").expect("a file");
    let (port, sink) = (free_port(), OtlpSink::start());
    let guarded = guarded(port, directory.path());
    let trusting = format!("    tls_config: {{ca_file: {path}/ca.pem}}\n");
    let basic = "    basic_auth: {username: ada, password: s3cr3t-word}\n";
    let from_file = format!("    basic_auth: {{username: ada, password_file: {path}/password}}\n");
    let bearer = format!("    authorization: {{type: Basic2, credentials_file: {path}/token}}\n");
    let table = [
        ("known", "localhost", format!("{trusting}{basic}"), None),
        ("from a file", "localhost", format!("{trusting}{from_file}"), None),
        (
            "unchecked",
            "127.0.0.1",
            format!("    tls_config: {{insecure_skip_verify: true}}\n{basic}"),
            None,
        ),
        (
            "named",
            "127.0.0.1",
            format!("    tls_config: {{ca_file: {path}/ca.pem, server_name: localhost}}\n{basic}"),
            None,
        ),
        ("a stranger", "localhost", trusting.clone(), Some("status")),
        (
            "another word",
            "localhost",
            format!("{trusting}{bearer}"),
            Some("status"),
        ),
        ("untrusted", "localhost", basic.to_owned(), Some("connection")),
        (
            "another host",
            "127.0.0.1",
            format!("{trusting}{basic}"),
            Some("connection"),
        ),
        (
            "a missing file",
            "localhost",
            format!("{trusting}    bearer_token_file: {path}/missing\n"),
            Some("credentials"),
        ),
    ];
    let jobs: String = table
        .iter()
        .map(|(name, host, more, _)| {
            job(
                name,
                &format!("'{host}:{port}'"),
                &format!("    scheme: https\n{more}"),
            )
        })
        .collect();
    let gateway = into_sink(&jobs, &sink);
    for (name, _, _, reason) in &table {
        let expected = f64::from(u8::from(reason.is_none()));
        sink.wait_until(&format!("{name} is {expected}"), |sink| {
            let points = sink.points_of("up");
            let last = points
                .iter()
                .rfind(|point| point.attribute("service.name") == *name);
            last.is_some_and(|point| point.number() == expected)
        });
        let Some(reason) = reason else { continue };
        let labels = [&*format!("job=\"{name}\""), &*format!("reason=\"{reason}\"")];
        let counted = || gateway.own_metric("tidegate_scrape_failures_total", &labels) > 0.0;
        wait_until(SOON, &format!("{name}: {reason}"), counted);
    }
    let said = gateway.stop();
    assert!(!said.contains("s3cr3t") && !said.contains("dG9rZW4"), "{said}");
    guarded.stop();
}
