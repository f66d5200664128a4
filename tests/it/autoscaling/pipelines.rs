// SPDX-License-Identifier: Apache-2.0

//! An expression in one pipeline over data of another.

use super::*;

/// An expression in one pipeline over what another pipeline scrapes.
fn elsewhere(admin: u16, targets: &str) -> String {
    format!(
        "extensions:
  admin: {{endpoint: \"127.0.0.1:{admin}\"}}
receivers:
  prometheus:
    config:
      scrape_configs:
        - {{job_name: vllm, scrape_interval: 1s, static_configs: [{{targets: [{targets}]}}]}}
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{}\"}}}}}}
processors:
  aggregate: {{rules: [{{match: {{name: \"vllm:*\"}}, by: [job, instance, model_name], aggregation: max}}]}}
  composite:
    interval: 100ms
    composites:
      - {{name: queue_depth, expr: \"sum by (model_name) (vllm:num_requests_waiting)\"}}
      - {{name: queue_depth_promql, expr: \"sum by (model_name) (vllm:num_requests_waiting + 0)\"}}
      - {{name: nothing, expr: \"sum(vllm:num_requests_wating)\"}}
      - {{name: nothing_is_zero, expr: \"sum(vllm:num_requests_wating) or vector(0)\"}}
exporters:
  debug: {{}}
  prometheus: {{endpoint: \"127.0.0.1:{}\"}}
service:
  extensions: [health_check, admin]
  pipelines:
    metrics/scraped: {{receivers: [prometheus], processors: [aggregate], exporters: [prometheus]}}
    metrics/pushed: {{receivers: [otlp], processors: [composite], exporters: [debug]}}
",
        free_port(),
        free_port()
    )
}

#[test]
fn an_expression_knows_the_sources_of_other_pipelines() {
    let (port, admin) = (free_port(), free_port());
    let (a, b) = (server(free_port(), 5, 1), server(port, 6, 1));
    let targets = format!("\"{}\", \"{}\"", a.address(), b.address());
    let gateway = Gateway::start(&elsewhere(admin, &targets));
    let mut faces = Faces {
        admin,
        page: 0,
        shared: PathBuf::new(),
        keda: Keda::at(admin),
    };
    faces.wait("both servers report", "fresh", Some(11.0), (2, 2));
    let nothing = faces.composite("nothing");
    assert_eq!(
        (
            &nothing["state"],
            &nothing["value"],
            &nothing["sources"]["expected"]
        ),
        (&"absent".into(), &Json::Null, &0.into())
    );
    let by_nothing = [("composite", "nothing"), ("target", "1")];
    let (code, why) = faces.keda.metric(&by_nothing).expect_err("absent");
    assert!(
        code == Code::FailedPrecondition && why.contains("absent"),
        "{why}"
    );
    let zero = faces.composite("nothing_is_zero");
    assert_eq!((&zero["state"], &zero["value"]), (&"fresh".into(), &0.0.into()));

    drop(a);
    faces.wait("one server is dead", "partial", Some(6.0), (1, 2));
    assert_eq!(faces.keda.metric(&DEPTH), Ok(6.0));
    let strict = [&DEPTH[..], &[("onPartial", "error")]].concat();
    let (_, why) = faces.keda.metric(&strict).expect_err("partial");
    assert!(why.contains("1 of 2 sources"), "{why}");

    drop(b);
    faces.wait("both servers are dead", "stale", None, (0, 2));
    let (code, why) = faces.keda.metric(&DEPTH).expect_err("stale");
    assert!(
        code == Code::FailedPrecondition && why.contains("has no value"),
        "{why}"
    );
    assert_eq!(faces.query("queue_depth").0, 422);

    let _b = server(port, 9, 2);
    faces.wait("one server is back", "partial", Some(9.0), (1, 2));
    gateway.stop();
}
