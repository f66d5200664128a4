// SPDX-License-Identifier: Apache-2.0

//! The pages that `pprof` and `zpages` serve of a gateway at work.

use super::kit::{Gateway, OtlpSink, SOON, free_port, http};
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// Log records, as JSON.
fn logs(body: &str) -> Vec<u8> {
    let record = format!(r#"{{"body":{{"stringValue":"{body}"}}}}"#);
    let records = vec![record; 200].join(",");
    format!(r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{records}]}}]}}]}}"#).into_bytes()
}

fn gateway(receiver: u16, debugging: u16, extension: &str, sink: &OtlpSink) -> Gateway {
    Gateway::start(&format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: '127.0.0.1:{receiver}'}}}}}}}}
processors: {{filter: {{logs: {{exclude: {{match_type: strict, bodies: [x]}}}}}}}}
exporters: {{otlp: {{endpoint: '{}', compression: none}}}}
extensions: {{{extension}: {{endpoint: 'localhost:{debugging}'}}}}
service:
  extensions: [health_check, {extension}]
  telemetry: {{traces: {{slow_batch: 0s}}}}
  pipelines: {{logs/a: {{receivers: [otlp], processors: [filter], exporters: [otlp]}}}}
",
        sink.endpoint()
    ))
}

fn push(receiver: u16, body: &str) {
    let answer = http::post(receiver, "/v1/logs", "application/json", &logs(body)).expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn a_profile_names_functions_of_the_gateway() {
    let (receiver, debugging, sink) = (free_port(), free_port(), OtlpSink::start());
    let gateway = gateway(receiver, debugging, "pprof", &sink);
    let is_over = AtomicBool::new(false);
    let answer = std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = Instant::now();
            while !is_over.load(Relaxed) && begun.elapsed() < SOON {
                push(receiver, "x");
            }
        });
        let answer = http::get(debugging, "/debug/pprof/profile?seconds=2");
        is_over.store(true, Relaxed);
        answer.expect("a profile")
    });
    assert_eq!(answer.status, 200, "{}", answer.text());
    let mut profile = Vec::new();
    flate2::read::GzDecoder::new(answer.body.as_slice())
        .read_to_end(&mut profile)
        .expect("gzip");
    let text = String::from_utf8_lossy(&profile);
    for part in ["samples", "cpu", "nanoseconds"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    // The profile is flat: it names the functions that ran, from any crate of the gateway.
    let crates = [
        "tidegate::",
        "tidegate_pipeline::",
        "tidegate_otlp::",
        "tidegate_engine::",
    ];
    assert!(
        crates.iter().any(|name| text.contains(name)),
        "no function of the gateway in {text}"
    );
    let missing = http::get(debugging, "/debug/pprof/heap").expect("an answer");
    assert_eq!(missing.status, 404);
    gateway.stop();
}

#[test]
fn tables_show_what_runs_and_what_passed() {
    let (receiver, debugging, sink) = (free_port(), free_port(), OtlpSink::start());
    let mut gateway = gateway(receiver, debugging, "zpages", &sink);
    push(receiver, "x");
    push(receiver, "kept &lt;b&gt;");
    sink.wait_until("what is kept arrives", |sink| !sink.logs().is_empty());
    let page = |path: &str| http::get(debugging, path).expect("a page").text();
    let row = |page: &str, cells: &[&str]| {
        let cells: Vec<_> = cells.iter().map(|cell| format!("<td>{cell}</td>")).collect();
        page.contains(&format!("<tr>{}</tr>", cells.concat()))
    };
    gateway.wait_until("the ledgers agree", || {
        row(
            &page("/debug/pipelinez"),
            &["exporters::otlp", "logs", "200", "200", "0", "0", ""],
        )
    });
    let pipelines = page("/debug/pipelinez");
    assert!(
        row(&pipelines, &["logs/a", "otlp", "filter", "otlp"]),
        "{pipelines}"
    );
    assert!(row(&pipelines, &["otlp", "logs", "400", "0", "0"]), "{pipelines}");
    let filter = [
        "processors::filter@logs/a",
        "logs",
        "400",
        "200",
        "0",
        "0",
        "filtered 200",
    ];
    assert!(row(&pipelines, &filter), "{pipelines}");
    let service = page("/debug/servicez");
    assert!(row(&service, &["phase", "ready"]), "{service}");
    assert!(row(&page("/debug/extensionz"), &["zpages"]));
    assert!(page("/debug/featurez").contains("no feature gates"));
    assert!(page("/debug/tracez").contains("took 1s or longer"));
    assert!(page("/").contains("/debug/servicez"));
    assert_eq!(
        http::get(debugging, "/debug/none").expect("an answer").status,
        404
    );
    gateway.stop();
}
