// SPDX-License-Identifier: Apache-2.0

//! Every endpoint, asked as clients ask it.

use std::time::{Duration, Instant};

use super::*;

/// The part of an answer in which both must agree: the whole text of errors and of lists that do not depend on time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    /// Status and every word.
    Equal,
    /// Status, type of error and the shape of the data.
    Shape,
    /// Status and type of error.
    Kind,
}

use Comparison::{Equal, Kind, Shape};

/// Requests to both.
const ASKED: &[(Comparison, &str, &str)] = &[
    // Grafana: the test of a data source, variables, explore, panels.
    (Shape, "POST", "/api/v1/query?query=1%2B1&time=1795402800"),
    (Shape, "GET", "/api/v1/query?query=requests_total"),
    (Shape, "POST", "/api/v1/query?query=sum(requests_total)"),
    (Shape, "GET", "/api/v1/query?query=requests_total[1m]"),
    (Equal, "GET", "/api/v1/query?query=\"text\"&time=5"),
    (Equal, "GET", "/api/v1/query?query=7&time=5"),
    (Equal, "GET", "/api/v1/query?query=nothing&time=5"),
    (Equal, "GET", "/api/v1/labels"),
    (Equal, "POST", "/api/v1/labels?match[]=depth"),
    (Equal, "GET", "/api/v1/label/zone/values"),
    (Equal, "GET", "/api/v1/label/zone/values?match[]=depth"),
    (Equal, "GET", "/api/v1/label/U__zone/values"),
    (Equal, "GET", "/api/v1/label/a.b/values"),
    (Equal, "GET", "/api/v1/label/job/values?limit=1"),
    (Equal, "GET", "/api/v1/label/zone/values?limit=1"),
    (Equal, "GET", "/api/v1/label/zone/values?limit=3"),
    (Equal, "GET", "/api/v1/labels?limit=1"),
    (Equal, "POST", "/api/v1/series?match[]=depth"),
    (Equal, "GET", "/api/v1/series?match[]=requests_total&limit=2"),
    (Equal, "GET", "/api/v1/metadata?metric=depth"),
    (Equal, "GET", "/api/v1/metadata?metric=nothing"),
    (Equal, "GET", "/api/v1/metadata?limit=0"),
    (Equal, "GET", "/api/v1/metadata?limit=x"),
    (Equal, "GET", "/api/v1/metadata?limit_per_metric=x"),
    (Equal, "GET", "/api/v1/rules"),
    (Equal, "GET", "/api/v1/rules?type=alert"),
    (Equal, "GET", "/api/v1/rules?type=x"),
    (Equal, "GET", "/api/v1/alerts"),
    (Equal, "GET", "/api/v1/alertmanagers"),
    (Equal, "GET", "/api/v1/notifications"),
    (Shape, "GET", "/api/v1/status/buildinfo"),
    (Shape, "GET", "/api/v1/targets"),
    (Shape, "GET", "/api/v1/targets?state=active"),
    (Equal, "GET", "/api/v1/targets?state=dropped"),
    (Equal, "GET", "/api/v1/targets?state=x"),
    (Equal, "GET", "/api/v1/targets?scrapePool=x"),
    (Equal, "GET", "/api/v1/scrape_pools"),
    (Shape, "GET", "/api/v1/targets/metadata"),
    (Equal, "GET", "/api/v1/targets/metadata?metric=depth"),
    (
        Equal,
        "GET",
        "/api/v1/targets/metadata?match_target={job=\"nope\"}",
    ),
    (Kind, "GET", "/api/v1/targets/metadata?match_target=x%2B1"),
    (Equal, "GET", "/api/v1/targets/metadata?limit=x"),
    // It lists reloads too.
    (Kind, "GET", "/api/v1/status/config"),
    (Kind, "GET", "/api/v1/status/flags"),
    (Kind, "GET", "/api/v1/status/runtimeinfo"),
    (Equal, "GET", "/api/v1/status/walreplay"),
    (Equal, "GET", "/api/v1/query_exemplars?query=depth"),
    (Equal, "GET", "/api/v1/query_exemplars?query=1"),
    (Equal, "POST", "/api/v1/query_exemplars?query=depth&start=4&end=2"),
    (Equal, "GET", "/api/v1/query_exemplars?query=depth&start=x"),
    (Kind, "GET", "/api/v1/query_exemplars"),
    // Empty, bad or out-of-bounds parameters.
    (Equal, "GET", "/api/v1/query?query=1&time=abc"),
    (Equal, "GET", "/api/v1/query?query=1&time=2026-11-23 05:00:00"),
    (
        Equal,
        "GET",
        "/api/v1/query?query=1&time=2026-11-23T05:00:00%2B02:00",
    ),
    (
        Equal,
        "GET",
        "/api/v1/query?query=1&time=2026-11-23T05:00:00.5-11:30",
    ),
    (Shape, "GET", "/api/v1/query?query=1&time="),
    (Equal, "GET", "/api/v1/query?query=1&limit=x"),
    (Equal, "GET", "/api/v1/query?query=1&limit=-1"),
    (Equal, "GET", "/api/v1/query?query=1&limit=99999999999999999999"),
    (Shape, "GET", "/api/v1/query?query=requests_total&limit=2"),
    (Shape, "GET", "/api/v1/query?query=requests_total&limit=3"),
    (Shape, "GET", "/api/v1/query?query=requests_total[1m]&limit=2"),
    (Equal, "GET", "/api/v1/query?query=1&timeout=x"),
    (Shape, "GET", "/api/v1/query?query=1&timeout=1y"),
    (Equal, "GET", "/api/v1/query?query=1&lookback_delta=x"),
    (Shape, "GET", "/api/v1/query?query=depth&lookback_delta=1m"),
    (Equal, "GET", "/api/v1/query_range?query=1&start=1&end=3&step=1"),
    (
        Equal,
        "GET",
        "/api/v1/query_range?query=1&start=1&end=63072001&step=1y",
    ),
    (Equal, "GET", "/api/v1/query_range?query=1&start=1&end=2&step=1M"),
    (
        Equal,
        "GET",
        "/api/v1/query_range?query=1&start=1&end=2&step=1month",
    ),
    (Equal, "GET", "/api/v1/query_range?query=1&start=1&end=2"),
    (Equal, "GET", "/api/v1/query_range?query=1&end=2"),
    (Equal, "GET", "/api/v1/query_range?query=1&start=1"),
    (Equal, "GET", "/api/v1/query_range?query=1&start=4&end=2&step=1"),
    (Equal, "GET", "/api/v1/query_range?query=1&start=4&end=6&step=0"),
    (Equal, "GET", "/api/v1/query_range?query=1&start=4&end=6&step=-1"),
    (
        Equal,
        "GET",
        "/api/v1/query_range?query=1&start=4&end=20000000&step=1",
    ),
    (
        Equal,
        "GET",
        "/api/v1/query_range?query=1&start=1&end=2&step=1&limit=x",
    ),
    (
        Equal,
        "GET",
        "/api/v1/query_range?query=1&start=1&end=2&step=1e30",
    ),
    (Equal, "GET", "/api/v1/query"),
    (Equal, "GET", "/api/v1/query?query=sum("),
    (Equal, "GET", "/api/v1/query?query=foo bar"),
    (
        Equal,
        "GET",
        "/api/v1/query?query=depth&lookback_delta=1ms&time=5",
    ),
    (
        Equal,
        "GET",
        "/api/v1/query_range?query=depth[5m]&start=1&end=2&step=1",
    ),
    (Equal, "GET", "/api/v1/series"),
    (Equal, "GET", "/api/v1/series?match[]=depth&start=abc"),
    (Equal, "GET", "/api/v1/series?match[]=depth&end=abc"),
    (Equal, "GET", "/api/v1/series?match[]=depth&limit=x"),
    (Equal, "GET", "/api/v1/series?match[]=depth&start=4&end=2"),
    (Equal, "GET", "/api/v1/series?match[]=depth&start=0&end=1"),
    (Equal, "GET", "/api/v1/labels?start=0&end=1"),
    (Equal, "GET", "/api/v1/label/zone/values?start=0&end=1"),
    (
        Equal,
        "GET",
        "/api/v1/label/zone/values?start=1970-01-01T00:00:00Z",
    ),
    (Equal, "GET", "/api/v1/labels?limit=-1"),
    (Equal, "GET", "/api/v1/labels?end=x"),
    (Kind, "GET", "/api/v1/series?match[]=depth%2B1"),
    (Equal, "GET", "/api/v1/status/tsdb?limit=x"),
    (Equal, "GET", "/api/v1/status/tsdb?limit=0"),
    (Equal, "GET", "/api/v1/format_query?query=sum(up)by(job)"),
    (Equal, "POST", "/api/v1/format_query?query=rate(x{a=\"b\"}[5m])>1"),
    (Equal, "GET", "/api/v1/format_query?query=sum("),
    (Equal, "GET", "/api/v1/format_query"),
    (Equal, "GET", "/api/v1/parse_query?query=sum(up)by(job)"),
    (
        Equal,
        "POST",
        "/api/v1/parse_query?query=-rate(x{a=\"b\"}[5m])>bool 1",
    ),
    (Equal, "GET", "/api/v1/parse_query?query=sum("),
    (Equal, "GET", "/api/v1/parse_query"),
    (Shape, "GET", "/api/v1/query?query=depth&stats=all"),
    (Shape, "POST", "/api/v1/query?query=depth&stats=x"),
    (Equal, "GET", "/api/v1/query?query=7&time=5&stats="),
    (
        Shape,
        "GET",
        "/api/v1/query?query=rate(requests_total[1m])&stats=1",
    ),
    (
        Shape,
        "GET",
        "/api/v1/query_range?query=1&start=1&end=3&step=1&stats=all",
    ),
    (Equal, "GET", "/api/v1/query?query=quantile(2,depth)*0>1"),
    (Kind, "GET", "/federate?match[]=depth"),
    (Kind, "POST", "/federate?match[]=depth"),
    // Methods.
    (Kind, "PUT", "/api/v1/query?query=1"),
    (Kind, "PUT", "/api/v1/parse_query?query=1"),
    (Kind, "HEAD", "/api/v1/query?query=1"),
    (Kind, "POST", "/api/v1/label/zone/values"),
    (Kind, "POST", "/api/v1/metadata"),
    (Kind, "POST", "/api/v1/rules"),
    (Kind, "OPTIONS", "/api/v1/query"),
    (Kind, "GET", "/api/v1/nothing"),
    (Kind, "GET", "/-/healthy"),
    (Kind, "HEAD", "/-/ready"),
    (Kind, "POST", "/-/healthy"),
];

/// Where the two may differ, and why. Beside these, `otel_scope_*` labels are omitted from the comparison: OTLP has scopes,
/// Prometheus does not.
const ALLOWED: &[(&str, &str)] = &[
    (
        "/api/v1/status/buildinfo",
        "`application` tells data sources that this is not Prometheus",
    ),
    (
        "/api/v1/query?query=nothing&time=5",
        "a warning says that no metric of this name is known",
    ),
    (
        "/api/v1/query?query=requests_total[1m]",
        "a warning says where the history of the gateway begins",
    ),
    (
        "/api/v1/query?query=depth&lookback_delta=1ms&time=5",
        "a warning says where the history of the gateway begins",
    ),
    (
        "/api/v1/query?query=rate(requests_total[1m])&stats=1",
        "a warning says where the history of the gateway begins",
    ),
    (
        "/api/v1/labels",
        "`target_info` has the attributes of the target, such as `server_port`",
    ),
];

/// The part of an answer that is compared.
fn seen(comparison: Comparison, answer: &Response) -> String {
    let mut json: Json = serde_json::from_slice(&answer.body).unwrap_or_default();
    leave_out_scopes(&mut json);
    let said = match comparison {
        Equal => json.to_string(),
        Shape => shape(&json),
        // Prometheus itself has plain text for paths and methods that it does not know.
        Kind if matches!(answer.status, 404 | 405) => String::new(),
        Kind => json["errorType"].to_string(),
    };
    format!("{} {said}", answer.status)
}

#[test]
fn every_endpoint_answers_as_prometheus_does() {
    let both = start();
    let (begun, mut wrong) = (Instant::now(), Vec::new());
    for (comparison, method, path) in ASKED {
        let asked =
            || [both.admin, both.server.port()].map(|port| seen(*comparison, &ask(port, method, path, "")));
        let [mut ours, mut theirs] = asked();
        let is_allowed = ALLOWED.iter().any(|(allowed, _)| allowed == path);
        // On a busy machine a scrape may be late. Its series are away until the next one.
        while begun.elapsed() < SOON && (ours == theirs) == is_allowed {
            std::thread::sleep(Duration::from_millis(100));
            [ours, theirs] = asked();
        }
        if (ours == theirs) == is_allowed {
            wrong.push(format!(
                "{method} {path} ({comparison:?}, allowed: {is_allowed})\n  ours   {ours}\n  theirs {theirs}"
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        ASKED.len(),
        wrong.join("\n")
    );
    both.gateway.stop();
}
