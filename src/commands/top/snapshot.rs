// SPDX-License-Identifier: Apache-2.0

//! What the gateway answers, and the rows that two answers make.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::edges::{EdgeGroup, connect};

/// A component in one pipeline: class, id, signal, and the pipeline of a processor.
type TopKey = (String, String, String, String);

/// The counters of all components at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct GraphSnapshot {
    /// The read time in seconds since 1970.
    time: f64,
    instance: String,
    /// Processor time of the process since its start, in seconds.
    cpu_seconds: Option<f64>,
    /// Version, uptime and memory; `ready` if the gateway is; scrape targets, if there are any.
    pub(super) summary: Vec<String>,
    /// Why the gateway is not ready.
    pub(super) unready: Option<String>,
    /// The problems of components that can't work: `exporters::otlp: sending to ... fails since ...`.
    pub(super) troubles: Vec<String>,
    pipelines: Vec<Value>,
    components: HashMap<TopKey, Counters>,
}

/// Totals of a component since the start of the gateway.
#[derive(Clone, Debug, Default)]
struct Counters {
    entered: u64,
    left: u64,
    /// The items that left for the next components, without absorbed ones.
    passed: u64,
    held: u64,
    /// In percent.
    fill: Option<f64>,
    /// Median and 99th percentile of recent sends, in seconds.
    latency: [Option<f64>; 2],
    dropped: Vec<(String, u64)>,
    /// Items that the full queue refused.
    refused_by_queue: u64,
}

/// A component of a pipeline.
#[derive(Clone, Debug, Default)]
pub(super) struct TopRow {
    pub(super) class: &'static str,
    pub(super) id: String,
    /// Items per second; `None` without an earlier answer of the same process.
    pub(super) entering: Option<f64>,
    pub(super) leaving: Option<f64>,
    /// Items per second that leave for the next components, without absorbed ones.
    pub(super) passing: Option<f64>,
    pub(super) passed: u64,
    pub(super) total: u64,
    pub(super) held: u64,
    pub(super) fill: Option<f64>,
    /// Median and 99th percentile of recent sends, in seconds.
    pub(super) latency: [Option<f64>; 2],
    pub(super) dropping: Option<f64>,
    pub(super) dropped: u64,
    /// The drops since the start by reason, as text.
    pub(super) reasons: Vec<String>,
    /// Of a receiver: the queues of its exporters that have refused items.
    pub(super) full_queues: Vec<FullQueue>,
}

/// The queue of an exporter that has refused items because it was full.
#[derive(Clone, Debug)]
pub(super) struct FullQueue {
    pub(super) exporter: String,
    /// Items since the start of the gateway, of all receivers.
    pub(super) refused: u64,
    pub(super) part: RefusedPart,
    /// Whether it is full now, or has refused items since the last reading.
    pub(super) is_full: bool,
}

/// What the items that a full queue has refused are part of.
#[derive(Clone, Copy, Debug)]
pub(super) enum RefusedPart {
    /// Of what the receiver has refused.
    OfReceiver,
    /// Of what several receivers have refused.
    OfSeveral,
    /// The receiver counts no refused items.
    Uncounted,
}

/// A pipeline with its components in data order.
#[derive(Clone, Debug)]
pub(super) struct TopGroup {
    pub(super) pipeline: String,
    pub(super) rows: Vec<TopRow>,
}

impl TopRow {
    /// The fill in percent; `-` without a queue.
    pub(super) fn shown_fill(&self) -> String {
        self.fill
            .map_or_else(|| "-".to_owned(), |fill| format!("{fill:.0}%"))
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// `logs` of the pipeline `logs/a`.
fn signal_of(pipeline: &str) -> &str {
    pipeline.split('/').next().unwrap_or_default()
}

/// The counter of the items that a receiver refuses.
const REFUSED: &str = "refused";

/// The lists of a pipeline in data order.
const LISTS: [&str; 3] = ["receivers", "processors", "exporters"];

impl GraphSnapshot {
    pub(super) fn read(page: &Value) -> Self {
        let components = page["components"].as_array().into_iter().flatten();
        let components = components.map(|one| {
            let key = ["class", "id", "signal", "pipeline"].map(|name| text(&one[name]));
            let [class, id, signal, pipeline] = key;
            ((class, id, signal, pipeline), Counters::read(one))
        });
        Self {
            time: page["time"].as_f64().unwrap_or(0.0),
            instance: text(&page["instance"]),
            cpu_seconds: page["process"]["cpuSeconds"].as_f64(),
            summary: summary(page),
            unready: unready(page),
            troubles: troubles(page),
            components: components.collect(),
            pipelines: page["pipelines"].as_array().cloned().unwrap_or_default(),
        }
    }

    /// An earlier answer of the same process.
    fn comparable<'a>(&self, before: Option<&'a Self>) -> Option<&'a Self> {
        before.filter(|before| before.instance == self.instance && before.time < self.time)
    }

    /// The use of processors since `before`, in percent of one of them.
    pub(super) fn cpu(&self, before: Option<&Self>) -> Option<f64> {
        let before = self.comparable(before)?;
        let used = self.cpu_seconds? - before.cpu_seconds?;
        Some(used.max(0.0) / (self.time - before.time) * 100.0)
    }

    /// The pipelines with rates since `before`.
    pub(super) fn groups(&self, before: Option<&Self>) -> Vec<TopGroup> {
        let before = self.comparable(before);
        let group = |pipeline: &Value| {
            let id = text(&pipeline["id"]);
            TopGroup {
                rows: LISTS.map(|list| self.rows(list, pipeline, before)).concat(),
                pipeline: id,
            }
        };
        self.pipelines.iter().map(group).collect()
    }

    /// The edges of the pipelines with rates since `before`.
    pub(super) fn edges(&self, before: Option<&Self>) -> Vec<EdgeGroup> {
        let before = self.comparable(before);
        let group = |pipeline: &Value| {
            let [receivers, processors, exporters] = LISTS.map(|list| self.rows(list, pipeline, before));
            EdgeGroup {
                pipeline: text(&pipeline["id"]),
                edges: connect(&receivers, &processors, &exporters),
            }
        };
        self.pipelines.iter().map(group).collect()
    }

    /// The components of a list of a pipeline.
    fn rows(&self, list: &str, pipeline: &Value, before: Option<&Self>) -> Vec<TopRow> {
        let id = text(&pipeline["id"]);
        let names = pipeline[list].as_array().into_iter().flatten();
        let rows = names.filter_map(|name| self.row(list, &text(name), &id, before));
        rows.collect()
    }

    fn row(&self, list: &str, id: &str, pipeline: &str, before: Option<&Self>) -> Option<TopRow> {
        let signal = signal_of(pipeline);
        let (class, own) = match list {
            "receivers" => ("receiver", ""),
            "processors" => ("processor", pipeline),
            _ => ("exporter", ""),
        };
        let key = |class: &str| (class.to_owned(), id.to_owned(), signal.to_owned(), own.to_owned());
        let found = [class, "connector"].into_iter().find_map(|class| {
            let key = key(class);
            Some((class, self.components.get(&key)?, key))
        });
        let (class, now, key) = found?;
        let old = before.and_then(|before| Some((before.components.get(&key)?, self.time - before.time)));
        let rate = |count: fn(&Counters) -> u64| {
            let (old, seconds) = old?;
            // A counter that fell was reset.
            Some(count(now).checked_sub(count(old))? as f64 / seconds)
        };
        // A receiver does not drop these items: it does not accept them.
        let dropped = if class == "receiver" { "" } else { "dropped: " };
        let reasons = now.dropped.iter();
        let reasons = reasons.map(|(reason, items)| format!("{items} {dropped}{reason}"));
        Some(TopRow {
            class,
            id: id.to_owned(),
            entering: rate(|one| one.entered),
            leaving: rate(|one| one.left),
            passing: rate(|one| one.passed),
            passed: now.passed,
            total: now.entered,
            held: now.held,
            fill: now.fill,
            latency: now.latency,
            dropping: rate(Counters::dropped_total),
            dropped: now.dropped_total(),
            reasons: reasons.collect(),
            full_queues: match class {
                "receiver" => self.full_queues(id, signal, now, before),
                _ => Vec::new(),
            },
        })
    }

    /// The queues that have refused items on the way of a receiver's data.
    fn full_queues(
        &self,
        receiver: &str,
        signal: &str,
        counters: &Counters,
        before: Option<&Self>,
    ) -> Vec<FullQueue> {
        let keys = self.exporters_of(receiver, signal).into_iter();
        let counts_refused = counters.dropped.iter().any(|(reason, _)| reason == REFUSED);
        let queues = keys.filter_map(|key| {
            let now = self.components.get(&key)?;
            let refused = now.refused_by_queue;
            if refused == 0 {
                return None;
            }
            let part = if !counts_refused {
                RefusedPart::Uncounted
            } else if self.has_several_receivers(&key) {
                RefusedPart::OfSeveral
            } else {
                RefusedPart::OfReceiver
            };
            let old = before.and_then(|before| before.components.get(&key));
            let is_refusing = old.is_some_and(|old| old.refused_by_queue < refused);
            Some(FullQueue {
                exporter: key.1,
                refused,
                part,
                is_full: is_refusing || now.fill.is_some_and(|fill| fill >= 100.0),
            })
        });
        queues.collect()
    }

    /// Whether the data of more than one receiver reaches an exporter.
    fn has_several_receivers(&self, exporter: &TopKey) -> bool {
        let receivers = self.components.keys().filter(|(class, ..)| class == "receiver");
        let leads = |(_, id, signal, _): &&TopKey| self.exporters_of(id, signal).contains(exporter);
        receivers.filter(leads).nth(1).is_some()
    }

    /// The exporters that the data of a receiver reaches, also through connectors.
    fn exporters_of(&self, receiver: &str, signal: &str) -> Vec<TopKey> {
        let names = |pipeline: &Value, list: &str| -> Vec<String> {
            let names = pipeline[list].as_array().into_iter().flatten();
            names.map(text).collect()
        };
        let fed_by = |id: &str| {
            let all = self.pipelines.iter();
            let fed = all.filter(|pipeline| names(pipeline, "receivers").iter().any(|name| name == id));
            fed.collect::<Vec<_>>()
        };
        let mut pending = fed_by(receiver);
        pending.retain(|pipeline| signal_of(&text(&pipeline["id"])) == signal);
        let (mut seen, mut found) = (HashSet::new(), Vec::new());
        while let Some(pipeline) = pending.pop() {
            let id = text(&pipeline["id"]);
            let signal = signal_of(&id).to_owned();
            if !seen.insert(id) {
                continue;
            }
            for name in names(pipeline, "exporters") {
                let key = ("exporter".to_owned(), name, signal.clone(), String::new());
                if self.components.contains_key(&key) {
                    found.push(key);
                } else {
                    pending.extend(fed_by(&key.1));
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

impl Counters {
    fn read(one: &Value) -> Self {
        let count = |name: &str| one[name].as_u64().unwrap_or(0);
        if one["class"] == "receiver" {
            let dropped = [REFUSED, "failed"].map(|name| (name.to_owned(), count(name)));
            let dropped: Vec<_> = dropped.into_iter().filter(|(_, items)| *items > 0).collect();
            let lost = dropped
                .iter()
                .fold(0, |sum: u64, (_, items)| sum.saturating_add(*items));
            let left = count("accepted");
            return Self {
                entered: left.saturating_add(lost),
                left,
                passed: left,
                dropped,
                ..Self::default()
            };
        }
        let dropped = one["dropped"].as_object().into_iter().flatten();
        Self {
            entered: count("entered"),
            left: count("left").saturating_add(count("absorbed")),
            passed: count("left"),
            held: count("held"),
            fill: fullest(&one["queue"]),
            latency: ["p50", "p99"].map(|name| one["latency"][name].as_f64()),
            dropped: dropped
                .map(|(reason, items)| (reason.clone(), items.as_u64().unwrap_or(0)))
                .collect(),
            refused_by_queue: one["queue"]["refused"].as_u64().unwrap_or(0),
        }
    }

    fn dropped_total(&self) -> u64 {
        self.dropped
            .iter()
            .fold(0, |sum, (_, items)| sum.saturating_add(*items))
    }
}

/// The fill of a queue in percent; with a queue for each endpoint, that of the fullest one.
fn fullest(queue: &Value) -> Option<f64> {
    let fill = |queue: &Value| {
        let capacity = queue["capacity"].as_f64().filter(|capacity| *capacity > 0.0)?;
        Some(queue["used"].as_f64().unwrap_or(0.0) / capacity * 100.0)
    };
    let endpoints = queue["endpoints"].as_array().into_iter().flatten();
    let fullest = endpoints.filter_map(fill).reduce(f64::max);
    fullest.or_else(|| fill(queue))
}

/// The scrape targets that are up, and all of them; `None` without targets.
fn targets(states: &Value) -> Option<String> {
    let [up, down, unknown] = ["up", "down", "unknown"].map(|state| states[state].as_u64().unwrap_or(0));
    let all = up.saturating_add(down).saturating_add(unknown);
    (all > 0).then(|| format!("targets {up}/{all} up"))
}

fn unready(page: &Value) -> Option<String> {
    page["health"]["reason"].as_str().map(str::to_owned)
}

fn troubles(page: &Value) -> Vec<String> {
    let troubles = page["health"]["troubles"].as_object().into_iter().flatten();
    let troubles = troubles.map(|(component, what)| format!("{component}: {}", text(what)));
    troubles.collect()
}

fn summary(page: &Value) -> Vec<String> {
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let uptime = (number(&page["time"]) - number(&page["started"])).clamp(0.0, 1e12);
    let uptime = humantime::format_duration(std::time::Duration::from_secs(uptime as u64));
    let mib = |value: &Value| value.as_f64().map(|bytes| format!("{:.0}", bytes / 1_048_576.0));
    let used = mib(&page["memory"]["usedBytes"]).unwrap_or_else(|| "-".to_owned());
    let limit = mib(&page["memory"]["limitBytes"]).map_or_else(String::new, |limit| format!(" of {limit}"));
    let version = text(&page["version"]);
    let mut summary = vec![
        format!("version {version}"),
        format!("up {uptime}"),
        format!("memory {used}{limit} MiB"),
    ];
    if unready(page).is_none() {
        summary.push("ready".to_owned());
    }
    summary.extend(targets(&page["targets"]));
    summary
}
