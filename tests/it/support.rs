// SPDX-License-Identifier: Apache-2.0

//! `tidegate support-bundle`: it has the facts, and no secret.

use std::path::Path;
use std::process::Output;

use rustix::process::Signal;
use tempfile::TempDir;

use super::kit::gateway::tidegate;
use super::kit::{Gateway, HttpPeer, SOON, free_port, http, wait_until};

/// The secrets of the configuration: one in the file, one in a variable.
const SECRETS: [&str; 2] = ["hunter1", "hunter2"];

fn config(admin: u16, input: u16) -> String {
    format!(
        "extensions: {{admin: {{endpoint: \"127.0.0.1:{admin}\"}}}}
receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}}}
exporters:
  otlphttp: {{endpoint: \"http://127.0.0.1:1\", headers: {{api-key: hunter1, other: \"${{env:SUPPORT_KEY}}\"}}}}
service:
  extensions: [health_check, admin]
  pipelines: {{logs: {{receivers: [otlp], exporters: [otlphttp]}}}}
"
    )
}

fn bundle(admin: u16, metrics: u16, directory: &Path, config: &Path) -> Output {
    let (admin, metrics) = (format!("127.0.0.1:{admin}"), format!("127.0.0.1:{metrics}"));
    tidegate()
        .args([
            "support-bundle",
            "--endpoint",
            &admin,
            "--metrics",
            &metrics,
            "--output",
        ])
        .arg(directory)
        .arg("--config")
        .arg(config)
        .env("SUPPORT_KEY", SECRETS[1])
        .output()
        .expect("it starts")
}

#[test]
fn a_support_bundle_has_the_facts_and_no_secret() {
    let (admin, directory) = (free_port(), TempDir::new().expect("a temporary directory"));
    let yaml = config(admin, free_port());
    // Without the health check of the tests: nothing starts here.
    let file = directory.path().join("gateway.yaml");
    std::fs::write(&file, yaml.replace("[health_check, admin]", "[admin]")).expect("a writable directory");
    let gateway = Gateway::start_with(&yaml, |command| {
        command.env("SUPPORT_KEY", SECRETS[1]);
    });
    gateway.signal(Signal::HUP);
    wait_until(SOON, "the reload is noted", || {
        let page = http::get(admin, "/api/v1/status/config").expect("an answer");
        page.json()["data"]["reloads"][0]["cause"] == "SIGHUP"
    });
    let metrics = gateway.telemetry_port();
    let whole = directory.path().join("whole");
    let output = bundle(admin, metrics, &whole, &file);
    assert!(output.status.success(), "{output:?}");
    for (name, part) in [
        ("config.yaml", "otlphttp"),
        ("running-config.yaml", "[REDACTED]"),
        ("reloads.json", "SIGHUP"),
        ("graph.json", "otlphttp"),
        ("problems.txt", "no problems"),
        ("running-build.json", "version"),
        ("runtime.json", "startTime"),
        ("notices.json", "success"),
        ("cluster.json", "success"),
        ("flags.json", "success"),
        ("own-metrics.txt", "otelcol_process_uptime"),
        ("version.txt", "commit: "),
        ("environment.txt", "processors: "),
    ] {
        let text = std::fs::read_to_string(whole.join(name)).expect(name);
        assert!(text.contains(part), "{name}: {text}");
        assert!(
            !SECRETS.iter().any(|secret| text.contains(secret)),
            "{name}: {text}"
        );
    }
    // It overwrites nothing.
    assert_eq!(bundle(admin, metrics, &whole, &file).status.code(), Some(1));
    gateway.stop();
    let rest = directory.path().join("rest");
    let output = bundle(admin, metrics, &rest, &file);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let missing = std::fs::read_to_string(rest.join("missing.txt")).expect("it lists what is missing");
    assert!(
        missing.contains("reloads.json: ")
            && missing.contains("graph.json: ")
            && missing.contains("notices.json: ")
            && missing.contains("own-metrics.txt: "),
        "{missing}"
    );
    assert!(rest.join("config.yaml").is_file());
}

#[test]
fn each_page_is_asked_for_once() {
    let (peer, directory) = (HttpPeer::start(), TempDir::new().expect("a temporary directory"));
    let file = directory.path().join("gateway.yaml");
    std::fs::write(&file, config(free_port(), free_port())).expect("a writable directory");
    let output = bundle(peer.port(), free_port(), &directory.path().join("bundle"), &file);
    assert_eq!(output.status.code(), Some(1), "no answer has a page: {output:?}");
    let requests = peer.seen();
    let mut lines: Vec<_> = requests.iter().map(|request| request.line.as_str()).collect();
    let all = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), all, "{requests:?}");
    assert!(
        lines.iter().any(|line| line.contains("/api/v1/status/config")),
        "{lines:?}"
    );
}

#[test]
fn the_configuration_says_where_own_metrics_are() {
    let (admin, directory) = (free_port(), TempDir::new().expect("a temporary directory"));
    let yaml = config(admin, free_port());
    let gateway = Gateway::start_with(&yaml, |command| {
        command.env("SUPPORT_KEY", SECRETS[1]);
    });
    let file = directory.path().join("gateway.yaml");
    let own = gateway.telemetry_port();
    let telemetry = format!("  telemetry: {{metrics: {{address: \"127.0.0.1:{own}\"}}}}\n");
    let yaml = yaml.replace("[health_check, admin]", "[admin]") + &telemetry;
    std::fs::write(&file, yaml).expect("a writable directory");
    let whole = directory.path().join("whole");
    let output = tidegate()
        .args(["support-bundle", "--endpoint", &format!("127.0.0.1:{admin}")])
        .arg("--output")
        .arg(&whole)
        .arg("--config")
        .arg(&file)
        .env("SUPPORT_KEY", SECRETS[1])
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let metrics = std::fs::read_to_string(whole.join("own-metrics.txt")).expect("own metrics");
    assert!(metrics.contains("otelcol_process_uptime"), "{metrics}");
    gateway.stop();
}
