// SPDX-License-Identifier: Apache-2.0

//! Prometheus's HTTP API beside a real Prometheus 3 that scrapes the same target: status, type of error and shape of
//! every endpoint, in the forms that Grafana, Perses, prometheus-adapter and promtool send.

mod configuration;
mod endpoints;

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::kit::http::{self, Response};
use super::kit::{Answer, Gateway, Prometheus, Release, SOON, Target, free_port, last_answer, wait_until};

const PAGE: &str = "# HELP requests_total Requests.\n# TYPE requests_total counter\n\
requests_total{zone=\"x\"} 5\nrequests_total{zone=\"y\"} 7\nrequests_total{zone=\"z\"} 9\n\
# HELP depth Depth of the queue.\n# TYPE depth gauge\ndepth{zone=\"x\"} 3\ndepth{zone=\"y\"} 4\n\
# HELP wait_seconds Time to wait.\n# TYPE wait_seconds histogram\nwait_seconds_bucket{le=\"0.5\"} 1\n\
wait_seconds_bucket{le=\"+Inf\"} 2\nwait_seconds_sum 3\nwait_seconds_count 2\n";

/// A gateway and a Prometheus that see the same.
struct Both {
    gateway: Gateway,
    admin: u16,
    server: Prometheus,
    _target: Target,
}

fn start() -> Both {
    let target = Target::showing(PAGE);
    let admin = free_port();
    let scrape = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs: [{{job_name: web, static_configs: [{{targets: [\"{}\"], labels: {{rack: r1}}}}]}}]
",
        target.address()
    );
    let indented = scrape.replace('\n', "\n      ");
    let gateway = Gateway::start(&format!(
        "extensions:
  admin:
    endpoint: \"127.0.0.1:{admin}\"
    cors: {{allowed_origins: [\"https://*.example.com\"]}}
    history: {{interval: 100ms}}
receivers:
  prometheus:
    config:
      {indented}
processors:
  aggregate: {{rules: [{{match: {{name: \"*\"}}}}]}}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{}\"}}
service:
  extensions: [health_check, admin]
  pipelines: {{metrics: {{receivers: [prometheus], processors: [aggregate], exporters: [prometheus]}}}}
",
        free_port()
    ));
    let server = Prometheus::start_plain(Release::Newest, &scrape);
    let both = Both {
        gateway,
        admin,
        server,
        _target: target,
    };
    for port in [both.admin, both.server.port()] {
        wait_until(SOON, "both have seen the target twice", || {
            let path = "/api/v1/query?query=count(count_over_time(requests_total[1m])>1)";
            get(port, path)["data"]["result"][0]["value"][1] == "3"
        });
    }
    both
}

/// The JSON of a page.
fn get(port: u16, path: &str) -> Json {
    ask(port, "GET", path, "").json()
}

/// GET, HEAD and the like by path; a POST sends what stands behind the `?` as a form.
fn ask(port: u16, method: &str, path: &str, accept: &str) -> Response {
    let (path, form) = match (method, path.split_once('?')) {
        ("POST", Some((path, form))) => (path, form),
        _ => (path, ""),
    };
    let mut headers = vec![("content-type", "application/x-www-form-urlencoded")];
    if !accept.is_empty() {
        headers.push(("accept-encoding", accept));
    }
    let path = path.replace(' ', "%20").replace('"', "%22").replace('>', "%3E");
    http::request(method, port, &path, &headers, form.as_bytes()).expect("it answers")
}

/// The keys of an answer and the kinds of its values, as deep as they go; lists by their first entry.
fn shape(value: &Json) -> String {
    match value {
        Json::Object(all) => {
            let entries = all.iter().map(|(key, value)| format!("{key}:{}", shape(value)));
            let entries: BTreeSet<String> = entries.collect();
            format!("{{{}}}", entries.into_iter().collect::<Vec<_>>().join(","))
        }
        Json::Array(all) => format!("[{}]", all.first().map(shape).unwrap_or_default()),
        Json::String(_) => "text".to_owned(),
        Json::Number(_) => "number".to_owned(),
        Json::Bool(_) => "bool".to_owned(),
        Json::Null => "null".to_owned(),
    }
}

fn leave_out_scopes(value: &mut Json) {
    let is_scope = |text: &str| text.starts_with("otel_scope_");
    match value {
        Json::Object(all) => {
            all.retain(|key, _| !is_scope(key));
            all.values_mut().for_each(leave_out_scopes);
        }
        Json::Array(all) => {
            all.retain(|entry| !entry.as_str().is_some_and(is_scope));
            all.iter_mut().for_each(leave_out_scopes);
        }
        _ => {}
    }
}

#[test]
fn errors_of_paths_methods_and_sizes_have_prometheus_s_shape() {
    let both = start();
    let long = format!("/api/v1/query?query={}", "x".repeat(300_000));
    for (method, path, status) in [
        ("GET", "/api/v1/nothing", 404),
        ("GET", "/nothing", 404),
        ("PUT", "/api/v1/query", 405),
        ("POST", "/api/v1/metadata", 405),
        ("POST", &*long, 413),
    ] {
        let answer = ask(both.admin, method, path, "");
        let json = answer.json();
        assert_eq!(answer.status, status, "{method} {json}");
        assert_eq!(json["status"], "error", "{json}");
        assert!(
            json["errorType"].is_string() && json["error"].is_string(),
            "{json}"
        );
    }
    let allowed = ask(both.admin, "PUT", "/api/v1/query", "");
    assert_eq!(allowed.header("allow"), Some("GET, OPTIONS, POST"));
    both.gateway.stop();
}

#[test]
fn long_answers_are_compressed_for_those_who_ask_for_it() {
    let both = start();
    let path = "/api/v1/query?query=sort({__name__!=\"\"})";
    let plain = ask(both.admin, "GET", path, "");
    assert_eq!(plain.header("content-encoding"), None);
    let packed = ask(both.admin, "GET", path, "gzip");
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert!(packed.body.len() < plain.body.len() / 2);
    let mut read = String::new();
    let mut unpacked = flate2::read::GzDecoder::new(&*packed.body);
    std::io::Read::read_to_string(&mut unpacked, &mut read).expect("gzip");
    let json: Json = serde_json::from_str(&read).expect("JSON");
    assert_eq!(shape(&json), shape(&plain.json()));
    let short = ask(both.admin, "GET", "/api/v1/query?query=1", "gzip");
    assert_eq!(short.header("content-encoding"), None);
    both.gateway.stop();
}

#[test]
fn pages_of_allowed_origins_may_ask_and_others_may_not() {
    let both = start();
    let asked = |method: &str, origin: &str| {
        let headers = [("origin", origin), ("access-control-request-method", "POST")];
        http::request(method, both.admin, "/api/v1/query?query=1", &headers, b"").expect("it answers")
    };
    for method in ["GET", "POST", "OPTIONS"] {
        let answer = asked(method, "https://grafana.example.com");
        assert!(answer.status < 300, "{method} {}", answer.status);
        let allowed = answer.header("access-control-allow-origin");
        assert_eq!(allowed, Some("https://grafana.example.com"), "{method}");
        let answer = asked(method, "https://example.org");
        assert_eq!(answer.header("access-control-allow-origin"), None, "{method}");
    }
    let preflight = asked("OPTIONS", "https://grafana.example.com");
    assert_eq!(
        preflight.header("access-control-allow-methods"),
        Some("GET,POST,OPTIONS")
    );
    let headers = preflight.header("access-control-allow-headers").expect("headers");
    assert!(headers.contains("authorization"), "{headers}");
    both.gateway.stop();
}

#[test]
fn targets_say_how_they_are_and_which_are_dropped() {
    let both = start();
    wait_until(SOON, "the target is up", || {
        let targets = get(both.admin, "/api/v1/targets");
        let one = &targets["data"]["activeTargets"][0];
        assert_eq!(one["labels"]["rack"], "r1", "{one}");
        one["health"] == "up" && one["lastError"] == ""
    });
    both._target.answer(
        "/metrics",
        Answer {
            status: 503,
            ..Answer::text("")
        },
    );
    wait_until(SOON, "the target is down", || {
        let targets = get(both.admin, "/api/v1/targets");
        let one = &targets["data"]["activeTargets"][0];
        one["health"] == "down" && one["lastError"].as_str().is_some_and(|why| why.contains("503"))
    });
    both.gateway.stop();
}

#[test]
fn the_answer_has_the_time_of_the_query_and_a_range_has_a_value_once() {
    let both = start();
    let now = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.expect("after 1970").as_millis() as f64 / 1000.0
    };
    wait_until(SOON, "there is a past of two seconds", || {
        let answer = get(
            both.admin,
            "/api/v1/query?query=count_over_time(depth{zone=\"x\"}[3s])",
        );
        let count = answer["data"]["result"][0]["value"][1]
            .as_str()
            .map(str::to_owned);
        count.is_some_and(|count| count.parse::<f64>().is_ok_and(|count| count > 25.0))
    });
    for shift in [-1.5, -0.3, 0.0, 0.3, 1.5] {
        let time = ((now() + shift) * 1000.0).round() / 1000.0;
        let answer = get(both.admin, &format!("/api/v1/query?query=depth&time={time}"));
        let result = &answer["data"]["result"];
        assert_eq!(result[0]["value"][0].as_f64(), Some(time), "{answer}");
        assert_eq!(result.as_array().map(Vec::len), Some(2), "{answer}");
    }
    // Ticks of 100 ms: 20 in two seconds, however often it is asked in between.
    for _ in 0..50 {
        let answer = get(
            both.admin,
            "/api/v1/query?query=count_over_time(depth{zone=\"x\"}[2s])",
        );
        let count = answer["data"]["result"][0]["value"][1]
            .as_str()
            .map(str::to_owned);
        let count: f64 = count.expect("a count").parse().expect("a number");
        assert!(count <= 20.0, "{answer}");
    }
    both.gateway.stop();
}

#[test]
fn a_federated_page_is_that_of_prometheus() {
    let both = start();
    let page = |port: u16| {
        let answer = ask(
            port,
            "GET",
            "/federate?match[]=depth&match[]={__name__=~\"requests.*\"}",
            "",
        );
        let text = answer.text();
        let lines = text.lines().map(|line| {
            let line = line.replace("otel_scope_name=\"tidegate/receiver/prometheus\",", "");
            let scope = format!("otel_scope_version=\"{}\",", env!("CARGO_PKG_VERSION"));
            // Without the time.
            if line.starts_with('#') {
                line
            } else {
                line.replace(&scope, "")
                    .rsplit_once(' ')
                    .expect("a time")
                    .0
                    .to_owned()
            }
        });
        lines.collect::<Vec<_>>()
    };
    let [ours, theirs] = last_answer(
        || [both.admin, both.server.port()].map(page),
        |[ours, theirs]| ours == theirs && ours.len() == 7,
    );
    assert_eq!(ours, theirs);
    assert_eq!(ours.len(), 7, "{ours:?}");
    both.gateway.stop();
}

#[test]
fn exemplars_are_those_that_a_prometheus_has_scraped() {
    let (input, admin, page) = (free_port(), free_port(), free_port());
    let gateway = Gateway::start(&format!(
        "extensions: {{admin: {{endpoint: \"127.0.0.1:{admin}\"}}}}
receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}}}
processors: {{aggregate: {{rules: [{{match: {{name: \"*\"}}}}]}}}}
exporters: {{prometheus: {{endpoint: \"127.0.0.1:{page}\", enable_open_metrics: true}}}}
service:
  extensions: [health_check, admin]
  pipelines: {{metrics: {{receivers: [otlp], processors: [aggregate], exporters: [prometheus]}}}}
"
    ));
    let server = Prometheus::start_plain(
        Release::Newest,
        &format!(
            "scrape_configs: [{{job_name: gateway, scrape_interval: 200ms, scrape_timeout: 200ms, honor_labels: true,
  static_configs: [{{targets: [\"127.0.0.1:{page}\"]}}]}}]"
        ),
    );
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.expect("after 1970").as_millis() * 1_000_000;
    let request = format!(
        r#"{{"resourceMetrics":[{{"resource":{{"attributes":[{{"key":"service.name","value":{{"stringValue":"web"}}}},{{"key":"service.instance.id","value":{{"stringValue":"i"}}}}]}},"scopeMetrics":[{{"metrics":[
        {{"name":"wait","unit":"s","histogram":{{"aggregationTemporality":2,"dataPoints":[{{"count":"2","sum":3,"explicitBounds":[1,5],"bucketCounts":["1","1","0"],"startTimeUnixNano":"1","timeUnixNano":"{now}",
        "exemplars":[{{"timeUnixNano":"{now}","asDouble":2.5,"traceId":"0102030405060708090a0b0c0d0e0f10","spanId":"0102030405060708"}}]}}]}}}}]}}]}}]}}"#
    );
    let answer = http::post(input, "/v1/metrics", "application/json", request.as_bytes());
    assert_eq!(answer.expect("it lives").status, 200);
    let path = "/api/v1/query_exemplars?query=histogram_quantile(0.9,rate(wait_seconds_bucket[1m]))";
    wait_until(SOON, "it has been scraped", || {
        get(server.port(), path)["data"][0]["exemplars"][0].is_object()
    });
    let [mut ours, mut theirs] = [admin, server.port()].map(|port| get(port, path));
    // The page writes bounds as numbers of OpenMetrics: `5.0`.
    for side in [&mut ours, &mut theirs] {
        leave_out_scopes(side);
        assert!(
            matches!(side["data"][0]["seriesLabels"]["le"].as_str(), Some("5" | "5.0")),
            "{side}"
        );
        side["data"][0]["seriesLabels"]["le"] = Json::Null;
    }
    assert_eq!(ours, theirs);
    let nothing = get(admin, &format!("{path}&end=5"));
    assert_eq!(nothing["data"], Json::Array(Vec::new()));
    gateway.stop();
}
