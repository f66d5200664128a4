// SPDX-License-Identifier: Apache-2.0

//! A replica that starts again answers about the time before its start as the other replica does.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value as Json;
use tempfile::TempDir;

use super::{Producer, send_total};
use crate::kit::{Gateway, QueryApi, SOON, free_port, wait_until};

/// The largest difference in age of the replicas, in seconds. On a busy machine they may lag for some seconds.
const MAX_LAG_S: u64 = 5;

/// A replica without a broker, which has a series of its own too.
struct Replica {
    name: &'static str,
    api: QueryApi,
    sockets: TempDir,
}

impl Replica {
    fn socket(&self) -> PathBuf {
        self.sockets.path().join("statsd.sock")
    }

    fn start(&self, own: u16, [one, other]: [u16; 2], [first, second]: [u16; 2]) -> Gateway {
        Gateway::start(&format!(
            "extensions:
  cluster:
    name: test
    engine:
      direct:
        replicas: [\"127.0.0.1:{one}\", \"127.0.0.1:{other}\"]
        token: secret
        serve: {{endpoint: \"127.0.0.1:{own}\", name: {}, sync_timeout: 1s}}
  admin:
    endpoint: \"127.0.0.1:{}\"
    history: {{peers: {{endpoints: [\"http://127.0.0.1:{first}\", \"http://127.0.0.1:{second}\"]}}}}
receivers:
  partials: {{cluster: cluster, max_lag: {MAX_LAG_S}s}}
  uds: {{datagram: {{path: \"{}\"}}}}
processors:
  aggregate: {{rules: [{{match: {{name: hits}}, by: [], name: local_hits}}]}}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{}\"}}
service:
  extensions: [health_check, cluster, admin]
  pipelines:
    metrics: {{receivers: [partials], exporters: [prometheus]}}
    metrics/local: {{receivers: [uds], processors: [aggregate], exporters: [prometheus]}}
",
            self.name,
            self.api.port(),
            self.socket().display(),
            free_port(),
        ))
    }

    /// The answer to a range query, a sample a second.
    fn range(&self, query: &str, start: u64, end: u64) -> Json {
        let times = [("start", start), ("end", end)].map(|(name, time)| (name, time.to_string()));
        let mut form = vec![("query", query), ("step", "1")];
        form.extend(times.iter().map(|(name, time)| (*name, time.as_str())));
        self.api.api("/api/v1/query_range", &form)
    }
}

fn seconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("after 1970").as_secs()
}

#[test]
fn a_replica_that_starts_again_has_the_history_of_the_other() {
    let replicas = ["a", "b"].map(|name| Replica {
        name,
        api: QueryApi::at(free_port()),
        sockets: tempfile::tempdir().expect("a folder"),
    });
    let (stores, admins) = (
        [free_port(), free_port()],
        [replicas[0].api.port(), replicas[1].api.port()],
    );
    let [first, second] = [0, 1].map(|index| replicas[index].start(stores[index], stores, admins));
    let producer = Producer::start(stores);
    producer.send_total();
    for replica in &replicas {
        send_total(&replica.socket());
        wait_until(SOON, "both series are there", || {
            ["hits_total", "local_hits_total"].iter().all(|name| {
                // A replica that is not ready refuses queries.
                let answer = replica.api.api("/api/v1/query", &[("query", *name)]);
                answer["data"]["result"][0].is_object()
            })
        });
    }
    let counting = Instant::now();
    wait_until(SOON, "some seconds of counts", || {
        producer.send_total();
        counting.elapsed() > Duration::from_secs(MAX_LAG_S + 8)
    });
    first.kill();
    let killed = seconds();
    let again = replicas[0].start(stores[0], stores, admins);
    send_total(&replicas[0].socket());
    // The gap before its own samples: the lag, an interval, and the spread of a pass of the sampler.
    let (from, to) = (killed - MAX_LAG_S - 6, killed - MAX_LAG_S - 3);
    let begins = |query: &str| {
        let answer = replicas[0].range(query, from, to);
        // A replica that is not ready has none.
        let warnings = answer["warnings"].to_string();
        (answer["status"] == "success").then(|| warnings.contains("the history of this gateway begins"))
    };
    wait_until(SOON, "the history of the other replica is there", || {
        producer.send_total();
        let answer = replicas[0].range("hits_total", from, to);
        answer["data"]["result"][0].is_object() && begins("hits_total") == Some(false)
    });
    // A sample may be missing on a busy machine, on both alike.
    for (query, least) in [
        ("hits_total", to - from + 1),
        ("increase(hits_total[4s])", 1),
        ("rate(hits_total[4s])", 1),
    ] {
        let answers = replicas.each_ref().map(|replica| replica.range(query, from, to));
        let [again, other] = answers.each_ref().map(|answer| &answer["data"]["result"]);
        assert_eq!(again, other, "{query}");
        let values = again[0]["values"].as_array().map_or(0, Vec::len);
        assert!(values as u64 >= least, "{query}: {again}");
    }
    replicas[0].api.wait_for_value("local_hits_total", super::TOTAL);
    let local = replicas[0].range("local_hits_total", from, to);
    assert_eq!(
        local["data"]["result"],
        Json::Array(Vec::new()),
        "its own series has no other past"
    );
    wait_until(SOON, "its own samples have begun", || {
        producer.send_total();
        begins("local_hits_total") == Some(true)
    });
    assert_eq!(begins("hits_total"), Some(false));
    // The counter does not fall where the own samples begin.
    replicas[0].api.wait_for_value("resets(hits_total[1m])", 0.0);
    let fetched = |name: &str| again.own_metric(&format!("tidegate_history_fetch{name}_total"), &[]);
    assert!(fetched("ed_series") >= 1.0 && fetched("ed_samples") >= 5.0);
    producer.gateway.stop();
    again.stop();
    second.stop();
}

#[test]
fn a_replica_without_a_peer_answers_and_names_the_reasons() {
    let [admin, page, closed] = [free_port(), free_port(), free_port()];
    let gateway = Gateway::start(&format!(
        "extensions:
  cluster: {{name: test, engine: {{local: {{}}}}}}
  admin:
    endpoint: \"127.0.0.1:{admin}\"
    history: {{peers: {{endpoints: [\"http://127.0.0.1:{admin}\", \"http://127.0.0.1:{closed}\"]}}}}
receivers: {{partials: {{cluster: cluster}}}}
exporters: {{prometheus: {{endpoint: \"127.0.0.1:{page}\"}}}}
service:
  extensions: [health_check, cluster, admin]
  pipelines: {{metrics: {{receivers: [partials], exporters: [prometheus]}}}}
"
    ));
    let failures = || {
        gateway.own_metric(
            "tidegate_history_fetch_failures_total",
            &["reason=\"unreachable\""],
        )
    };
    wait_until(SOON, "the failure is counted", || failures() == 1.0);
    assert_eq!(QueryApi::at(admin).value("vector(1)"), Some(1.0));
    let log = gateway.stop();
    let lines = log
        .lines()
        .filter(|line| line.contains("no peer gives its history"));
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(
        lines[0].contains("WARN") && lines[0].contains(&format!("127.0.0.1:{closed}")),
        "{log}"
    );
    assert!(
        !lines[0].contains(&format!("127.0.0.1:{admin}")),
        "it is not its own peer: {log}"
    );
}
