// SPDX-License-Identifier: Apache-2.0

//! The running configuration, as every permitted client may read it.

use super::super::kit::{Gateway, QueryApi, free_port};

#[test]
fn the_running_configuration_is_shown_without_its_secrets() {
    let admin = free_port();
    let config = format!(
        "extensions:
  admin: {{endpoint: \"127.0.0.1:{admin}\"}}
  basicauth: {{client_auth: {{username: shop, password: hunter2}}}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:0\"}}}}}}
exporters:
  otlphttp: {{endpoint: \"http://127.0.0.1:9\", auth: {{authenticator: basicauth}}, headers: {{x-scope: hunter2}}}}
  otlphttp/credentials: {{endpoint: \"http://user:hunter2@127.0.0.1:9\"}}
  file: {{path: \"${{env:OUT}}.jsonl\"}}
  file/token: {{path: shown.jsonl}}
service:
  extensions: [health_check, admin, basicauth]
  pipelines: {{metrics: {{receivers: [otlp], exporters: [otlphttp, file]}}}}
"
    );
    let gateway = Gateway::start_with(&config, |command| {
        command
            .env("OUT", "hunter2")
            .args(["--set", "service.drain_timeout=3s"]);
    });
    let shown = QueryApi::at(admin).get("/api/v1/status/config", &[]);
    let yaml = shown["yaml"].as_str().expect("a text");
    assert!(!yaml.contains("hunter2"), "{yaml}");
    for line in [
        format!("    endpoint: \"127.0.0.1:{admin}\""),
        "      username: shop".to_owned(),
        "      password: \"[REDACTED]\"".to_owned(),
        "      x-scope: \"[REDACTED]\"".to_owned(),
        "    path: \"[REDACTED]\"".to_owned(),
        "    path: shown.jsonl".to_owned(),
        "  drain_timeout: \"3s\"".to_owned(),
        // Merged from the file of the kit.
        "  health_check:".to_owned(),
    ] {
        assert!(
            yaml.lines().any(|shown| shown == line),
            "{line} is not in\n{yaml}"
        );
    }
    gateway.stop();
}
