// SPDX-License-Identifier: Apache-2.0

//! The pages of the API, and which of them cost much.

use serde_json::json;
use tidegate_promql::NAME;

use super::{API, Api, ApiFailure, PageContent, feeds};
use crate::extensions::admin::composites::COMPOSITES;
use crate::extensions::admin::queues::QueryKind;
use crate::extensions::admin::{page, reload, tap};
use crate::net::pages::{Request, Takes};

/// A page of the API.
pub(super) struct Route {
    /// The path below `/api/v1/`; `*` stands for one name.
    path: &'static str,
    takes: Takes,
    pub(super) cost: Cost,
    /// The content of its answer, for the reference.
    about: &'static str,
    pub(super) page: fn(&Api, &Request) -> Result<PageContent, ApiFailure>,
}

/// The cost of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Cost {
    /// The cost of its query.
    Query,
    /// It reads a range or every series.
    Much,
    /// The same with little memory: it is available while memory is short, for diagnosis.
    Diagnosis,
    Little,
}

const fn get(
    path: &'static str,
    cost: Cost,
    about: &'static str,
    page: fn(&Api, &Request) -> Result<PageContent, ApiFailure>,
) -> Route {
    let takes = Takes::Get;
    Route {
        path,
        takes,
        cost,
        about,
        page,
    }
}

const fn form(
    path: &'static str,
    cost: Cost,
    about: &'static str,
    page: fn(&Api, &Request) -> Result<PageContent, ApiFailure>,
) -> Route {
    let takes = Takes::GetOrForm;
    Route {
        path,
        takes,
        cost,
        about,
        page,
    }
}

#[rustfmt::skip]
const ROUTES: &[Route] = &[
    form("query", Cost::Query, "the value of a PromQL expression at one `time`; with `timeout` and `limit`", Api::whole_instant),
    form("query_range", Cost::Much, "the values of a PromQL expression from `start` to `end` at each `step`; with `timeout` and `limit`", Api::range),
    form("format_query", Cost::Little, "a query on one line", Api::format),
    form("parse_query", Cost::Little, "the parts of a query", Api::tree),
    form("query_exemplars", Cost::Much, "the latest exemplars of a query's series, at most 8 a series", Api::exemplars),
    form("series", Cost::Much, "the label sets of the series that `match[]` selects, from `start` to `end`; with `limit`", Api::series),
    form("labels", Cost::Much, "the names of labels; with `match[]`, `start`, `end` and `limit`", Api::names),
    form("history", Cost::Much, "the history of merged series for another replica of a cluster. Its format may change in each version", Api::history),
    get("label/*/values", Cost::Much, "the values of a label; with `match[]`, `start`, `end` and `limit`", Api::values),
    get("metadata", Cost::Much, "type, help and unit of metrics; with `metric` and `limit`", Api::metadata),
    form("explain", Cost::Diagnosis, "the origin of the series that `match[]` selects: rule, owner, state and sources; with `limit` (10)", Api::explain),
    get("rules", Cost::Little, "the groups of the `rules` extension, with the state of each rule and its alerts; with `type`, `rule_name[]`, `rule_group[]`, `file[]`, `match[]` and `exclude_alerts`", Api::rules),
    get("alerts", Cost::Little, "the pending and firing alerts", Api::alerts),
    get("targets", Cost::Little, "the targets of `prometheus` receivers, with the last scrape of each, and at most 1000 dropped targets a job", Api::targets),
    get("targets/metadata", Cost::Much, "type, help and unit of the metrics of each target", Api::metadata_of_targets),
    get("scrape_pools", Cost::Little, "the names of the scrape jobs", Api::pools),
    get("alertmanagers", Cost::Little, "the URLs that alerts are posted to", Api::alertmanagers),
    get("notifications", Cost::Little, "an empty list", |_, _| Ok(json!([]).into())),
    get("status/tsdb", Cost::Diagnosis, "the number of series by metric, label and source; with `limit` (10)", Api::cardinality),
    get("status/buildinfo", Cost::Little, "version, commit and date of the build", Api::build),
    get("status/cluster", Cost::Little, "the clusters, with their producers", Api::clusters),
    get("status/config", Cost::Little, "the merged configuration as YAML without secrets, and the last 20 reloads", Api::config),
    get("status/graph", Cost::Little, "the pipelines, with the counters of each component since the start", Api::graph),
    get("status/health", Cost::Little, "whether the gateway is ready, the troubles of components, and the version", Api::health),
    get("status/durations", Cost::Little, "the gateway's own metrics of the time that processors take, as text", Api::durations),
    get("status/sources", Cost::Little, "the gateway's own metrics of rings, cells and sockets as text", Api::sources),
    get("status/notices", Cost::Little, "probable mistakes in the configuration, by component", |api, _| Ok(json!(api.shared.notices.list()).into())),
    get("status/flags", Cost::Little, "the limits of queries", Api::flags),
    get("status/runtimeinfo", Cost::Little, "start time, directory and host", Api::runtime),
    get("status/walreplay", Cost::Little, "zeros: the gateway replays nothing", |_, _| Ok(json!({"min": 0, "max": 0, "current": 0}).into())),
];

/// The one page of Prometheus that is not below its API.
const FEDERATE: &Route = &get(
    "/federate",
    Cost::Much,
    "the newest values of the series that `match[]` selects as text, for a Prometheus that scrapes them",
    Api::federate,
);

/// The other paths of the endpoint.
const OTHERS: &[(&str, &str)] = &[
    ("/", "the page for people"),
    ("/-/healthy", "200 while the process runs"),
    (
        "/-/ready",
        "200 while the gateway is ready, else 503 with the reason",
    ),
    (
        reload::PATH,
        "reads the configuration again, and answers with the changes or the problems",
    ),
    (COMPOSITES, "all groups of all composites; with `label`"),
    (
        "/api/v1/composites/NAME",
        "the groups of one composite; with `label`, `wait` (at most 60 s) and `seq`",
    ),
    (
        "/api/v1/composites/NAME/watch",
        "the groups of one composite that change, as server-sent events",
    ),
    (
        feeds::PATH,
        "the pages of the status that `topic` names, as server-sent events",
    ),
    (
        tap::PATH,
        "a copy of the items that enter or leave a component; with `component`, `direction`, `pipeline` and `where`",
    ),
];

/// A path of the HTTP API, for the reference.
#[derive(Clone, Debug)]
pub struct ApiPage {
    /// Path. `NAME` stands for a name.
    pub path: String,
    /// The accepted methods: `GET, POST`.
    pub methods: &'static str,
    /// The content of the answer.
    pub about: &'static str,
}

/// Every path of the HTTP API, in alphabetical order.
pub fn api_pages() -> Vec<ApiPage> {
    let queries = ROUTES.iter().map(|route| {
        let path = format!("{API}{}", route.path.replace('*', "NAME"));
        (path, route.about)
    });
    let others = OTHERS.iter().map(|(path, about)| ((*path).to_owned(), *about));
    let federate = (FEDERATE.path.to_owned(), FEDERATE.about);
    let mut pages: Vec<_> = queries
        .chain(others)
        .chain([federate])
        .map(|(path, about)| ApiPage {
            methods: methods(takes(&path)),
            path,
            about,
        })
        .collect();
    pages.sort_by(|a, b| a.path.cmp(&b.path));
    pages
}

fn methods(takes: Takes) -> &'static str {
    match takes {
        Takes::Paths => "GET, HEAD",
        Takes::Forms => "GET, HEAD, POST",
        Takes::Get => "GET",
        Takes::GetOrForm => "GET, POST",
        Takes::Post => "POST",
    }
}

impl Route {
    /// Whether its answer depends on the values of series, which may not be complete yet.
    pub(super) fn reads_data(&self) -> bool {
        match self.cost {
            Cost::Query | Cost::Much => true,
            Cost::Diagnosis | Cost::Little => false,
        }
    }

    /// The kind of query that a request for it is.
    pub(super) fn kind(&self, request: &Request) -> QueryKind {
        match self.cost {
            Cost::Much | Cost::Diagnosis => QueryKind::Heavy,
            Cost::Query if seems_heavy(request.get("query").unwrap_or_default()) => QueryKind::Heavy,
            Cost::Query | Cost::Little => QueryKind::Light,
        }
    }

    pub(super) fn at(path: &str) -> Option<&'static Self> {
        if path == FEDERATE.path {
            return Some(FEDERATE);
        }
        let path = path.strip_prefix(API)?;
        ROUTES.iter().find(|route| match route.path.split_once('*') {
            None => route.path == path,
            Some((before, behind)) => path
                .strip_prefix(before)
                .and_then(|rest| rest.strip_suffix(behind))
                .is_some_and(|name| !name.is_empty() && !name.contains('/')),
        })
    }
}

/// The requests that a page accepts.
pub(in crate::extensions::admin) fn takes(path: &str) -> Takes {
    match Route::at(path) {
        Some(route) => route.takes,
        None if path == reload::PATH => Takes::Post,
        None if path == tap::PATH => Takes::GetOrForm,
        None if path == feeds::PATH => Takes::Get,
        None if path.starts_with("/-/") || page::is_here(path) => Takes::Paths,
        None => Takes::Forms,
    }
}

/// Whether a query looks like one with a subquery (`[5m:1s]`), or with a selector of more than one metric (`{job="a"}`). To
/// parse it takes too long for a thread of the runtime.
fn seems_heavy(query: &str) -> bool {
    let brackets = query.split('[').skip(1);
    let mut inside = brackets.map(|rest| rest.split(']').next().unwrap_or_default());
    let has_subquery = inside.any(|range| range.contains(':'));
    let is_named = |before: &str| {
        let last = before.trim_end().chars().next_back();
        last.is_some_and(|last| last.is_ascii_alphanumeric() || "_:".contains(last))
    };
    let mut before_braces = query
        .match_indices('{')
        .map(|(at, _)| query.get(..at).unwrap_or_default());
    has_subquery || query.contains(NAME) || before_braces.any(|before| !is_named(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_has_every_path_once_with_its_methods() {
        let pages = api_pages();
        assert_eq!(pages.len(), ROUTES.len() + OTHERS.len() + 1);
        assert!(pages.windows(2).all(|two| two[0].path < two[1].path));
        let of = |path: &str| pages.iter().find(|page| page.path == path).unwrap().methods;
        assert_eq!(of("/api/v1/query"), "GET, POST");
        assert_eq!(of("/api/v1/label/NAME/values"), "GET");
        assert_eq!(of("/-/reload"), "POST");
    }

    #[test]
    fn heavy_queries_are_distinguished_from_light_ones() {
        for light in [
            "1",
            "sum by (model) (queue_depth)",
            "rate(agent_tx_bytes_total{node=\"a:1\"}[5m])",
            "vllm:waiting {a=\"b\"} / 2",
        ] {
            assert!(!seems_heavy(light), "{light}");
        }
        for heavy in [
            "max_over_time(m[10m:1s])",
            "sum(x[5m]) + max_over_time(y[1h:])",
            "{__name__=~\".+\"}",
            "count({job=\"a\"})",
            "m{__name__=~\"a|b\"}",
            "{\"my.metric\"}",
        ] {
            assert!(seems_heavy(heavy), "{heavy}");
        }
    }
}
