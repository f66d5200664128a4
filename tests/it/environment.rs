// SPDX-License-Identifier: Apache-2.0

//! `tidegate validate --env`: what a machine lacks for a configuration, found without a trace.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::kit::command::{self, finished, result};
use super::kit::gateway::tidegate;
use super::kit::{SOON, free_port, wait_until};

/// A configuration with a receiver, an exporter, and a page of own metrics on a free port.
fn config(receiver: &str, exporter: &str) -> String {
    let port = free_port();
    let [receiver_id, exporter_id] = [receiver, exporter].map(|text| text.split(':').next().unwrap());
    format!(
        "receivers:
  {receiver}
exporters:
  {exporter}
service:
  telemetry: {{metrics: {{address: \"127.0.0.1:{port}\"}}}}
  pipelines: {{metrics: {{receivers: [{receiver_id}], exporters: [{exporter_id}]}}}}
"
    )
}

/// The exit code, standard output and standard error of `validate` in a directory.
fn validate(directory: &Path, text: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    fs::write(directory.join("gateway.yaml"), text).unwrap();
    result(command::validate(directory, Path::new("gateway.yaml")).args(arguments))
}

/// The names of all files in a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn a_machine_that_has_everything_passes_and_nothing_is_left_behind() {
    let directory = TempDir::new().unwrap();
    let port = free_port();
    fs::create_dir(directory.path().join("rings")).unwrap();
    let text = "extensions:
  file_storage: {directory: store/a, create_directory: true, max_size: 64KiB, segment_size: 64KiB}
receivers:
  nixl: {directories: [rings]}
  uds: {stream: {path: events.sock}}
  nop:
exporters:
  prometheus: {endpoint: \"127.0.0.1:PAGE\"}
  otlp: {endpoint: \"localhost:4317\", tls: {insecure: true}, sending_queue: {storage: file_storage}}
  file: {path: out.json}
  file/unused: {path: missing/out.json}
service:
  extensions: [file_storage]
  telemetry: {metrics: {address: \"127.0.0.1:OWN\"}}
  pipelines:
    metrics: {receivers: [nixl, uds], exporters: [prometheus, otlp, file]}
    logs: {receivers: [nop], exporters: [otlp]}
"
    .replace("PAGE", &port.to_string())
    .replace("OWN", &free_port().to_string());
    let (code, summary, said) = validate(directory.path(), &text, &["--env"]);
    assert_eq!(code, Some(0), "{summary}{said}");
    // What no pipeline uses is not looked at.
    let warnings: Vec<_> = said.lines().filter(|line| line.contains("warning: ")).collect();
    assert_eq!(warnings.len(), 1, "{said}");
    assert!(warnings[0].contains("no pipeline uses it"), "{said}");
    assert!(summary.contains("gateway.yaml: valid: "), "{summary}");
    assert!(summary.contains("\nenvironment: "), "{summary}");
    assert!(summary.ends_with(" checks, 0 errors, 0 warnings\n"), "{summary}");
    assert_eq!(names(directory.path()), ["gateway.yaml", "rings"]);
    assert_eq!(names(&directory.path().join("rings")).len(), 0);
    TcpListener::bind(("127.0.0.1", port)).expect("the port is free again");
}

/// Standard error of a gateway that can't start.
fn fails_to_run(directory: &Path, text: &str) -> String {
    fs::write(directory.join("gateway.yaml"), text).unwrap();
    let mut command = tidegate();
    let run = ["run", "--config", "gateway.yaml"];
    let finished = finished(command.current_dir(directory).args(run));
    assert_eq!(finished.code, Some(1), "{}", finished.errors);
    finished.errors
}

#[test]
fn a_start_reports_all_ports_that_it_can_not_get_at_once() {
    let directory = TempDir::new().unwrap();
    let held: Vec<_> = (0..3)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let [page, grpc, http] = [0, 1, 2].map(|index: usize| held[index].local_addr().unwrap());
    let text = |grpc: &str, http: &str| {
        let receiver = format!(
            "otlp: {{protocols: {{grpc: {{endpoint: \"{grpc}\"}}, http: {{endpoint: \"{http}\"}}}}}}"
        );
        config(&receiver, &format!("prometheus: {{endpoint: \"{page}\"}}"))
    };
    let said = fails_to_run(directory.path(), &text(&grpc.to_string(), &http.to_string()));
    for path in [
        "exporters::prometheus::endpoint: can't listen on",
        "receivers::otlp::protocols::grpc::endpoint: can't listen on",
        "receivers::otlp::protocols::http::endpoint: can't listen on",
    ] {
        assert!(said.contains(path), "{path} not in {said}");
    }
    assert!(
        said.contains("tidegate: exporters::prometheus: can't listen on"),
        "{said}"
    );
    // One port is one message.
    let said = fails_to_run(directory.path(), &text("127.0.0.1:0", "127.0.0.1:0"));
    assert_eq!(said.matches("can't listen on").count(), 1, "{said}");
}

#[test]
fn a_port_of_another_process_is_an_error_with_its_holder() {
    let directory = TempDir::new().unwrap();
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap();
    let text = config("nop:", &format!("prometheus: {{endpoint: \"{address}\"}}"));
    let (code, summary, said) = validate(directory.path(), &text, &[]);
    assert_eq!(code, Some(0), "{summary}{said}");
    let (code, summary, said) = validate(directory.path(), &text, &["--env"]);
    assert_eq!(code, Some(1), "{summary}");
    assert!(
        said.contains("gateway.yaml:4:26: error: exporters::prometheus::endpoint: "),
        "{said}"
    );
    assert!(
        said.contains(&format!("(pid {}) listens there", std::process::id())),
        "{said}"
    );
    assert!(summary.ends_with(" checks, 1 error, 0 warnings\n"), "{summary}");
}

#[test]
fn an_expired_certificate_is_an_error_and_an_open_key_a_warning() {
    let directory = TempDir::new().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2000, 1, 1);
    params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    let certificate = params.self_signed(&key).unwrap();
    fs::write(directory.path().join("cert.pem"), certificate.pem()).unwrap();
    fs::write(directory.path().join("key.pem"), key.serialize_pem()).unwrap();
    let mode = fs::Permissions::from_mode(0o644);
    fs::set_permissions(directory.path().join("key.pem"), mode).unwrap();
    let receiver = format!(
        "otlp: {{protocols: {{grpc: {{endpoint: \"127.0.0.1:{}\", tls: {{cert_file: cert.pem, key_file: key.pem}}}}}}}}",
        free_port()
    );
    let text = config(&receiver, "nop:");
    let (code, summary, said) = validate(directory.path(), &text, &["--env", "--output", "json"]);
    assert_eq!((code, said.as_str()), (Some(1), ""), "{summary}");
    let json: Value = serde_json::from_str(&summary).unwrap();
    let problem = &json["problems"][0];
    assert_eq!(
        problem["path"],
        "receivers::otlp::protocols::grpc::tls::cert_file"
    );
    assert_eq!(problem["line"], 2);
    let message = problem["message"].as_str().unwrap();
    assert!(message.contains("expired at 2001-01-01T00:00:00Z"), "{message}");
    let warnings = json["warnings"].to_string();
    assert!(
        warnings.contains("all users of this machine can read"),
        "{warnings}"
    );
    assert_eq!(json["environment"]["errors"], 1);
}

#[test]
fn directories_that_can_not_be_read_are_errors() {
    let directory = TempDir::new().unwrap();
    // Root may read every directory, but not below a file.
    fs::write(directory.path().join("file"), "").unwrap();
    let closed = directory.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o0)).unwrap();
    let mut paths = vec!["file/rings"];
    if !rustix::process::geteuid().is_root() {
        paths.push("closed");
    }
    for path in paths {
        let text = config(&format!("nixl: {{directories: [{path}]}}"), "nop:");
        let (code, summary, said) = validate(directory.path(), &text, &["--env", "--output", "github"]);
        assert_eq!((code, said.as_str()), (Some(1), ""), "{summary}");
        let begin = "::error file=gateway.yaml,line=2,col=24::receivers::nixl::directories[0]: ";
        assert!(summary.starts_with(begin), "{summary}");
        assert!(summary.contains("\n::notice::environment: "), "{summary}");
    }
}

#[test]
fn a_name_that_can_not_be_resolved_is_an_error_without_its_login() {
    let directory = TempDir::new().unwrap();
    let exporter = "otlphttp: {endpoint: \"https://ada:hunter2@nowhere.invalid/\"}";
    let (code, summary, said) = validate(directory.path(), &config("nop:", exporter), &["--env"]);
    assert_eq!(code, Some(1), "{summary}");
    assert!(
        said.contains("exporters::otlphttp::endpoint: can't resolve"),
        "{said}"
    );
    assert!(
        !said.contains("hunter2") && !summary.contains("hunter2"),
        "{said}"
    );
}

#[test]
fn connections_are_made_only_with_connect() {
    let directory = TempDir::new().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let exporter = format!("otlp: {{endpoint: \"{address}\", tls: {{insecure: true}}}}");
    let text = config("nop:", &exporter);
    let (code, summary, said) = validate(directory.path(), &text, &["--env"]);
    assert_eq!((code, said.as_str()), (Some(0), ""), "{summary}");
    assert!(listener.accept().is_err(), "nobody has connected");
    let (code, summary, said) = validate(directory.path(), &text, &["--env", "--connect"]);
    assert_eq!((code, said.as_str()), (Some(0), ""), "{summary}");
    listener.accept().expect("a connection");
    drop(listener);
    // A child that another test starts has a copy of the listener until it executes its program.
    wait_until(SOON, "nobody listens", || TcpStream::connect(address).is_err());
    let (code, _, said) = validate(directory.path(), &text, &["--env", "--connect"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("exporters::otlp::endpoint: can't connect to"),
        "{said}"
    );
}

#[test]
fn the_machine_is_not_checked_for_a_wrong_configuration() {
    let directory = TempDir::new().unwrap();
    let (code, summary, said) = validate(directory.path(), "receivers: {nosuch: }", &["--env"]);
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(
        summary,
        "environment: not checked, correct the configuration first\n"
    );
}

#[test]
fn all_listeners_with_the_same_address_are_listed_at_once() {
    let directory = TempDir::new().unwrap();
    let text = |receivers: &str, metrics: &str| {
        format!(
            "extensions: {{health_check: {{endpoint: \"127.0.0.1:13133\"}}}}
receivers: {receivers}
exporters: {{nop: , prometheus: {{endpoint: \"0.0.0.0:13133\"}}}}
service:
  extensions: [health_check]
  telemetry: {{metrics: {{address: \"{metrics}\"}}}}
  pipelines: {{metrics: {{receivers: [otlp, uds, otlp/socket], exporters: [nop, prometheus]}}}}
"
        )
    };
    let clashing = text(
        "{otlp: {protocols: {grpc: {endpoint: \"127.0.0.1:4317\"}, http: {endpoint: \"127.0.0.2:4317\"}}},
  uds: {stream: {path: /run/a.sock}}, otlp/socket: {protocols: {grpc: {endpoint: \"unix:/run/a.sock\"}}}}",
        "127.0.0.1:4317",
    );
    let (code, summary, said) = validate(directory.path(), &clashing, &[]);
    assert_eq!((code, summary.as_str()), (Some(1), ""), "{said}");
    let problems = said.lines().filter_map(|line| line.split_once(": error: "));
    let clashes = problems.filter_map(|(_, problem)| problem.split_once(" listens there too"));
    let mut clashes: Vec<_> = clashes.map(|(paths, _)| paths).collect();
    clashes.sort_unstable();
    assert_eq!(
        clashes,
        [
            "extensions::health_check::endpoint: exporters::prometheus::endpoint",
            "receivers::otlp/socket::protocols::grpc::endpoint: receivers::uds::stream::path",
            "service::telemetry::metrics::address: receivers::otlp::protocols::grpc::endpoint",
        ],
        "{said}"
    );

    // The same without clashes: any port twice, and one port of two addresses.
    let valid = text(
        "{otlp: {protocols: {grpc: {endpoint: \"127.0.0.1:0\"}, http: {endpoint: \"127.0.0.1:0\"}}},
  uds: {stream: {path: /run/a.sock}}, otlp/socket: {protocols: {grpc: {endpoint: \"127.0.0.2:4317\"}}}}",
        "127.0.0.1:4317",
    );
    let (code, _, said) = validate(
        directory.path(),
        &valid.replace("0.0.0.0:13133", "127.0.0.2:13133"),
        &[],
    );
    assert_eq!((code, said.as_str()), (Some(0), ""));
}
