// SPDX-License-Identifier: Apache-2.0

//! `tidegate support-bundle`: it has the facts, and no secret.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::kit::gateway::tidegate;
use super::kit::{Gateway, HttpPeer, Ledgers, QueryApi, SOON, free_port, http, wait_until};

/// The secrets of the configuration: a header in the file and one in a variable, the password of an address as it is and as it
/// travels, and a token.
const SECRETS: [&str; 5] = ["hunter1", "hunter2", "hunter3", "YWRhOmh1bnRlcjM", "hunter4"];

/// The exporters of the configuration. Nothing listens at their addresses.
const EXPORTERS: [&str; 3] = ["otlphttp", "otlphttp/bearer", "otlphttp/user"];

/// A log record, as JSON.
const LOG: &[u8] = br#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"x"}}]}]}]}"#;

/// The files of a bundle without the gateway's answers.
const OWN_FILES: [&str; 4] = ["config.yaml", "environment.txt", "problems.txt", "version.txt"];

/// The files with answers of `admin`: the file, the page, and the part of its data that the file has.
const ANSWERS: [(&str, &str, &str); 8] = [
    ("running-config.yaml", "/api/v1/status/config", "/yaml"),
    ("reloads.json", "/api/v1/status/config", "/reloads"),
    ("graph.json", "/api/v1/status/graph", ""),
    ("running-build.json", "/api/v1/status/buildinfo", ""),
    ("runtime.json", "/api/v1/status/runtimeinfo", ""),
    ("flags.json", "/api/v1/status/flags", ""),
    ("notices.json", "/api/v1/status/notices", ""),
    ("cluster.json", "/api/v1/status/cluster", ""),
];

/// Keys of answers that change from request to request. The ledgers of the components are compared by themselves.
const CHANGING: [&str; 6] = ["serverTime", "time", "process", "memory", "health", "components"];

fn config(admin: u16, input: u16) -> String {
    let retry = "retry_on_failure: {initial_interval: 100ms, max_interval: 1s}";
    format!(
        "extensions:
  admin: {{endpoint: \"127.0.0.1:{admin}\"}}
  bearertokenauth: {{token: hunter4}}
receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}}}
exporters:
  otlphttp: {{endpoint: \"http://127.0.0.1:1\", {retry}, headers: {{api-key: hunter1, other: \"${{env:SUPPORT_KEY}}\"}}}}
  otlphttp/bearer: {{endpoint: \"http://127.0.0.1:1\", {retry}, auth: {{authenticator: bearertokenauth}}}}
  otlphttp/user: {{endpoint: \"http://ada:hunter3@127.0.0.1:1\", {retry}}}
service:
  drain_timeout: 1s
  extensions: [health_check, admin, bearertokenauth]
  pipelines: {{logs: {{receivers: [otlp], exporters: [otlphttp, otlphttp/bearer, otlphttp/user]}}}}
"
    )
}

/// The configuration for a file. It has no health check, which the tests add to a gateway.
fn file_of(yaml: &str, directory: &Path) -> PathBuf {
    let file = directory.join("gateway.yaml");
    std::fs::write(&file, yaml.replace("health_check, ", "")).expect("a writable directory");
    file
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

/// All files of a bundle, with their text.
fn read_files(directory: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let read = paths.map(|path| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("a file of text");
        (name, text)
    });
    read.collect()
}

fn names(files: &BTreeMap<String, String>) -> BTreeSet<&str> {
    files.keys().map(String::as_str).collect()
}

/// The names of all files of a complete bundle.
fn all_names() -> BTreeSet<&'static str> {
    let answers = ANSWERS.iter().map(|(file, ..)| *file);
    let all = OWN_FILES.into_iter().chain(answers);
    all.chain(["own-metrics.txt"]).collect()
}

fn have_no_secret(output: &Output, files: &BTreeMap<String, String>) {
    let printed = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    for text in files.values().chain(&printed) {
        for secret in SECRETS {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
}

/// The same without the keys that change.
fn lasting(mut data: Value) -> Value {
    if let Some(data) = data.as_object_mut() {
        data.retain(|key, _| !CHANGING.contains(&key.as_str()));
    }
    data
}

#[test]
fn a_support_bundle_agrees_with_the_api_and_has_no_secret() {
    let (admin, input) = (free_port(), free_port());
    let directory = TempDir::new().expect("a temporary directory");
    let yaml = config(admin, input);
    let file = file_of(&yaml, directory.path());
    let gateway = Gateway::start_with(&yaml, |command| {
        command.env("SUPPORT_KEY", SECRETS[1]);
    });
    let api = QueryApi::at(admin);
    let graph = || api.get("/api/v1/status/graph", &[]);
    let sent = http::post(input, "/v1/logs", "application/json", LOG).expect("an answer");
    assert_eq!(sent.status, 200, "{}", sent.text());
    gateway.signal(Signal::HUP);
    wait_until(SOON, "the reload is noted", || {
        api.get("/api/v1/status/config", &[])["reloads"][0]["cause"] == "SIGHUP"
    });
    wait_until(SOON, "each exporter says that it fails", || {
        let troubles = graph()["health"]["troubles"].take();
        EXPORTERS
            .iter()
            .all(|id| troubles[format!("exporters::{id}")].is_string())
    });
    let whole = directory.path().join("whole");
    let output = bundle(admin, gateway.telemetry_port(), &whole, &file);
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(printed, format!("{}\n", whole.display()));
    let mode = std::fs::metadata(&whole)
        .expect("the directory")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700, "only the user may read it");
    let files = read_files(&whole);
    assert_eq!(names(&files), all_names());
    have_no_secret(&output, &files);

    let in_file = |name: &str| -> Value { serde_json::from_str(&files[name]).expect("JSON") };
    for (name, page, part) in ANSWERS {
        let answered = api.get(page, &[]).pointer(part).expect("the part").clone();
        let written = match part {
            "/yaml" => Value::from(files[name].clone()),
            "" => in_file(name)["data"].take(),
            _ => in_file(name),
        };
        assert!(!written.is_null(), "{name}");
        assert_eq!(lasting(written), lasting(answered), "{name}");
    }
    let written = in_file("graph.json")["data"].take();
    // The file with the graph, the file with the metrics, the API and the page of metrics show one state.
    let ledgers = Ledgers::agreed(&gateway, admin);
    assert_eq!(Ledgers::of_graph(&written), ledgers);
    assert_eq!(Ledgers::of_page(&files["own-metrics.txt"]), ledgers);
    assert_eq!(ledgers.of("receivers::otlp", "logs"), [("accepted", 1)]);
    for id in EXPORTERS {
        let counts = ledgers.of(&format!("exporters::{id}"), "logs");
        assert_eq!(counts, [("held", 1), ("in", 1)], "{id}");
        let trouble = written["health"]["troubles"][format!("exporters::{id}")].as_str();
        let trouble = trouble.expect("it fails");
        assert!(trouble.contains("127.0.0.1:1"), "{trouble}");
    }
    for (name, part) in [
        ("config.yaml", "      api-key: \"[REDACTED]\"\n"),
        ("running-config.yaml", "      api-key: \"[REDACTED]\"\n"),
        ("problems.txt", "no problems\n"),
        ("version.txt", "commit: "),
        ("environment.txt", "processors: "),
    ] {
        assert!(files[name].contains(part), "{name}: {}", files[name]);
    }
    // It overwrites nothing.
    let again = bundle(admin, gateway.telemetry_port(), &whole, &file);
    assert_eq!(again.status.code(), Some(1), "{again:?}");
    let problem = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(problem.contains("`--output` names a new one"), "{problem}");
    assert_eq!(read_files(&whole), files);
    gateway.stop();
}

#[test]
fn a_bundle_without_a_gateway_names_what_is_missing_and_no_secret() {
    let directory = TempDir::new().expect("a temporary directory");
    let yaml = config(free_port(), free_port());
    let wrong = yaml
        .replace("api-key: hunter1", "api-key: [hunter1]")
        .replace("http://ada", "ftp://ada")
        .replace("token: hunter4", "tokens: {hunter4}");
    for (name, yaml, has_problems) in [("valid", yaml, false), ("wrong", wrong, true)] {
        let file = file_of(&yaml, directory.path());
        let rest = directory.path().join(name);
        let output = bundle(free_port(), free_port(), &rest, &file);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let files = read_files(&rest);
        let missing: BTreeSet<_> = files["missing.txt"]
            .lines()
            .map(|line| line.split_once(": ").expect("a name and a reason").0)
            .collect();
        let written = names(&files);
        assert_eq!(written, OWN_FILES.into_iter().chain(["missing.txt"]).collect());
        assert_eq!(missing, all_names().difference(&written).copied().collect());
        assert_eq!(
            files["problems.txt"] != "no problems\n",
            has_problems,
            "{}",
            files["problems.txt"]
        );
        have_no_secret(&output, &files);
        let lines = files["missing.txt"].lines();
        let own = lines.filter(|line| line.starts_with("own-metrics.txt: "));
        let own: Vec<_> = own.collect();
        assert!(own.len() == 1 && own[0].contains("`--metrics`"), "{own:?}");
        assert!(!own[0].contains("admin"), "{own:?}");
    }
}

#[test]
fn each_page_is_asked_for_once() {
    let (peer, directory) = (HttpPeer::start(), TempDir::new().expect("a temporary directory"));
    let file = file_of(&config(free_port(), free_port()), directory.path());
    let rest = directory.path().join("bundle");
    let output = bundle(peer.port(), free_port(), &rest, &file);
    assert_eq!(output.status.code(), Some(1), "no answer has a page: {output:?}");
    let requests = peer.seen();
    let mut lines: Vec<_> = requests.iter().map(|request| request.line.as_str()).collect();
    lines.sort_unstable();
    let pages: BTreeSet<_> = ANSWERS
        .iter()
        .map(|(_, page, _)| format!("GET {page}? HTTP/1.1"))
        .collect();
    assert_eq!(lines, Vec::from_iter(pages));
    let missing = std::fs::read_to_string(rest.join("missing.txt")).expect("it lists what is missing");
    for (file, ..) in ANSWERS {
        assert!(missing.contains(&format!("{file}: ")), "{file}: {missing}");
    }
}

#[test]
fn the_configuration_says_where_own_metrics_are() {
    let (admin, directory) = (free_port(), TempDir::new().expect("a temporary directory"));
    let yaml = config(admin, free_port());
    let gateway = Gateway::start_with(&yaml, |command| {
        command.env("SUPPORT_KEY", SECRETS[1]);
    });
    let own = gateway.telemetry_port();
    let telemetry = format!("  telemetry: {{metrics: {{address: \"127.0.0.1:{own}\"}}}}\n");
    let file = file_of(&(yaml + &telemetry), directory.path());
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
    // Without a file, the configuration that runs says it.
    let without_file = directory.path().join("without-file");
    let output = tidegate()
        .args(["support-bundle", "--endpoint", &format!("127.0.0.1:{admin}")])
        .arg("--output")
        .arg(&without_file)
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let metrics = std::fs::read_to_string(without_file.join("own-metrics.txt")).expect("own metrics");
    assert!(metrics.contains("otelcol_process_uptime"), "{metrics}");
    gateway.stop();
}
