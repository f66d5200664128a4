//! The query language against a real Prometheus that was sent the same samples: values, warnings, infos, and errors with
//! their places.

#[path = "promql/answer.rs"]
mod answer;
#[path = "promql/recording.rs"]
mod recording;
#[path = "promql/write.rs"]
mod write;

use super::kit::{Prometheus, Release, http};
use answer::{Answer, differ};
use recording::{BASE, in_memory, recording};
use std::collections::HashSet;
use tidegate_engine::query::{Millis, Options, Query, QuerySeries};

/// Whole queries, one a line.
const QUERIES: [&str; 10] = [
    include_str!("../data/promql/aggregations.txt"),
    include_str!("../data/promql/errors.txt"),
    include_str!("../data/promql/experimental.txt"),
    include_str!("../data/promql/functions.txt"),
    include_str!("../data/promql/histograms.txt"),
    include_str!("../data/promql/labels.txt"),
    include_str!("../data/promql/native_queries.txt"),
    include_str!("../data/promql/operators.txt"),
    include_str!("../data/promql/queries.txt"),
    include_str!("../data/promql/subqueries.txt"),
];

/// Those whose answers differ, under the reasons.
const DIFFERENCES: &str = include_str!("../data/promql/differences.txt");

fn lines(file: &'static str) -> impl Iterator<Item = &'static str> {
    file.lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with("# "))
}

/// A server that holds the recording.
fn holding(recording: &recording::Recording) -> Prometheus {
    let features = "--enable-feature=promql-experimental-functions,native-histograms";
    let server = Prometheus::start_with(Release::Newest, "{}", &[features]);
    let headers = [
        ("content-type", "application/x-protobuf"),
        ("content-encoding", "snappy"),
    ];
    for body in write::written(recording) {
        let answer = http::request("POST", server.port(), "/api/v1/write", &headers, &body).unwrap();
        assert_eq!(answer.status, 204, "{}", String::from_utf8_lossy(&answer.body));
    }
    server
}

fn seconds(time: Millis) -> String {
    (time as f64 / 1000.0).to_string()
}

fn at_instant(server: &Prometheus, recorded: &Vec<QuerySeries>, query: &str, time: Millis) -> Option<String> {
    let ours = Query::parse(query).and_then(|query| query.instant_with(recorded, time, &Options::default()));
    let ours = Answer::of_instant(ours);
    let asked = [("query", query), ("time", &*seconds(time))];
    let theirs = Answer::of_json(&server.api("/api/v1/query", &asked));
    differ(query, &ours, &theirs).map(|why| format!("{query} at {time}: {why}"))
}

fn in_steps(server: &Prometheus, recorded: &Vec<QuerySeries>, query: &str) -> Option<String> {
    let (start, end, step) = (BASE + 613_600, BASE + 1_170_000, 37_000);
    let ours = Query::parse(query)
        .and_then(|query| query.range_with(recorded, (start, end, step), &Options::default()));
    let ours = Answer::of_range(ours);
    let asked = [
        ("query", query),
        ("start", &*seconds(start)),
        ("end", &*seconds(end)),
        ("step", &*seconds(step)),
    ];
    let theirs = Answer::of_json(&server.api("/api/v1/query_range", &asked));
    differ("", &ours, &theirs).map(|why| format!("{query} in steps: {why}"))
}

#[test]
fn queries_have_the_answers_that_a_real_prometheus_gives() {
    let recording = recording();
    let recorded = in_memory(&recording);
    let server = holding(&recording);
    let known: HashSet<&str> = lines(DIFFERENCES).collect();
    let queries: HashSet<&str> = QUERIES.into_iter().flat_map(lines).collect();
    assert!(queries.len() >= 2000, "{}", queries.len());
    assert!(known.len() < queries.len() / 50 && known.iter().all(|query| queries.contains(query)));
    let mut differences = Vec::new();
    for query in queries.difference(&known) {
        for time in [BASE + 403_900, BASE + 777_100, BASE + 1_203_700] {
            differences.extend(at_instant(&server, &recorded, query, time));
        }
        differences.extend(in_steps(&server, &recorded, query));
    }
    let shown = differences.iter().take(25);
    let shown: Vec<String> = shown.map(|text| text.chars().take(700).collect()).collect();
    assert!(
        differences.is_empty(),
        "{} differ:\n{}",
        differences.len(),
        shown.join("\n")
    );
}
