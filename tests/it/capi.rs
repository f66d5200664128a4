// SPDX-License-Identifier: Apache-2.0

//! Programs in C, through the whole gateway: cells, OTLP and spans.

#[path = "../../crates/tidegate-capi/tests/kit/mod.rs"]
mod programs;

use tempfile::TempDir;

use super::kit::{Gateway, OtlpSink, SOON, free_port, http, wait_for};
use programs::{command, compile, run};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

#[test]
fn what_c_programs_record_arrives() {
    let (directory, sink) = (TempDir::new().expect("a directory"), OtlpSink::start());
    let cells = directory.path().join("cells");
    std::fs::create_dir(&cells).expect("a directory");
    let (grpc, push, scrape) = (free_port(), free_port(), free_port());
    let gateway = Gateway::start(&format!(
        "receivers:
  shm: {{directories: ['{}'], scan_interval: 20ms}}
  otlp: {{protocols: {{grpc: {{endpoint: '127.0.0.1:{grpc}'}}, http: {{endpoint: '127.0.0.1:{push}'}}}}}}
exporters:
  prometheus: {{endpoint: '127.0.0.1:{scrape}'}}
  otlp: {{endpoint: '{}', tls: {{insecure: true}}}}
service:
  pipelines:
    metrics: {{receivers: [shm, otlp], exporters: [prometheus]}}
    traces: {{receivers: [otlp], exporters: [otlp]}}
",
        cells.display(),
        sink.endpoint(),
    ));
    let shows = |job: &str| {
        // A process that pushes has a random name; cells have none.
        let begin = "jobs_total{instance=\"";
        let label = format!("\",job=\"{job}\",");
        let is_named = job == "pushed";
        wait_for(SOON, job, || {
            let page = http::get(scrape, "/metrics").ok()?.text();
            let is_it = |line: &str| {
                let instance = line.strip_prefix(begin).and_then(|rest| rest.split_once(&label));
                let is_as_wanted =
                    |(instance, _): (&str, &str)| instance.len() == if is_named { 36 } else { 0 };
                instance.is_some_and(is_as_wanted) && line.ends_with("queue=\"a\"} 2")
            };
            page.lines().any(is_it).then_some(())
        });
    };

    let switch = compile("examples/switch.c", directory.path());
    run(command(&switch).arg("shm").arg(&cells));
    shows("switch");
    run(command(&switch)
        .args(["otel", &format!("http://127.0.0.1:{push}")])
        .env("OTEL_SERVICE_NAME", "pushed"));
    shows("pushed");

    let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
    let trace = compile("examples/trace.c", directory.path());
    let out = run(command(&trace).args([&format!("http://127.0.0.1:{grpc}"), &parent]));
    assert!(
        out.starts_with(&format!("00-{TRACE}-")) && !out.contains("b7ad6b7169203331"),
        "{out}"
    );
    let spans = wait_for(SOON, "both spans", || {
        let requests = sink.traces();
        let resources = requests.into_iter().flat_map(|request| request.resource_spans);
        let spans = resources
            .flat_map(|resource| resource.scope_spans)
            .flat_map(|scope| scope.spans);
        let spans: Vec<_> = spans.collect();
        (spans.len() == 2).then_some(spans)
    });
    let named = |name: &str| {
        spans
            .iter()
            .find(|span| span.name == name)
            .expect("it was exported")
    };
    let (request, work) = (named("request"), named("decode"));
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(
        (hex(&request.trace_id), hex(&request.parent_span_id)),
        (TRACE.into(), "b7ad6b7169203331".into())
    );
    assert_eq!(work.parent_span_id, request.span_id);
    assert_eq!(out.trim(), format!("00-{TRACE}-{}-01", hex(&request.span_id)));
    let status = work.status.as_ref().expect("it failed");
    assert_eq!((status.code, &*status.message), (2, "out of memory"));
    let keys: Vec<_> = request
        .attributes
        .iter()
        .map(|attribute| &*attribute.key)
        .collect();
    assert!(
        keys.contains(&"model") && !keys.iter().any(|key| key.starts_with("code.")),
        "{keys:?}"
    );
    gateway.stop();
}
