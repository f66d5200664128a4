// SPDX-License-Identifier: Apache-2.0

//! The pages of the API, and which of them cost much.

use serde_json::json;
use tidegate_promql::NAME;

use super::{API, Api, ApiFailure, PageContent, feeds};
use crate::extensions::admin::queues::QueryKind;
use crate::extensions::admin::{page, reload, tap};
use crate::net::pages::{Request, Takes};

/// A page of the API.
pub(super) struct Route {
    /// The path below `/api/v1/`; `*` stands for one name.
    path: &'static str,
    takes: Takes,
    pub(super) cost: Cost,
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
    page: fn(&Api, &Request) -> Result<PageContent, ApiFailure>,
) -> Route {
    let takes = Takes::Get;
    Route {
        path,
        takes,
        cost,
        page,
    }
}

const fn form(
    path: &'static str,
    cost: Cost,
    page: fn(&Api, &Request) -> Result<PageContent, ApiFailure>,
) -> Route {
    let takes = Takes::GetOrForm;
    Route {
        path,
        takes,
        cost,
        page,
    }
}

const ROUTES: &[Route] = &[
    form("query", Cost::Query, Api::whole_instant),
    form("query_range", Cost::Much, Api::range),
    form("format_query", Cost::Little, Api::format),
    form("parse_query", Cost::Little, Api::tree),
    form("query_exemplars", Cost::Much, Api::exemplars),
    form("series", Cost::Much, Api::series),
    form("labels", Cost::Much, Api::names),
    form("history", Cost::Much, Api::history),
    get("label/*/values", Cost::Much, Api::values),
    get("metadata", Cost::Much, Api::metadata),
    form("explain", Cost::Diagnosis, Api::explain),
    get("rules", Cost::Little, Api::rules),
    get("alerts", Cost::Little, Api::alerts),
    get("targets", Cost::Little, Api::targets),
    get("targets/metadata", Cost::Much, Api::metadata_of_targets),
    get("scrape_pools", Cost::Little, Api::pools),
    get("alertmanagers", Cost::Little, Api::alertmanagers),
    get("notifications", Cost::Little, |_, _| Ok(json!([]).into())),
    get("status/tsdb", Cost::Diagnosis, Api::cardinality),
    get("status/buildinfo", Cost::Little, Api::build),
    get("status/cluster", Cost::Little, Api::clusters),
    get("status/config", Cost::Little, Api::config),
    get("status/graph", Cost::Little, Api::graph),
    get("status/durations", Cost::Little, Api::durations),
    get("status/sources", Cost::Little, Api::sources),
    get("status/notices", Cost::Little, |api, _| {
        Ok(json!(api.shared.notices.list()).into())
    }),
    get("status/flags", Cost::Little, Api::flags),
    get("status/runtimeinfo", Cost::Little, Api::runtime),
    get("status/walreplay", Cost::Little, |_, _| {
        Ok(json!({"min": 0, "max": 0, "current": 0}).into())
    }),
];

/// The one page of Prometheus that is not below its API.
const FEDERATE: &Route = &get("/federate", Cost::Much, Api::federate);

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
