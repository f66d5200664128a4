// SPDX-License-Identifier: Apache-2.0

//! The query API of the gateway: what its clients ask, against what a real Prometheus says that scrapes the gateway.

use super::kit::command::{asking, result};
use super::kit::{Gateway, Prometheus, QueryApi, SOON, free_port, http, last_answer, testenv};
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

/// A request of OTLP/JSON: a counter, gauges and a histogram of one service.
fn request(count: u64) -> String {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970")
        .as_nanos();
    let sum = |value: u64, zone: &str| {
        format!(
            r#"{{"asInt":"{value}","startTimeUnixNano":"1","timeUnixNano":"{now}","attributes":[{{"key":"zone","value":{{"stringValue":"{zone}"}}}}]}}"#
        )
    };
    let histogram = format!(
        r#"{{"count":"{}","sum":{},"explicitBounds":[0.1,1,5],"bucketCounts":["{count}","{count}","{count}","{count}"],"startTimeUnixNano":"1","timeUnixNano":"{now}"}}"#,
        4 * count,
        count as f64 * 2.5
    );
    let exponential = format!(
        r#"{{"count":"{}","sum":{},"scale":0,"zeroCount":"1","zeroThreshold":0.5,"positive":{{"offset":0,"bucketCounts":["{count}","0","{count}"]}},"startTimeUnixNano":"1","timeUnixNano":"{now}"}}"#,
        2 * count + 1,
        count as f64 * 3.0
    );
    format!(
        r#"{{"resourceMetrics":[{{"resource":{{"attributes":[{{"key":"service.name","value":{{"stringValue":"web"}}}}]}},"scopeMetrics":[{{"metrics":[
        {{"name":"requests","sum":{{"isMonotonic":true,"aggregationTemporality":2,"dataPoints":[{},{}]}}}},
        {{"name":"depth","gauge":{{"dataPoints":[{},{}]}}}},
        {{"name":"wait","unit":"s","histogram":{{"aggregationTemporality":2,"dataPoints":[{histogram}]}}}},
        {{"name":"size","exponentialHistogram":{{"aggregationTemporality":2,"dataPoints":[{exponential}]}}}}
        ]}}]}}]}}"#,
        sum(count, "x"),
        sum(count * 3, "y"),
        sum(count % 7, "x"),
        sum(count % 5 + 10, "y"),
    )
}

struct Scene {
    gateway: Gateway,
    input: u16,
    admin: u16,
    scrape: u16,
}

fn start() -> Scene {
    let (input, admin, scrape) = (free_port(), free_port(), free_port());
    let gateway = Gateway::start(&format!(
        "extensions:
  admin: {{endpoint: \"127.0.0.1:{admin}\"}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}
processors:
  aggregate: {{rules: [{{match: {{name: \"regex:requests|depth|wait|size\"}}}}]}}
  composite: {{composites: [{{name: depth_max, metric: depth, function: max, across: max, window: 2s, lease: 3s}}]}}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{scrape}\"}}
service:
  extensions: [health_check, admin]
  pipelines: {{metrics: {{receivers: [otlp], processors: [composite, aggregate], exporters: [prometheus]}}}}
"
    ));
    Scene {
        gateway,
        input,
        admin,
        scrape,
    }
}

impl Scene {
    fn push(&self, count: u64) {
        let answer = http::post(
            self.input,
            "/v1/metrics",
            "application/json",
            request(count).as_bytes(),
        );
        assert_eq!(answer.expect("it lives").status, 200);
    }

    fn ask(&self, query: &str) -> Json {
        let form = format!(
            "query={}",
            query.replace('+', "%2B").replace(' ', "+").replace('=', "%3D")
        );
        let form_type = "application/x-www-form-urlencoded";
        http::post(self.admin, "/api/v1/query", form_type, form.as_bytes())
            .expect("it lives")
            .json()
    }

    /// The one value of a query.
    fn value(&self, query: &str) -> Option<f64> {
        let answer = self.ask(query);
        let result = answer["data"]["result"].as_array()?;
        assert!(result.len() < 2, "{query}: {answer}");
        result.first()?["value"][1].as_str()?.parse().ok()
    }
}

#[test]
fn what_was_acknowledged_is_in_the_next_answer() {
    let scene = start();
    for count in 1..=50 {
        scene.push(count);
        assert_eq!(scene.value("sum(requests_total)"), Some(4.0 * count as f64));
        assert_eq!(scene.value("wait_seconds_count"), Some(4.0 * count as f64));
        assert_eq!(
            scene.value("histogram_count(size)"),
            Some(2.0 * count as f64 + 1.0)
        );
    }
    scene.gateway.stop();
}

#[test]
fn native_histograms_are_answered_as_prometheus_does() {
    let scene = start();
    scene.push(5);
    let answer = scene.ask("size");
    let series = &answer["data"]["result"][0];
    let buckets = serde_json::json!([[3, "-0.5", "0.5", "1"], [0, "1", "2", "5"], [0, "4", "8", "5"]]);
    let expected = serde_json::json!({"count": "11", "sum": "15", "buckets": buckets});
    assert_eq!(series["histogram"][1], expected, "{answer}");
    let deadline = Instant::now() + SOON;
    loop {
        let answer = scene.ask("size[10s]");
        let series = &answer["data"]["result"][0];
        if series["histograms"]
            .as_array()
            .is_some_and(|samples| samples.len() > 1)
        {
            assert_eq!(series["histograms"][0][1], expected, "{answer}");
            assert_eq!(series.get("values"), None, "{answer}");
            break;
        }
        assert!(Instant::now() < deadline, "{answer}");
        std::thread::sleep(Duration::from_millis(50));
    }
    scene.gateway.stop();
}

#[test]
fn a_prometheus_that_scrapes_the_gateway_agrees_with_the_gateway() {
    let scene = start();
    let server = Prometheus::scraping(&[scene.scrape]);
    for count in 1..=20 {
        scene.push(count);
    }
    server.wait_for_value("sum(requests_total)", 80.0);
    let queries = [
        "sum(requests_total)",
        "sum by (zone) (requests_total)",
        "max(depth)",
        "count({__name__=~\"depth|requests_total|wait_seconds_.*\"})",
        "histogram_quantile(0.5, sum by (le) (wait_seconds_bucket))",
        "histogram_quantile(0.99, wait_seconds_bucket)",
        "wait_seconds_sum / wait_seconds_count",
        "requests_total / on (zone) depth",
        "topk(1, depth)",
        // A server that takes native histograms asks for protobuf, of which it makes `1.0` itself.
        "sum(wait_seconds_bucket{le=~\"1|1[.]0\"})",
    ];
    // The scrape adds who was scraped; nothing else may differ.
    for query in queries {
        let mut ours: Vec<f64> = values(&scene.ask(query));
        ours.sort_by(f64::total_cmp);
        assert!(!ours.is_empty(), "{query}");
        let sorted = || {
            let mut theirs: Vec<f64> = server.query(query).iter().map(|sample| sample.value).collect();
            theirs.sort_by(f64::total_cmp);
            theirs
        };
        let theirs = last_answer(sorted, |theirs| *theirs == ours);
        assert_eq!(ours, theirs, "{query}");
    }
    scene.gateway.stop();
}

fn values(answer: &Json) -> Vec<f64> {
    let result = answer["data"]["result"].as_array().expect("a vector");
    let value = |series: &Json| {
        series["value"][1]
            .as_str()
            .expect("a value")
            .parse()
            .expect("a number")
    };
    result.iter().map(value).collect()
}

#[test]
fn promtool_and_a_dashboard_can_use_it_as_a_data_source() {
    let scene = start();
    scene.push(5);
    let promtool = |arguments: &[&str]| {
        let output = Command::new(testenv("prometheus/usr/bin/promtool"))
            .args(arguments)
            .output()
            .expect("promtool starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        text
    };
    let url = format!("http://127.0.0.1:{}", scene.admin);
    assert!(promtool(&["query", "instant", &url, "sum(requests_total)"]).contains("=> 20 @["));
    assert_eq!(promtool(&["query", "labels", &url, "zone"]), "x\ny\n");
    let series = promtool(&["query", "series", &url, "--match=depth"]);
    assert_eq!(series.lines().count(), 2, "{series}");
    assert!(
        ["zone=\"x\"", "zone=\"y\""]
            .iter()
            .all(|zone| series.contains(zone)),
        "{series}"
    );
    // Until there is a past.
    let deadline = Instant::now() + SOON;
    loop {
        let range = promtool(&["query", "range", "--step=1s", &url, "max_over_time(depth[5s])"]);
        // A line is a value and its time.
        let values = range.lines().filter_map(|line| Some(line.split_once(" @[")?.0));
        let values: BTreeSet<&str> = values.collect();
        if values == BTreeSet::from(["10", "5"]) {
            break;
        }
        assert!(Instant::now() < deadline, "{range}");
        std::thread::sleep(Duration::from_millis(50));
    }
    // Requests that Grafana makes when a data source is saved, and when a panel is edited.
    for path in [
        "/api/v1/query?query=1%2B1&time=4",
        "/api/v1/status/buildinfo",
        "/api/v1/labels",
        "/api/v1/label/__name__/values",
        "/api/v1/metadata",
        "/api/v1/series?match[]=depth",
        "/-/healthy",
        "/-/ready",
    ] {
        let answer = http::get(scene.admin, path).expect("it lives");
        assert_eq!(answer.status, 200, "{path}");
    }
    // A composite is a series like others while it has a value, and an error when it has none any more.
    scene.push(5);
    assert_eq!(scene.value("depth_max"), Some(10.0));
    let deadline = Instant::now() + SOON;
    while scene.ask("depth_max")["status"] != "error" && scene.value("depth_max").is_some() {
        assert!(Instant::now() < deadline, "{}", scene.ask("depth_max"));
        std::thread::sleep(Duration::from_millis(50));
    }
    scene.gateway.stop();
}

/// Exit code, standard output and standard error of `tidegate query`.
fn command(scene: &Scene, arguments: &[&str]) -> (Option<i32>, String, String) {
    result(asking(scene.admin, &["query"]).args(arguments))
}

#[test]
fn the_command_says_why_there_is_no_result_and_can_fail_for_it() {
    const BEFORE_HISTORY: &str = "warning: the history of this gateway begins";
    const NO_MATCH: &str = "no result: no series matches at this time; compare the labels with `tidegate explain NAME`; \
                            `tidegate query 'up == 0'` lists targets that are down\n";
    let unknown = |name: &str, near: &str| {
        format!(
            "warning: metric \"{name}\" is not known: no present or recent series has this name{near}\nno result\n"
        )
    };
    let near = unknown("requests_totl", "; did you mean \"requests_total\"?");
    let scene = start();
    scene.push(5);
    let found = "requests_total{zone=\"x\"}";
    let (code, out, said) = command(&scene, &[found, "--fail-empty"]);
    assert_eq!((code, &*said), (Some(0), ""));
    assert!(
        out.starts_with("requests_total{") && out.ends_with("}  5\n"),
        "{out}"
    );
    let no_match = "requests_total{zone=\"nowhere\"}";
    for (arguments, code, out, said) in [
        (&["1", "--fail-empty"][..], 0, "1\n", ""),
        (&[no_match], 0, "", NO_MATCH),
        (&[no_match, "--fail-empty"], 1, "", NO_MATCH),
        (&[no_match, "--range", "5m", "--fail-empty"], 1, "", NO_MATCH),
        (
            &[no_match, "--json", "--fail-empty"],
            1,
            "{\"result\":[],\"resultType\":\"vector\"}\n",
            "",
        ),
        (&["sum(requests_totl)"], 0, "", &near),
        (&["requests_totl", "--fail-empty"], 1, "", &near),
        (&["requests_totl", "--range", "5m"], 0, "", &near),
        (&["requests_totl", "--time", "1795402800"], 0, "", &near),
        (&["zzz"], 0, "", &unknown("zzz", "")),
    ] {
        let (own_code, own_out, own) = command(&scene, arguments);
        // The first sample may be taken before or after the question. A warning replaces the hint.
        let is_before = own.lines().any(|line| line.starts_with(BEFORE_HISTORY));
        let expected = if is_before && said == NO_MATCH {
            "no result\n"
        } else {
            said
        };
        let own = own.lines().filter(|line| !line.starts_with(BEFORE_HISTORY));
        let own: String = own.flat_map(|line| [line, "\n"]).collect();
        assert_eq!(
            (own_code, &*own_out, &*own),
            (Some(code), out, expected),
            "{arguments:?}"
        );
    }
    let (code, out, said) = command(&scene, &["sum("]);
    assert_eq!((code, &*out), (Some(1), ""));
    assert!(
        said.contains("1:5: parse error: unclosed left parenthesis"),
        "{said}"
    );
    scene.gateway.stop();
}

/// The receiver answers in protobuf, the exporter and the page of own metrics in text, and `health_check` in JSON.
#[test]
fn commands_say_that_another_port_is_not_the_one_of_admin() {
    let (input, page) = (free_port(), free_port());
    let gateway = Gateway::start(&format!(
        "receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{page}\"}}
service:
  pipelines: {{metrics: {{receivers: [otlp], exporters: [prometheus]}}}}
"
    ));
    let health = gateway.health_port();
    for port in [input, page, health, gateway.telemetry_port()] {
        let endpoint = format!("127.0.0.1:{port}");
        for arguments in [
            &["query", "up"][..],
            &["top", "--once", "--interval", "100ms"],
            &["tap", "otlp", "--limit", "1"],
        ] {
            // Errors of taps have no type, like those of `health_check`.
            if port == health && arguments[0] == "tap" {
                continue;
            }
            let (code, out, said) = result(&mut asking(port, arguments));
            assert_eq!((code, &*out), (Some(1), ""), "{arguments:?} at {port}: {said}");
            let expected = format!(
                "{endpoint} is not an admin endpoint: set `--endpoint` to that of the admin extension\n"
            );
            assert!(said.ends_with(&expected), "{arguments:?} at {port}: {said}");
        }
    }
    gateway.stop();
}

/// An operator's range of 5 s needs a sample each second, also with many composites beside some hundred series.
#[test]
fn series_are_sampled_each_second_beside_many_composites() {
    const SERIES: usize = 300;
    let (input, admin) = (free_port(), free_port());
    let composites: Vec<String> = (0..40)
        .map(|n| format!("{{name: c{n}, metric: level, function: max, window: 2s}}"))
        .collect();
    let _gateway = Gateway::start(&format!(
        "extensions:
  admin: {{endpoint: \"127.0.0.1:{admin}\"}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}
processors:
  aggregate: {{rules: [{{match: {{name: level}}}}]}}
  composite: {{composites: [{}]}}
exporters:
  nop: {{}}
service:
  extensions: [health_check, admin]
  pipelines: {{metrics: {{receivers: [otlp], processors: [composite, aggregate], exporters: [nop]}}}}
",
        composites.join(", ")
    ));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.expect("after 1970").as_nanos().to_string();
    let points: Vec<Json> = (0..SERIES)
        .map(|n| {
            let attributes = serde_json::json!([{"key": "n", "value": {"stringValue": n.to_string()}}]);
            serde_json::json!({"asInt": "1", "timeUnixNano": now, "attributes": attributes})
        })
        .collect();
    let metric = serde_json::json!({"name": "level", "gauge": {"dataPoints": points}});
    let body = serde_json::json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]});
    let answer = http::post(
        input,
        "/v1/metrics",
        "application/json",
        body.to_string().as_bytes(),
    );
    assert_eq!(answer.expect("it lives").status, 200);
    let queries = QueryApi::at(admin);
    queries.wait_for_value("count(level)", SERIES as f64);
    // A pass that takes several seconds leaves at most two samples in 5 s.
    queries.wait_for_value("min(count_over_time(level[5s])) >= bool 4", 1.0);
    queries.wait_for_value("count(count_over_time(level[5s]) >= 4)", SERIES as f64);
}
