// SPDX-License-Identifier: Apache-2.0

//! Drops of each reason, as all sides see them: the answer to the sender, the items that the destination or a reader has, the
//! gateway's own metrics and the API. All agree exactly.

use super::kit::{Gateway, Ledgers, OtlpSink, QueryApi, Trouble, free_port, http};
use serde_json::{Value, json};
use std::iter::repeat_n;
use tonic::Code;

/// Points of a request: the first ones are of the metric `kept`, the others of the metric `noise`.
const POINTS: u64 = 5;
const KEPT: u64 = 3;

/// A gateway with one exporter.
struct Scene {
    gateway: Gateway,
    input: u16,
    admin: u16,
}

impl Scene {
    fn start(processors: &str, chain: &str, exporter: &str, options: &str) -> Self {
        let (input, admin) = (free_port(), free_port());
        let gateway = Gateway::start(&format!(
            "extensions: {{admin: {{endpoint: \"127.0.0.1:{admin}\"}}}}
receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}}}
processors: {{{processors}}}
exporters: {{{exporter}: {{{options}}}}}
service:
  extensions: [health_check, admin]
  pipelines: {{metrics: {{receivers: [otlp], processors: [{chain}], exporters: [{exporter}]}}}}
"
        ));
        Self {
            gateway,
            input,
            admin,
        }
    }

    /// Sends a request. Gives how many points the gateway says it rejected.
    fn send(&self, request: &Value) -> u64 {
        let body = request.to_string();
        let answer = http::post(self.input, "/v1/metrics", "application/json", body.as_bytes());
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
        match &answer.json()["partialSuccess"]["rejectedDataPoints"] {
            Value::String(count) => count.parse().expect("a number"),
            Value::Null => 0,
            other => panic!("{other}"),
        }
    }
}

/// A time in nanoseconds, so many seconds after now.
fn after(seconds: i64) -> String {
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    format!("{}000000000", now.saturating_add_signed(seconds))
}

/// Points of this time with numbers of their own.
fn points(time: &str, count: u64) -> Vec<Value> {
    let point = |number: u64| {
        let attribute = json!({"key": "number", "value": {"intValue": number.to_string()}});
        json!({"startTimeUnixNano": "1", "timeUnixNano": time, "asInt": "1", "attributes": [attribute]})
    };
    (0..count).map(point).collect()
}

fn request_of(metrics: &Value) -> Value {
    json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]})
}

/// The drops of one reason on the way to a destination.
struct Delivery {
    reason: &'static str,
    /// The processors, and their ids in the pipeline.
    processors: [&'static str; 2],
    /// Options of the exporter.
    options: &'static str,
    troubles: Vec<Trouble>,
    requests: u64,
    /// The component that drops.
    drops: &'static str,
    dropped: u64,
    /// The points that the destination takes.
    arrived: u64,
    /// The fewest and the most requests that the destination may get, with those that it refuses.
    attempts: [usize; 2],
}

impl Delivery {
    fn is_seen_by_all(&self) {
        let (reason, sink) = (self.reason, OtlpSink::start());
        sink.trouble(self.troubles.iter().cloned());
        let options = format!("endpoint: \"{}\", {}", sink.endpoint(), self.options);
        let [processors, chain] = self.processors;
        let scene = Scene::start(processors, chain, "otlphttp", &options);
        let time = after(0);
        let request = request_of(&json!([
            {"name": "kept", "gauge": {"dataPoints": points(&time, KEPT)}},
            {"name": "noise", "gauge": {"dataPoints": points(&time, POINTS - KEPT)}},
        ]));
        for _ in 0..self.requests {
            assert_eq!(scene.send(&request), 0, "{reason}: the gateway took the request");
        }
        let ledgers = Ledgers::at_rest(&scene.gateway, scene.admin);
        let sent = self.requests * POINTS;
        assert_eq!(
            ledgers.of("receivers::otlp", "metrics"),
            [("accepted", sent)],
            "{reason}"
        );
        let dropped = format!("dropped {reason}");
        let mut expected = vec![(dropped.as_str(), self.dropped), ("in", sent)];
        if self.dropped < sent {
            expected.push(("out", sent - self.dropped));
        }
        assert_eq!(ledgers.of(self.drops, "metrics"), expected, "{reason}");
        assert_eq!(sink.points().len() as u64, self.arrived, "{reason}");
        let ([fewest, most], attempts) = (self.attempts, sink.attempts());
        assert!(
            (fewest..=most).contains(&attempts),
            "{reason}: {attempts} attempts"
        );
        scene.gateway.stop();
    }
}

#[test]
fn senders_destinations_metrics_and_api_agree_on_drops() {
    let plain = Delivery {
        reason: "",
        processors: [""; 2],
        options: "",
        troubles: Vec::new(),
        requests: 1,
        drops: "exporters::otlphttp",
        dropped: POINTS,
        arrived: 0,
        attempts: [1, 1],
    };
    let filter = "filter: {metrics: {exclude: {match_type: strict, metric_names: [noise]}}}";
    let busy = "sending_queue: {queue_size: 1, num_consumers: 1, on_full: drop}, \
                retry_on_failure: {initial_interval: 300ms, max_interval: 300ms, randomization_factor: 0}";
    for delivery in [
        Delivery {
            reason: "filtered",
            processors: [filter, "filter"],
            drops: "processors::filter@metrics",
            dropped: POINTS - KEPT,
            arrived: KEPT,
            ..plain
        },
        // The destination got all of them, and says that it keeps some only.
        Delivery {
            reason: "rejected",
            troubles: vec![Trouble::Partial(2, "two are too many".to_owned())],
            dropped: 2,
            arrived: POINTS,
            ..plain
        },
        Delivery {
            reason: "rejected",
            troubles: vec![Trouble::Refuse(Code::PermissionDenied, 403)],
            ..plain
        },
        Delivery {
            reason: "retries_exhausted",
            options: "retry_on_failure: {enabled: false}",
            troubles: vec![Trouble::UNAVAILABLE],
            ..plain
        },
        // The exporter divides what is too large for the destination, down to single points.
        Delivery {
            reason: "rejected",
            troubles: repeat_n(Trouble::TooLarge, 100).collect(),
            attempts: [POINTS as usize + 1, 2 * POINTS as usize],
            ..plain
        },
        // No point fits a request of this size.
        Delivery {
            reason: "limit",
            options: "sending_queue: {max_request_size: 16B}",
            troubles: Vec::new(),
            attempts: [0, 0],
            ..plain
        },
        // The first request fills the queue until the destination takes it.
        Delivery {
            reason: "queue_full",
            options: busy,
            troubles: repeat_n(Trouble::UNAVAILABLE, 20).collect(),
            requests: 3,
            dropped: 2 * POINTS,
            arrived: POINTS,
            attempts: [21, 21],
            ..plain
        },
    ] {
        delivery.is_seen_by_all();
    }
}

/// Drops of one reason by a page. It drops all points of the last request.
struct Shown {
    reason: &'static str,
    requests: Vec<Value>,
    /// The points that the answer to the last request rejects.
    rejected: u64,
    /// The series that readers see.
    series: u64,
}

impl Shown {
    fn is_seen_by_all(&self) {
        let (reason, page) = (self.reason, free_port());
        let options = format!("endpoint: \"127.0.0.1:{page}\"");
        let scene = Scene::start("", "", "prometheus", &options);
        let answers: Vec<u64> = self.requests.iter().map(|one| scene.send(one)).collect();
        let mut expected = vec![0; self.requests.len() - 1];
        expected.push(self.rejected);
        assert_eq!(answers, expected, "{reason}: rejected points of each request");
        let ledgers = Ledgers::at_rest(&scene.gateway, scene.admin);
        let sent = self.requests.len() as u64 * POINTS;
        assert_eq!(
            ledgers.of("receivers::otlp", "metrics"),
            [("accepted", sent)],
            "{reason}"
        );
        let (dropped, absorbed) = (format!("dropped {reason}"), sent - POINTS);
        let mut expected = vec![(dropped.as_str(), POINTS), ("in", sent)];
        if absorbed > 0 {
            expected.insert(0, ("absorbed", absorbed));
        }
        assert_eq!(
            ledgers.of("exporters::prometheus", "metrics"),
            expected,
            "{reason}"
        );
        let text = http::get(page, "/metrics").expect("a page").text();
        let series = text.lines().filter(|line| line.starts_with("level{")).count();
        assert_eq!(series as u64, self.series, "{reason}: {text}");
        let counted = QueryApi::at(scene.admin).value("count(level)");
        let counted = counted.map_or(0, |count| count as u64);
        assert_eq!(counted, self.series, "{reason}");
        scene.gateway.stop();
    }
}

#[test]
fn senders_pages_queries_metrics_and_api_agree_on_drops() {
    let levels = |seconds: i64| {
        let points = points(&after(seconds), POINTS);
        request_of(&json!([{"name": "level", "gauge": {"dataPoints": points}}]))
    };
    let falling = json!([{"name": "level", "sum": {
        "isMonotonic": false, "aggregationTemporality": 1, "dataPoints": points(&after(0), POINTS),
    }}]);
    for shown in [
        Shown {
            reason: "late",
            requests: vec![levels(0), levels(-20)],
            rejected: POINTS,
            series: POINTS,
        },
        Shown {
            reason: "future",
            requests: vec![levels(86_400)],
            rejected: POINTS,
            series: 0,
        },
        Shown {
            reason: "unsupported",
            requests: vec![request_of(&falling)],
            rejected: POINTS,
            series: 0,
        },
    ] {
        shown.is_seen_by_all();
    }
}
