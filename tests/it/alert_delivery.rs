// SPDX-License-Identifier: Apache-2.0

//! The requests of the `rules` extension to an Alertmanager.

use super::kit::{Gateway, HttpPeer, SOON, wait_for};
use std::fs;
use tempfile::TempDir;

const RULES: &str = "groups: [{name: g, rules: [{alert: Always, expr: vector(1)}]}]\n";

#[test]
fn an_alertmanager_gets_the_credentials_and_headers_of_its_options() {
    let (peer, directory) = (HttpPeer::start(), TempDir::new().expect("a temporary directory"));
    let file = directory.path().join("always.yaml");
    fs::write(&file, RULES).expect("a file of the test");
    let gateway = Gateway::start(&format!(
        "extensions:
  basicauth/am: {{client_auth: {{username: ann, password: s3cret}}}}
  rules:
    files: [\"{}\"]
    interval: 100ms
    alertmanagers:
      - endpoint: \"http://127.0.0.1:{}\"
        path_prefix: /team
        auth: {{authenticator: basicauth/am}}
        headers: {{x-scope-orgid: team-a}}
receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:0\"}}}}}}}}
exporters: {{prometheus: {{endpoint: \"127.0.0.1:0\"}}}}
service:
  extensions: [health_check, basicauth/am, rules]
  pipelines: {{metrics: {{receivers: [otlp], exporters: [prometheus]}}}}
",
        file.display(),
        peer.port()
    ));
    let request = wait_for(SOON, "a request", || peer.seen().into_iter().next());
    assert_eq!(request.line, "POST /team/api/v2/alerts HTTP/1.1");
    // Base64 of `ann:s3cret`; the peer keeps headers in lower case.
    for header in [
        "authorization: basic yw5uonmzy3jlda==\r\n",
        "x-scope-orgid: team-a\r\n",
    ] {
        assert!(request.headers.contains(header), "{}", request.headers);
    }
    let said = gateway.stop();
    assert!(!said.contains("s3cret"), "{said}");
}
