// SPDX-License-Identifier: Apache-2.0

//! The query language against a real Prometheus that was sent the same samples: values, warnings, infos, and errors with
//! their places.

#[path = "promql/recording.rs"]
mod recording;
#[path = "promql/result.rs"]
mod result;
#[path = "promql/write.rs"]
mod write;

use super::kit::{Prometheus, Release, http};
use recording::{BASE, in_memory, recording};
use result::{Answer, differ};
use serde_json::Value as Json;
use std::collections::HashSet;
use tidegate_promql::{Millis, Options, Query, QuerySeries, Work};

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

/// The answers of both to a query.
struct AnswerPair {
    query: String,
    ours: Answer,
    theirs: Answer,
    /// The samples that the selectors saw, by both.
    seen: (usize, u64),
}

impl AnswerPair {
    fn new(query: String, (ours, work): (Answer, Work), theirs: &Json) -> Self {
        let of_theirs = &theirs["data"]["stats"]["samples"]["totalQueryableSamples"];
        Self {
            query,
            ours,
            theirs: Answer::of_json(theirs),
            seen: (work.seen, of_theirs.as_u64().unwrap_or_default()),
        }
    }

    /// The difference between the answers, if there is one.
    fn difference(&self, orders: &str) -> Option<String> {
        let differ = differ(orders, &self.ours, &self.theirs)?;
        Some(format!("{}: {differ}", self.query))
    }

    /// The difference between the counts of samples.
    fn miscount(&self) -> Option<String> {
        let (ours, theirs) = self.seen;
        let is_alike = u64::try_from(ours).ok() == Some(theirs);
        (!is_alike).then(|| format!("{}: {ours} samples, theirs {theirs}", self.query))
    }
}

fn at_instant(server: &Prometheus, recorded: &Vec<QuerySeries>, query: &str, time: Millis) -> AnswerPair {
    let ours = Query::parse(query).and_then(|query| query.instant_with(recorded, time, &Options::default()));
    let work = ours.as_ref().map(|(_, notes)| notes.work).unwrap_or_default();
    let asked = [("query", query), ("time", &*seconds(time)), ("stats", "all")];
    let theirs = server.api("/api/v1/query", &asked);
    AnswerPair::new(
        format!("{query} at {time}"),
        (Answer::of_instant(ours), work),
        &theirs,
    )
}

fn in_steps(server: &Prometheus, recorded: &Vec<QuerySeries>, query: &str) -> AnswerPair {
    let (start, end, step) = (BASE + 613_600, BASE + 1_170_000, 37_000);
    let ours = Query::parse(query)
        .and_then(|query| query.range_with(recorded, (start, end, step), &Options::default()));
    let work = ours.as_ref().map(|(_, notes)| notes.work).unwrap_or_default();
    let asked = [
        ("query", query),
        ("start", &*seconds(start)),
        ("end", &*seconds(end)),
        ("step", &*seconds(step)),
        ("stats", "all"),
    ];
    let theirs = server.api("/api/v1/query_range", &asked);
    AnswerPair::new(
        format!("{query} in steps"),
        (Answer::of_range(ours), work),
        &theirs,
    )
}

/// The difference between the trees of a query, if there is one.
fn tree(server: &Prometheus, query: &str) -> Option<String> {
    let theirs = server.api("/api/v1/parse_query", &[("query", query)]);
    let ours = match Query::parse(query) {
        Ok(query) => serde_json::from_str(&query.tree()).expect("JSON"),
        Err(_) => Json::Null,
    };
    (ours != theirs["data"]).then(|| format!("the tree of {query}: {ours}\n  theirs {theirs}"))
}

/// Whether a query sees native histograms.
fn is_of_histograms(recorded: &[QuerySeries], query: &str) -> bool {
    let selections = Query::parse(query).map(|query| query.selections());
    let selections = selections.unwrap_or_default();
    let mut native = recorded.iter().filter(|series| !series.histograms.is_empty());
    native.any(|series| selections.iter().any(|asked| asked.accepts(&series.labels)))
}

/// Fails with the first of these.
fn none_of(differences: &[String]) {
    let shown = differences.iter().take(25);
    let shown: Vec<String> = shown.map(|text| text.chars().take(700).collect()).collect();
    assert!(
        differences.is_empty(),
        "{} differ:\n{}",
        differences.len(),
        shown.join("\n")
    );
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
    for query in queries {
        let times = [BASE + 403_900, BASE + 777_100, BASE + 1_203_700];
        let instants = times.map(|time| at_instant(&server, &recorded, query, time));
        let steps = in_steps(&server, &recorded, query);
        let mut found: Vec<String> = instants
            .iter()
            .filter_map(|said| said.difference(query))
            .collect();
        found.extend(steps.difference(""));
        match (known.contains(query), found.is_empty()) {
            (true, true) => differences.push(format!("{query} is listed and differs no more")),
            (true, false) => {}
            (false, _) => differences.extend(found),
        }
        differences.extend(tree(&server, query));
        // A native histogram weighs more or less than in Prometheus.
        if !is_of_histograms(&recorded, query) {
            differences.extend(instants.iter().chain([&steps]).filter_map(AnswerPair::miscount));
        }
    }
    none_of(&differences);
}
