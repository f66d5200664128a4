// SPDX-License-Identifier: Apache-2.0

//! `config/autoscaling.yaml` as an autoscaler lives with it: two servers, one dies, both die, one comes back. Every
//! face says the same at every step: KEDA, PromQL, the page of composites, the page of the Prometheus exporter.

mod departures;
mod pipelines;

use super::kit::keda::Keda;
use super::kit::query_api::percent_encode;
use super::kit::{Answer, Gateway, SOON, Target, free_port, http, wait_until};
use serde_json::Value as Json;
use std::path::PathBuf;
use std::time::Duration;
use tidegate_page::{Reader, Snapshot, State};
use tonic::Code;

const DEPTH: [(&str, &str); 3] = [
    ("composite", "queue_depth"),
    ("labels", "model_name=llama"),
    ("target", "10"),
];
const BY_QUERY: [(&str, &str); 2] = [("query", "sum(queue_depth)"), ("target", "10")];

/// The page of a vLLM server.
fn page(waiting: u32, cache: f64, requests: u32) -> String {
    let sum = f64::from(requests) / 20.0;
    format!(
        "# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine=\"0\",model_name=\"llama\"}} {waiting}
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{engine=\"0\",model_name=\"llama\"}} {cache}
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{{engine=\"0\",model_name=\"llama\",le=\"0.1\"}} {requests}
vllm:time_to_first_token_seconds_bucket{{engine=\"0\",model_name=\"llama\",le=\"1\"}} {requests}
vllm:time_to_first_token_seconds_bucket{{engine=\"0\",model_name=\"llama\",le=\"+Inf\"}} {requests}
vllm:time_to_first_token_seconds_sum{{engine=\"0\",model_name=\"llama\"}} {sum}
vllm:time_to_first_token_seconds_count{{engine=\"0\",model_name=\"llama\"}} {requests}
"
    )
}

/// The faces of a gateway.
struct Faces {
    admin: u16,
    page: u16,
    /// The page in shared memory.
    shared: PathBuf,
    keda: Keda,
}

/// The answer about the depth that all interfaces give.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    state: String,
    value: Option<f64>,
    sources: (u64, u64),
}

impl Faces {
    /// The only group of a composite on the page.
    fn composite(&self, name: &str) -> Json {
        let all = http::get(self.admin, &format!("/api/v1/composites/{name}")).expect("an answer");
        all.json()[0].clone()
    }

    fn seen(&self) -> Seen {
        let one = self.composite("queue_depth");
        let count = |key: &str| one["sources"][key].as_u64().expect("a count");
        Seen {
            state: one["state"].as_str().expect("a state").to_owned(),
            value: one["value"].as_f64(),
            sources: (count("reporting"), count("expected")),
        }
    }

    fn query(&self, query: &str) -> (u16, Json) {
        let path = format!("/api/v1/query?query={}", percent_encode(query));
        let answer = http::get(self.admin, &path).expect("an answer");
        (answer.status, answer.json())
    }

    /// The numbers of a vector.
    fn numbers(&self, query: &str) -> Vec<f64> {
        let (status, answer) = self.query(query);
        assert_eq!(status, 200, "{query}: {answer}");
        let vector = answer["data"]["result"].as_array().expect("a vector").clone();
        let number = |one: &Json| one["value"][1].as_str().and_then(|text| text.parse().ok());
        vector.iter().map(|one| number(one).expect("a number")).collect()
    }

    /// Samples of a metric on the page of the exporter: labels and value.
    fn exposed(&self, name: &str) -> Vec<(String, f64)> {
        let page = http::get(self.page, "/metrics").expect("a page").text();
        let lines = page.lines().filter_map(|line| line.strip_prefix(name));
        let lines = lines.filter_map(|rest| rest.strip_prefix('{')?.rsplit_once("} "));
        lines
            .map(|(labels, value)| (labels.to_owned(), value.parse().expect("a number")))
            .collect()
    }

    /// The answer that a router on the node reads of a model in shared memory.
    fn shared(&self, composite: &str) -> Snapshot {
        let reader = Reader::open(&self.shared).expect("a page");
        let entry = reader.find(composite, "job=\"vllm\",model_name=\"llama\"");
        reader.read(&entry.expect("an entry")).expect("a value")
    }

    /// The same as an expression.
    fn by_expression(&self) -> (String, Option<f64>) {
        let one = self.composite("queue_depth_promql");
        (
            one["state"].as_str().expect("a state").to_owned(),
            one["value"].as_f64(),
        )
    }

    fn wait(&self, what: &str, state: &str, value: Option<f64>, sources: (u64, u64)) {
        let expected = Seen {
            state: state.to_owned(),
            value,
            sources,
        };
        let mut last = None;
        wait_until(SOON, what, || {
            let seen = self.seen();
            let is_it = seen == expected;
            if last.as_ref() != Some(&seen) {
                println!("{what}: {seen:?}");
            }
            last = Some(seen);
            is_it
        });
        let mut last = None;
        wait_until(SOON, what, || {
            let seen = self.by_expression();
            let is_it = (&*seen.0, seen.1) == (state, value);
            if last.as_ref() != Some(&seen) {
                println!("{what}: by expression {seen:?}");
            }
            last = Some(seen);
            is_it
        });
    }

    /// Everybody knows this depth. `state`: how far it can be trusted.
    fn all_know(&mut self, depth: f64, state: State) {
        for trigger in [&DEPTH[..], &BY_QUERY] {
            assert_eq!(self.keda.metric(trigger), Ok(depth), "{trigger:?}");
            assert_eq!(self.keda.is_active(trigger), Ok(depth > 0.0), "{trigger:?}");
        }
        assert_eq!(self.numbers("queue_depth"), [depth]);
        let (_, answer) = self.query("queue_depth");
        let partial = "the composite `queue_depth` is partial: 1 of 2 sources report";
        let warns = answer["warnings"].to_string().contains(partial);
        assert_eq!(warns, state == State::Partial, "{answer}");
        assert_eq!(
            self.numbers("queue_depth{job=\"vllm\",model_name=\"llama\"}"),
            [depth]
        );
        wait_until(SOON, "the exporter shows the depth", || {
            let exposed = self.exposed("queue_depth");
            exposed.len() == 1 && exposed[0].1.to_bits() == depth.to_bits()
        });
        wait_until(SOON, "the shared page has the depth", || {
            let shared = self.shared("queue_depth");
            (shared.value, shared.state) == (Some(depth), state)
        });
    }

    /// No interface gives a number.
    fn nobody_knows(&mut self) {
        for trigger in [&DEPTH[..], &BY_QUERY] {
            let (code, why) = self.keda.metric(trigger).expect_err("no value");
            assert_eq!(code, Code::FailedPrecondition, "{why}");
            assert!(why.contains("stale"), "{why}");
            let (code, why) = self.keda.is_active(trigger).expect_err("no activity");
            assert_eq!(code, Code::FailedPrecondition, "{why}");
        }
        // A failed scrape does not end a source.
        let gone = [&DEPTH[..], &[("whenGone", "inactive")]].concat();
        assert_eq!(
            self.keda.is_active(&gone).expect_err("no activity").0,
            Code::FailedPrecondition
        );
        let (status, answer) = self.query("queue_depth");
        assert_eq!(
            (status, &answer["errorType"]),
            (422, &Json::from("execution")),
            "{answer}"
        );
        assert!(
            answer["error"].as_str().expect("a text").contains("stale"),
            "{answer}"
        );
        assert_eq!(self.numbers("queue_depth or vector(-1)"), [-1.0]);
        let cache = self.composite("kv_usage");
        for key in ["value", "min", "max", "avg", "last", "sum", "count"] {
            assert!(cache[key].is_null(), "{key}: {cache}");
        }
        wait_until(SOON, "the exporter shows no depth", || {
            self.exposed("queue_depth").is_empty()
        });
        for composite in ["queue_depth", "kv_usage"] {
            wait_until(SOON, "the shared page has no value", || {
                let shared = self.shared(composite);
                let statistics = [shared.value, shared.min, shared.max, shared.sum, shared.count];
                shared.state == State::Stale && statistics == [None; 5]
            });
        }
    }
}

/// A server of vLLM.
fn server(port: u16, waiting: u32, requests: u32) -> Target {
    let server = Target::start_on(port);
    show(&server, waiting, requests);
    server
}

fn show(server: &Target, waiting: u32, requests: u32) {
    let page = page(waiting, f64::from(waiting) / 100.0, requests);
    server.answer("/metrics", Answer::text(&page));
}

#[test]
fn an_autoscaler_is_told_the_truth_while_servers_die_and_come_back() {
    // Nobody else gets the ports while a server is away.
    let ports = [free_port(), free_port()];
    let (a, b) = (server(ports[0], 100, 100), server(ports[1], 0, 100));
    let (admin, exporter) = (free_port(), free_port());
    let yaml = include_str!("../../config/autoscaling.yaml");
    let directory = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start_with(yaml, |command| {
        command
            .env("VLLM_A", a.address())
            .env("VLLM_B", b.address())
            .env("ADMIN_ENDPOINT", format!("127.0.0.1:{admin}"))
            .env("PROMETHEUS_ENDPOINT", format!("127.0.0.1:{exporter}"))
            .env("COMPOSITE_PAGE", directory.path().join("page"));
    });
    let mut faces = Faces {
        admin,
        page: exporter,
        shared: directory.path().join("page"),
        keda: Keda::at(admin),
    };

    // Whatever server reports last, the depth is that of both.
    faces.wait("both servers report", "fresh", Some(100.0), (2, 2));
    faces.all_know(100.0, State::Fresh);
    let mut activity = faces.keda.activity(&DEPTH);
    assert_eq!(faces.keda.next(&mut activity, SOON), Some(true));
    show(&a, 20, 200);
    show(&b, 8, 110);
    faces.wait("the depth falls", "fresh", Some(28.0), (2, 2));
    faces.all_know(28.0, State::Fresh);
    wait_until(SOON, "the p99 of both servers", || {
        let p99 = faces.composite("ttft_p99_30s");
        p99["count"].as_f64() == Some(110.0) && p99["value"].as_f64().is_some()
    });
    let cache = faces.composite("kv_usage");
    assert_eq!(cache["max"].as_f64(), cache["value"].as_f64(), "{cache}");
    let instance = format!("instance=\"127.0.0.1:{}\"", ports[0]);
    wait_until(SOON, "the exporter shows both servers", || {
        let exposed = faces.exposed("vllm:num_requests_waiting");
        exposed.len() == 2 && exposed.iter().any(|(labels, _)| labels.contains(&instance))
    });

    // One dies: the answers give the rest, and say that it is partial.
    drop(a);
    faces.wait("one server is dead", "partial", Some(8.0), (1, 2));
    faces.all_know(8.0, State::Partial);
    let strict = [&DEPTH[..], &[("onPartial", "error")]].concat();
    let (code, why) = faces.keda.metric(&strict).expect_err("partial");
    assert_eq!(code, Code::FailedPrecondition);
    assert!(why.contains("1 of 2 sources"), "{why}");
    let strict = [&BY_QUERY[..], &[("onPartial", "error")]].concat();
    let (code, why) = faces.keda.metric(&strict).expect_err("partial");
    assert!(
        code == Code::FailedPrecondition && why.contains("1 of 2 sources"),
        "{why}"
    );

    // Both are dead: the value is unknown, and no answer is 0.
    drop(b);
    faces.wait("both servers are dead", "stale", None, (0, 2));
    faces.nobody_knows();
    wait_until(SOON, "the exporter shows that both are down", || {
        let ups = faces.exposed("up").iter().map(|(_, up)| *up).collect::<Vec<_>>();
        ups == [0.0, 0.0]
    });

    // One is back.
    let _b = server(ports[1], 12, 120);
    faces.wait("one server is back", "partial", Some(12.0), (1, 2));
    faces.all_know(12.0, State::Partial);

    // Activity was true all the time: nothing was said twice.
    let said = faces.keda.next(&mut activity, Duration::from_millis(200));
    assert_eq!(said, None);
    gateway.stop();
}
