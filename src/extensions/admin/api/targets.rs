// SPDX-License-Identifier: Apache-2.0

//! The targets of the `prometheus` receivers.

use std::collections::BTreeSet;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use tidegate_promql::{Labels, Query, Selection};

use super::{Api, ApiFailure, PageContent, params};
use crate::component::targets::{Pairs, ScrapePool, ScrapeTarget};
use crate::component::unix_now;
use crate::net::pages::Request;
use crate::prom::duration::PromDuration;

/// Go's text for no time.
const NEVER: &str = "0001-01-01T00:00:00Z";

impl Api {
    /// `targets`: which are scraped, how the last scrape went, and which the rules drop.
    pub(super) fn targets(&self, request: &Request) -> Result<PageContent, ApiFailure> {
        let state = request.get("state").unwrap_or_default().to_ascii_lowercase();
        let wanted = request.get("scrapePool").filter(|pool| !pool.is_empty());
        let (shows_active, shows_dropped) = match &*state {
            "" | "any" => (true, true),
            other => (other == "active", other == "dropped"),
        };
        let pools = self.shared.scrape_pools.list();
        let is_wanted = |pool: &ScrapePool| wanted.is_none_or(|wanted| wanted == pool.name());
        let chosen = || pools.iter().filter(|pool| is_wanted(pool));
        let mut active = Vec::new();
        if shows_active {
            for pool in chosen() {
                let targets = pool.active();
                active.extend(targets.iter().map(|target| shown(pool.name(), target)));
            }
        }
        let (mut dropped, mut counts) = (Vec::new(), Value::Null);
        if shows_dropped {
            let discovered =
                chosen().flat_map(|pool| pool.dropped().0.into_iter().map(|labels| (pool.name(), labels)));
            dropped.extend(
                discovered
                    .map(|(pool, labels)| json!({"discoveredLabels": object(&labels), "scrapePool": pool})),
            );
            let pairs = pools
                .iter()
                .map(|pool| (pool.name().to_owned(), pool.dropped().1.into()));
            counts = Value::Object(pairs.collect());
        }
        Ok(json!({"activeTargets": active, "droppedTargets": dropped, "droppedTargetCounts": counts}).into())
    }

    /// `scrape_pools`: the names of the jobs.
    pub(super) fn pools(&self, _: &Request) -> Result<PageContent, ApiFailure> {
        let pools = self.shared.scrape_pools.list();
        let names: BTreeSet<&str> = pools.iter().map(|pool| pool.name()).collect();
        Ok(json!({"scrapePools": names}).into())
    }

    /// `targets/metadata`: what is known of the metrics of each target.
    pub(super) fn metadata_of_targets(&self, request: &Request) -> Result<PageContent, ApiFailure> {
        let limit = params::number(request, "limit")?.unwrap_or(usize::MAX);
        let metric = request.get("metric").filter(|metric| !metric.is_empty());
        let selection = match request.get("match_target").filter(|text| !text.is_empty()) {
            None => None,
            Some(text) => {
                let query = Query::parse(text).map_err(|error| ApiFailure::from(error).of("match_target"))?;
                let why = || params::invalid("match_target", "it is not a selector");
                Some(query.selection().ok_or_else(why)?)
            }
        };
        let patience = &request.patience;
        self.view
            .refresh_for(unix_now(), &[Selection::everything()], patience)?;
        let known = self.view.about_targets(patience)?;
        let mut all = Vec::new();
        for target in self
            .shared
            .scrape_pools
            .list()
            .iter()
            .flat_map(|pool| pool.active())
        {
            let labels: Labels = target.labels.iter().cloned().collect();
            if selection
                .as_ref()
                .is_some_and(|selection| !selection.accepts(&labels))
            {
                continue;
            }
            let of_target = known.iter().filter(|(job, instance, known)| {
                job == labels.get("job")
                    && instance == labels.get("instance")
                    && metric.is_none_or(|metric| metric == known.name)
            });
            all.extend(of_target.take(limit).map(|(_, _, known)| {
                let mut entry = json!({"target": object(&target.labels), "type": known.kind, "help": known.help, "unit": known.unit});
                if metric.is_none() {
                    entry["metric"] = known.name.clone().into();
                }
                entry
            }));
        }
        Ok(Value::from(all).into())
    }
}

fn shown(pool: &str, target: &ScrapeTarget) -> Value {
    let last = target.last();
    let health = match &last {
        None => "unknown",
        Some(last) if last.error.is_some() => "down",
        Some(_) => "up",
    };
    let (time, duration, error) = match last {
        None => (NEVER.to_owned(), Duration::ZERO, None),
        Some(last) => {
            let time = UNIX_EPOCH + Duration::from_nanos(last.time);
            let time = humantime::format_rfc3339_nanos(time).to_string();
            (time, last.duration, last.error)
        }
    };
    json!({
        "discoveredLabels": object(&target.discovered),
        "labels": object(&target.labels),
        "scrapePool": pool,
        "scrapeUrl": target.url,
        "globalUrl": global(&target.url),
        "lastError": error.unwrap_or_default(),
        "lastScrape": time,
        "lastScrapeDuration": duration.as_secs_f64(),
        "health": health,
        "scrapeInterval": PromDuration(target.interval).to_string(),
        "scrapeTimeout": PromDuration(target.timeout).to_string(),
    })
}

/// The URL as other hosts reach it: a target of this host has this host's name.
fn global(url: &str) -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let local = ["://127.0.0.1", "://localhost", "://[::1]"];
    let found = local.iter().find(|local| url.contains(**local));
    found.map_or_else(
        || url.to_owned(),
        |local| url.replacen(local, &format!("://{host}"), 1),
    )
}

fn object(pairs: &Pairs) -> Map<String, Value> {
    let pairs = pairs.iter();
    pairs
        .map(|(name, value)| (name.clone(), Value::from(value.as_str())))
        .collect()
}
