// SPDX-License-Identifier: Apache-2.0

//! The status pages of the gateway.

use std::time::SystemTime;

use serde_json::{Value, json};
use tidegate_promql::{LOOK_BACK_MS, NAME};

use super::{AnnotatedData, Api, ApiFailure, PageContent, explain, graph, params};
use crate::built::{COMMIT, DATE, VERSION};
use crate::component::shared::OwnMetrics;
use crate::component::{Ceiling, unix_now};
use crate::extensions::admin::queues::HEAVY;
use crate::extensions::admin::reload;
use crate::net::pages::Request;
use crate::prom::duration::PromDuration;

impl Api {
    /// The sources of series.
    pub(super) fn explain(&self, request: &Request) -> Result<PageContent, ApiFailure> {
        let selections = Self::selections(request)?;
        if selections.is_empty() {
            return Err(ApiFailure::bad("no match[] parameter provided"));
        }
        let (now, most) = (unix_now(), entries(request)?);
        let found = self.view.found(now, &selections, most, &request.patience)?;
        let mut notes = self.view.query_warnings(now, &selections);
        // A histogram is explained by the name of its metric, which no series has.
        let names = found.iter().map(|found| found.labels.get(NAME));
        names.for_each(|name| notes.forget_unknown(name));
        let mut explained = explain::page(&self.shared, &found, now, most, &request.patience)?;
        let room = most.saturating_sub(explained.len());
        explained.extend(explain::without_value(&self.view, &selections, now, room, most));
        let mut text = self.text(request);
        text.values(explained.into_iter())?;
        Ok(PageContent::Data(AnnotatedData {
            data: text.whole(),
            warnings: notes.warnings(),
            ..AnnotatedData::default()
        }))
    }

    /// The reasons for the number of series.
    pub(super) fn cardinality(&self, request: &Request) -> Result<PageContent, ApiFailure> {
        let most = entries(request)?;
        // To count them takes as much memory as they do.
        let counts_labels = !self.shared.memory.is_over(Ceiling::Soft);
        let page = explain::cardinality_page(&self.view, unix_now(), most, counts_labels, &request.patience)?;
        Ok(page.into())
    }

    /// The clusters that this gateway takes part in, by the id of their extension.
    pub(super) fn clusters(&self, _: &Request) -> Result<PageContent, ApiFailure> {
        let clusters = self.shared.services.clusters().into_iter();
        let status: serde_json::Map<_, _> = clusters.map(|(id, cluster)| (id, cluster.status())).collect();
        Ok(serde_json::Value::from(status).into())
    }

    /// The gateway's own metrics of rings, cells and sockets, in Prometheus's text format.
    pub(super) fn sources(&self, _: &Request) -> Result<PageContent, ApiFailure> {
        let Some(metrics) = self.shared.own_metrics.get() else {
            let why = "no listener shows the gateway's own metrics: set service::telemetry::metrics";
            return Err(ApiFailure::execution(why.to_owned()));
        };
        Ok(lines_of(&(metrics.0)(), OwnMetrics::SOURCES).into())
    }

    /// The gateway's own metrics of the time that processors take, in Prometheus's text format. The text is empty if they are
    /// not measured, or if no listener shows them.
    pub(super) fn durations(&self, _: &Request) -> Result<PageContent, ApiFailure> {
        let metrics = self.shared.own_metrics.get();
        // The text is empty without details, so the metrics need no rendering.
        let metrics = metrics.filter(|_| self.shared.wants_details());
        let all = metrics.map_or_else(String::new, |metrics| (metrics.0)());
        Ok(lines_of(&all, OwnMetrics::DURATIONS).into())
    }

    pub(super) fn build(&self, _: &Request) -> Result<PageContent, ApiFailure> {
        Ok(json!({
            "version": VERSION,
            "application": "tidegate",
            "revision": COMMIT, "branch": "", "buildUser": "", "buildDate": DATE, "goVersion": "",
        })
        .into())
    }

    /// The configuration that runs, without its secrets, and the past reloads.
    pub(super) fn config(&self, _: &Request) -> Result<PageContent, ApiFailure> {
        let overview = self.overview()?;
        let reloads = reload::past(&self.shared);
        Ok(json!({"yaml": overview.config, "reloads": reloads}).into())
    }

    /// The limits of queries, under the names of Prometheus's flags.
    pub(super) fn flags(&self, _: &Request) -> Result<PageContent, ApiFailure> {
        Ok(json!({
            "query.lookback-delta": PromDuration::seconds(LOOK_BACK_MS.unsigned_abs() / 1000).to_string(),
            "query.max-concurrency": HEAVY.to_string(),
            "query.max-samples": self.max_samples().to_string(),
            "query.timeout": PromDuration(self.limits.timeout).to_string(),
        })
        .into())
    }

    /// This process: its start and its directory. Go's own values are missing.
    pub(super) fn runtime(&self, _: &Request) -> Result<PageContent, ApiFailure> {
        let directory = std::env::current_dir().unwrap_or_default();
        let started = humantime::format_rfc3339_nanos(self.started).to_string();
        let past = self.shared.reloads.past();
        let applied = self.shared.reloads.applied_at().unwrap_or(self.started);
        Ok(json!({
            "startTime": started,
            "CWD": directory.display().to_string(),
            "hostname": rustix::system::uname().nodename().to_string_lossy(),
            "serverTime": humantime::format_rfc3339_nanos(SystemTime::now()).to_string(),
            "reloadConfigSuccess": past.first().is_none_or(|result| result.error.is_none()),
            "lastConfigTime": humantime::format_rfc3339_nanos(applied).to_string(),
            "corruptionCount": 0,
        })
        .into())
    }
}

/// The lines of own metrics whose names begin with one of `prefixes`, with the present time.
fn lines_of(all: &str, prefixes: &[&str]) -> Value {
    let is_wanted = |line: &&str| prefixes.iter().any(|prefix| line.starts_with(prefix));
    let lines: Vec<&str> = all.lines().filter(is_wanted).collect();
    json!({"time": graph::seconds(SystemTime::now()), "text": lines.join("\n")})
}

/// The most entries of each list on a page.
fn entries(request: &Request) -> Result<usize, ApiFailure> {
    const DEFAULT: usize = 10;
    const MOST: usize = 10_000;
    let Some(text) = request.get("limit").filter(|text| !text.is_empty()) else {
        return Ok(DEFAULT);
    };
    let number = params::integer(text).ok().filter(|number| *number > 0);
    let number = number.ok_or_else(|| ApiFailure::bad("limit must be a positive number"))?;
    Ok(usize::try_from(number).unwrap_or(MOST).min(MOST))
}
