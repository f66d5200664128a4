// SPDX-License-Identifier: Apache-2.0

//! `tidegate top` shows what the peers of a gateway sent and got.

use std::process::Command;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use prost::Message;
use tidegate_requests::{gauge, int, request};

use super::kit::gateway::tidegate;
use super::kit::{Gateway, Ledgers, OtlpSink, SOON, free_port, http, wait_until};

/// A request with a point of each of three metrics.
fn three_points() -> Vec<u8> {
    let metrics = ["a", "b", "c"].map(|name| gauge(name.to_owned(), [int(1)]));
    let body: ExportMetricsServiceRequest = request(Vec::new(), "", metrics);
    body.encode_to_vec()
}

#[test]
fn top_names_the_exporter_whose_full_queue_refuses() {
    let (receiver, admin, closed) = (free_port(), free_port(), free_port());
    let gateway = Gateway::start(&format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{receiver}\"}}}}}}}}
exporters: {{otlp: {{endpoint: \"127.0.0.1:{closed}\", tls: {{insecure: true}}, sending_queue: {{queue_size: 1}}}}}}
extensions: {{admin: {{endpoint: \"127.0.0.1:{admin}\"}}}}
service:
  extensions: [health_check, admin]
  pipelines: {{metrics: {{receivers: [otlp], exporters: [otlp]}}}}
"
    ));
    let send = || {
        let sent = http::post(receiver, "/v1/metrics", "application/x-protobuf", &three_points());
        sent.expect("an answer").status
    };
    assert_eq!((send(), send()), (200, 503));
    let endpoint = format!("127.0.0.1:{admin}");
    let mut text = String::new();
    wait_until(SOON, "the queue has a line", || {
        let arguments = ["top", "--once", "--interval", "100ms", "--endpoint", &*endpoint];
        let output = tidegate().args(arguments).output().expect("it runs");
        text = String::from_utf8(output.stdout).expect("text");
        text.contains("\n    3 refused\n    of the refused, 3: the queue of exporter otlp is full\n")
    });
    // Nothing takes the items that a stop would try to send.
    gateway.kill();
}

#[test]
fn top_once_shows_the_totals_that_a_peer_sent() {
    let (receiver, admin, sink) = (free_port(), free_port(), OtlpSink::start());
    let gateway = Gateway::start(&format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{receiver}\"}}}}}}}}
exporters: {{otlp: {{endpoint: \"127.0.0.1:{}\", tls: {{insecure: true}}}}}}
extensions: {{admin: {{endpoint: \"127.0.0.1:{admin}\"}}}}
service:
  extensions: [health_check, admin]
  pipelines: {{metrics: {{receivers: [otlp], exporters: [otlp]}}}}
",
        sink.port()
    ));
    let sent = http::post(receiver, "/v1/metrics", "application/x-protobuf", &three_points());
    assert_eq!(sent.expect("an answer").status, 200);
    let endpoint = format!("127.0.0.1:{admin}");
    let mut text = String::new();
    wait_until(SOON, "the totals of both components", || {
        let arguments = ["top", "--once", "--interval", "100ms", "--endpoint", &*endpoint];
        let output = tidegate().args(arguments).output().expect("it runs");
        text = String::from_utf8(output.stdout).expect("text");
        let total = |name: &str| {
            let line = text.lines().find(|line| line.trim_start().starts_with(name))?;
            line.split_whitespace().nth(4).map(str::to_owned)
        };
        let totals = ["receiver otlp", "exporter otlp"].map(total);
        totals == [Some("3".to_owned()), Some("3".to_owned())] && has_latencies(&text)
    });
    let arguments = [
        "top",
        "--once",
        "--edges",
        "--interval",
        "100ms",
        "--endpoint",
        &*endpoint,
    ];
    let edges = tidegate().args(arguments).output().expect("it runs");
    let edges = String::from_utf8(edges.stdout).expect("text");
    let edge = edges.lines().find(|line| line.contains(" -> otlp"));
    let cells: Vec<_> = edge.expect("the edge").split_whitespace().collect();
    assert_eq!(cells[..3], ["otlp", "->", "otlp"], "{edges}");
    assert_eq!(cells.get(4), Some(&"3"), "{edges}");
    assert!(!text.contains('\x1b'), "{text}");
    assert!(text.contains("ready") && text.contains("\nmetrics\n"), "{text}");
    let cpu = text.lines().find_map(|line| line.strip_prefix("cpu "));
    let (percent, _) = cpu
        .and_then(|rest| rest.split_once('%'))
        .expect("the use of processors");
    assert!(percent.parse::<u32>().is_ok(), "{text}");
    // The peer, the API and the metrics have the numbers that the command shows.
    assert_eq!(sink.points().len(), 3);
    let ledgers = Ledgers::at_rest(&gateway, admin);
    assert_eq!(ledgers.of("receivers::otlp", "metrics"), [("accepted", 3)]);
    assert_eq!(ledgers.of("exporters::otlp", "metrics"), [("in", 3), ("out", 3)]);
    gateway.stop();
}

/// The picture is drawn by hand, with `docs/screens.py`.
#[test]
fn the_picture_of_the_documents_has_the_column_heads_of_top() {
    let admin = free_port();
    let gateway = Gateway::start(&format!(
        "receivers: {{nop: }}
exporters: {{nop: }}
extensions: {{admin: {{endpoint: \"127.0.0.1:{admin}\"}}}}
service:
  extensions: [health_check, admin]
  pipelines: {{metrics: {{receivers: [nop], exporters: [nop]}}}}
"
    ));
    let endpoint = format!("127.0.0.1:{admin}");
    let arguments = ["top", "--once", "--interval", "100ms", "--endpoint", &*endpoint];
    let output = tidegate().args(arguments).output().expect("it runs");
    gateway.stop();
    let text = String::from_utf8(output.stdout).expect("text");
    let heads = text.lines().find(|line| line.starts_with("COMPONENT"));
    let heads: Vec<&str> = heads.expect("the heads").split_whitespace().collect();
    let picture = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/screen-top.svg");
    let picture = std::fs::read_to_string(picture).expect("a picture");
    // Only the heads are on a dark line.
    let dark = picture.lines().filter_map(|line| {
        let rest = line.strip_prefix("<text class=\"p\" ")?;
        let (_, words) = rest.strip_suffix("</text>")?.split_once('>')?;
        Some(words)
    });
    let drawn: Vec<&str> = dark.flat_map(str::split_whitespace).collect();
    assert_eq!(drawn, heads, "take docs/screen-top.svg again");
}

/// Whether the exporter has latencies: the last two columns.
fn has_latencies(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_start);
    let sent = lines.find(|line| line.starts_with("exporter otlp"));
    sent.is_some_and(|line| {
        let latencies: Vec<&str> = line.split_whitespace().skip(8).collect();
        latencies.len() == 2 && latencies.iter().all(|cell| cell.ends_with('s'))
    })
}

/// Runs the command of its arguments in a pseudo-terminal, narrows it, quits, runs the command with `--once`, and prints
/// `restored`.
const TERMINAL: &str = r#"
import fcntl, os, pty, select, signal, struct, subprocess, sys, termios, time
master, slave = pty.openpty()
def resize(columns):
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
resize(80)
before = termios.tcgetattr(slave)
top = subprocess.Popen(sys.argv[1:], stdin=slave, stdout=slave, stderr=slave)
seen = b""
def read_until(part, deadline=time.monotonic() + 60):
    global seen
    while part not in seen:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([master], [], [], left)[0]:
            top.kill()
            sys.exit(f"no {part!r} in {seen!r}")
        seen += os.read(master, 65536)
read_until(b"receiver otlp")
# A name that is alone on its line ends with a carriage return.
if termios.tcgetattr(slave) == before or b"P50    P99" not in seen or b"receiver otlp\r" in seen:
    sys.exit(f"not a live view of 80 columns: {seen!r}")
resize(60)
os.kill(top.pid, signal.SIGWINCH)
read_until(b"receiver otlp\r")
os.write(master, b"e")
read_until(b" -> nop")
seen = b""
os.write(master, b"e")
read_until(b"receiver otlp")
os.write(master, b"q")
read_until(b"\x1b[?1049l")
if top.wait(60) != 0 or termios.tcgetattr(slave) != before:
    sys.exit("the terminal is not as before")
seen = b""
top = subprocess.Popen([*sys.argv[1:], "--once"], stdin=slave, stdout=slave, stderr=slave)
read_until(b"receiver otlp\r", time.monotonic() + 60)
if top.wait(60) != 0:
    sys.exit("`--once` fails")
print("restored")
"#;

#[test]
fn top_follows_the_width_of_its_terminal_and_restores_it() {
    let (receiver, admin) = (free_port(), free_port());
    let gateway = Gateway::start(&format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{receiver}\"}}}}}}}}
exporters: {{nop: }}
extensions: {{admin: {{endpoint: \"127.0.0.1:{admin}\"}}}}
service:
  extensions: [health_check, admin]
  pipelines: {{metrics: {{receivers: [otlp], exporters: [nop]}}}}
"
    ));
    let output = Command::new("python3")
        .args(["-c", TERMINAL, env!("CARGO_BIN_EXE_tidegate")])
        .args(["top", "--interval", "100ms", "--endpoint"])
        .arg(format!("127.0.0.1:{admin}"))
        .output()
        .expect("Python runs");
    let problem = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "restored\n", "{problem}");
    gateway.stop();
}
