// SPDX-License-Identifier: Apache-2.0

//! The item counts of all components, as the API of `admin` and the gateway's own metrics show them. Both must be equal.

use super::{Gateway, POLL_INTERVAL, QueryApi, SOON};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Instant;

/// The keys of a component at `/api/v1/status/graph`, and the flows of `tidegate_component_items_total`.
const FLOWS: [(&str, &str); 5] = [
    ("entered", "in"),
    ("made", "made"),
    ("restored", "restored"),
    ("left", "out"),
    ("absorbed", "absorbed"),
];

/// The counts of a receiver.
const RECEIVED: [&str; 3] = ["accepted", "refused", "failed"];

/// The signals, and the last words of the counters of receivers.
const SIGNALS: [(&str, &str); 3] = [
    ("metrics", "metric_points"),
    ("traces", "spans"),
    ("logs", "log_records"),
];

/// The counts of each component and signal (`exporters::otlp logs`), without those that are 0: flows, `held`, the reasons of
/// drops (`dropped rejected`) and the counts of receivers.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Ledgers(BTreeMap<String, BTreeMap<String, u64>>);

impl Ledgers {
    /// Waits until the API and the metrics show the same counts, and the counts of each component add up.
    ///
    /// # Panics
    /// If they never do.
    pub(crate) fn agreed(gateway: &Gateway, admin: u16) -> Self {
        Self::agreed_when(gateway, admin, |_| true)
    }

    /// As [`Self::agreed`], and waits until no component holds items.
    pub(crate) fn at_rest(gateway: &Gateway, admin: u16) -> Self {
        Self::agreed_when(gateway, admin, |all| {
            all.0.values().all(|counts| !counts.contains_key("held"))
        })
    }

    fn agreed_when(gateway: &Gateway, admin: u16, is_wanted: impl Fn(&Self) -> bool) -> Self {
        let started = Instant::now();
        loop {
            let graph = QueryApi::at(admin).get("/api/v1/status/graph", &[]);
            let (api, metrics) = (Self::of_graph(&graph), Self::of_page(&gateway.own_metrics()));
            if api == metrics && api.unbalanced().is_none() && is_wanted(&api) {
                return api;
            }
            assert!(
                started.elapsed() < SOON,
                "the API shows {api:?}, the metrics show {metrics:?}, unbalanced: {:?}",
                api.unbalanced()
            );
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Those of the `data` of `/api/v1/status/graph`.
    pub(crate) fn of_graph(graph: &Value) -> Self {
        let mut all = Self::default();
        for one in graph["components"].as_array().expect("components") {
            let of = format!("{} {}", text(&one["path"]), text(&one["signal"]));
            let keys = FLOWS.into_iter().chain(RECEIVED.map(|name| (name, name)));
            for (key, name) in keys.chain([("held", "held")]) {
                all.add(&of, name, one[key].as_u64().unwrap_or_default());
            }
            for (reason, items) in one["dropped"].as_object().into_iter().flatten() {
                all.add(
                    &of,
                    &format!("dropped {reason}"),
                    items.as_u64().expect("a count"),
                );
            }
        }
        all
    }

    /// Those of a page of the gateway's own metrics.
    pub(crate) fn of_page(page: &str) -> Self {
        let mut all = Self::default();
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let Some((metric, rest)) = line.split_once('{') else {
                continue;
            };
            let of = || format!("{} {}", label(rest, "component"), label(rest, "signal"));
            let value = || {
                let (_, value) = rest.rsplit_once(' ').expect("a value");
                value.parse::<f64>().expect("a number") as u64
            };
            match metric {
                "tidegate_component_items_total" => all.add(&of(), label(rest, "flow"), value()),
                "tidegate_dropped_items_total" => {
                    all.add(&of(), &format!("dropped {}", label(rest, "reason")), value());
                }
                "tidegate_held_items" => all.add(&of(), "held", value()),
                _ => {
                    let words = metric.strip_prefix("otelcol_receiver_");
                    let Some((name, items)) = words.and_then(|words| words.split_once('_')) else {
                        continue;
                    };
                    let signal = SIGNALS.iter().find(|(_, last)| *last == items);
                    if let Some((signal, _)) = signal.filter(|_| RECEIVED.contains(&name)) {
                        let of = format!("receivers::{} {signal}", label(rest, "receiver"));
                        all.add(&of, name, value());
                    }
                }
            }
        }
        all
    }

    /// The counts of a component for a signal that are not 0, by name.
    pub(crate) fn of(&self, component: &str, signal: &str) -> Vec<(&str, u64)> {
        let counts = self.0.get(&format!("{component} {signal}"));
        let counts = counts.into_iter().flatten();
        counts.map(|(name, count)| (name.as_str(), *count)).collect()
    }

    fn add(&mut self, of: &str, name: &str, count: u64) {
        if count > 0 {
            let counts = self.0.entry(of.to_owned()).or_default();
            *counts.entry(name.to_owned()).or_default() += count;
        }
    }

    /// A component for which in + made + restored = out + absorbed + dropped + held does not hold.
    fn unbalanced(&self) -> Option<&str> {
        let is_unbalanced = |counts: &BTreeMap<String, u64>| {
            let (mut came, mut went) = (0, 0);
            for (name, count) in counts {
                match name.as_str() {
                    "in" | "made" | "restored" => came += count,
                    name if RECEIVED.contains(&name) => {}
                    _ => went += count,
                }
            }
            came != went
        };
        let mut all = self.0.iter();
        all.find_map(|(of, counts)| is_unbalanced(counts).then_some(of.as_str()))
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

/// The value of a label; empty without it.
fn label<'a>(line: &'a str, name: &str) -> &'a str {
    let value = line.split_once(&format!("{name}=\""));
    let value = value.and_then(|(_, rest)| rest.split_once('"'));
    value.map_or("", |(value, _)| value)
}
