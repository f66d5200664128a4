// SPDX-License-Identifier: Apache-2.0

//! The figures of a run: a row for each, as text and as numbers.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::Cluster;
use super::bounds::{outcome, start_bound};
use super::broker::Broker;
use super::faults::{Event, FaultInjector};
use super::fleet::AgentAct;
use super::member::Member;
use super::options::{EngineChoice, Options};
use super::prometheus::Resets;
use super::reader::ReadResult;
use super::rows::ROWS;
use super::schedule::Fault;
use crate::stats::Samples;

/// The figures of a run with one number of agents.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// The rows of the table.
    pub(super) rows: Vec<(String, String)>,
    /// The same for programs.
    pub(super) numbers: Map<String, Value>,
    time: Duration,
}

impl Figures {
    /// The figures of the time with faults.
    pub(super) fn of(cluster: &Cluster, options: &Options, time: Duration, faults: &FaultInjector) -> Self {
        let mut figures = Self {
            time,
            ..Self::default()
        };
        let (living, agents) = cluster.fleet.model.lock().agents();
        figures.add(
            "time with faults",
            format!("{:.0} s", time.as_secs_f64()),
            &[("seconds", json!(time.as_secs_f64()))],
        );
        figures.add(
            "agents: at a time, of all names",
            format!("{living}, {agents}"),
            &[("agents", json!(living)), ("agent_names", json!(agents))],
        );
        let (interval, updates) = (options.interval.as_secs_f64(), options.updates.as_secs_f64());
        figures.add(
            "series of an agent; interval of pages, of counts",
            format!("{}; {interval}, {updates} s", ROWS.len()),
            &[
                ("series_of_an_agent", json!(ROWS.len())),
                ("interval_seconds", json!(interval)),
                ("updates_seconds", json!(updates)),
            ],
        );
        for (event, count) in &faults.counts {
            let (name, key) = describe(*event);
            figures.add(name, count.to_string(), &[(key, json!(count))]);
        }
        figures.add_kill_times(faults);
        figures.add_members(cluster);
        figures.add_sent(cluster);
        figures.add_replicas(cluster, options);
        figures
    }

    /// Adds a row, and its numbers under their keys.
    pub(super) fn add(&mut self, name: &str, text: String, numbers: &[(&str, Value)]) {
        self.rows.push((name.to_owned(), text));
        let numbers = numbers.iter().cloned();
        self.numbers
            .extend(numbers.map(|(key, number)| (key.to_owned(), number)));
    }

    /// The mean times between two kills, without the rest around a `put-back`.
    fn add_kill_times(&mut self, faults: &FaultInjector) {
        let exposed = faults.exposed.as_secs_f64();
        for (fault, killed, key) in [
            (Fault::KillReplica, "a replica", "replica_kill_period_seconds"),
            (Fault::KillServer, "a broker", "broker_kill_period_seconds"),
        ] {
            let count = faults
                .counts
                .get(&Event::Fault(fault))
                .copied()
                .unwrap_or_default();
            if count > 0 {
                let period = exposed / count as f64;
                self.add(
                    &format!("mean time between two kills of {killed}, except around a `put-back`"),
                    format!("{period:.1} s"),
                    &[(key, json!(period))],
                );
            }
        }
    }

    fn add_members(&mut self, cluster: &Cluster) {
        if let Some(producer) = &cluster.producer {
            self.add_usage(&producer.member);
        }
        for broker in &cluster.brokers {
            self.add_usage(&broker.member);
        }
        for replica in &cluster.replicas {
            self.add_usage(&replica.member);
        }
    }

    fn add_usage(&mut self, member: &Member) {
        let (usage, name) = (member.usage(), &member.name);
        let (cores, resident, peak) = (usage.cores(), usage.resident_mib, usage.peak_mib);
        self.add(
            &format!("{name}: cores, resident memory, peak"),
            format!("{cores:.3}, {resident:.1}, {peak:.1} MiB"),
            &[
                (&format!("{name}_cores"), json!(cores)),
                (&format!("{name}_resident_mib"), json!(resident)),
                (&format!("{name}_peak_mib"), json!(peak)),
            ],
        );
    }

    fn add_sent(&mut self, cluster: &Cluster) {
        let sent = cluster.fleet.model.lock().sent();
        let (sent_bytes, connections) = cluster.fleet.sent();
        let stored = cluster.brokers.iter().find_map(Broker::stored_bytes);
        let bytes = stored.unwrap_or(sent_bytes);
        let rate = |count: u64| count as f64 / self.time.as_secs_f64();
        let (pages, raw, packed) = (rate(sent.stored), rate(sent.bytes), rate(bytes));
        self.add(
            "runs of agents",
            sent.runs.to_string(),
            &[("runs", json!(sent.runs))],
        );
        self.add(
            "messages stored",
            format!("{pages:.0}/s"),
            &[("messages_per_second", json!(pages))],
        );
        self.add(
            "bytes of pages, compressed",
            format!("{:.0}, {:.0} kB/s", raw / 1e3, packed / 1e3),
            &[
                ("bytes_per_second", json!(raw)),
                ("compressed_bytes_per_second", json!(packed)),
            ],
        );
        self.add(
            "messages that the store did not take, late pages",
            format!("{}, {}", sent.failed, sent.late),
            &[
                ("failed_messages", json!(sent.failed)),
                ("late_pages", json!(sent.late)),
            ],
        );
        self.add(
            "connections of agents to the store",
            connections.to_string(),
            &[("connections", json!(connections))],
        );
    }

    fn add_replicas(&mut self, cluster: &Cluster, options: &Options) {
        let folded: f64 = cluster.replicas.iter().map(|replica| replica.folded).sum();
        self.add(
            "runs folded by replicas that were killed",
            folded.to_string(),
            &[("folded_runs", json!(folded))],
        );
        // Without faults, replicas start before the store has anything.
        if !options.faults.is_empty() {
            let name = "start of a replica until it is ready: p50, max";
            self.add_starts(name, "catch_up", &starts(cluster));
        }
    }

    /// Adds the times from the start of a replica until it was ready, in seconds.
    fn add_starts(&mut self, name: &str, key: &str, starts: &Samples) {
        let (median, max, count) = (starts.median(), starts.max(), starts.count());
        self.add(
            name,
            format!("{median:.2}, {max:.2} s, of {count}"),
            &[
                (&format!("{key}_p50_seconds"), json!(median)),
                (&format!("{key}_max_seconds"), json!(max)),
                (&format!("{key}s"), json!(count)),
            ],
        );
    }

    /// The starts of replicas at the end, when the store has the series of all agents. A calm run above the bound fails.
    pub(super) fn add_full_starts(&mut self, cluster: &Cluster, agents: usize, options: &Options) {
        let starts = starts(cluster);
        let name = "start with all series in the store until ready: p50, max";
        self.add_starts(name, "full_catch_up", &starts);
        if let Some(bound) = start_bound(agents, options) {
            let (bound, max) = (bound.as_secs_f64(), starts.max());
            let holds = max <= bound;
            self.add(
                "bound of this start",
                format!("{bound:.2} s: {}", outcome(holds)),
                &[
                    ("full_catch_up_bound_seconds", json!(bound)),
                    ("full_catch_up_bound_holds", json!(holds)),
                ],
            );
            if !holds {
                cluster.violations.add(format!(
                    "a start with all series in the store took {max:.2} s, and the bound is {bound:.2} s"
                ));
            }
        }
    }

    /// The time before the reader began.
    pub(super) fn add_warm_up(&mut self, time: Duration) {
        if !time.is_zero() {
            self.add(
                "time before the reader begins",
                format!("{:.0} s", time.as_secs_f64()),
                &[("warm_up_seconds", json!(time.as_secs_f64()))],
            );
        }
    }

    /// What a write to the disk took before the run.
    pub(super) fn add_write(&mut self, write: Duration, options: &Options) {
        let milliseconds = write.as_secs_f64() * 1e3;
        let waits = match (&options.engine, options.syncs) {
            _ if options.namespaces => "in memory",
            (EngineChoice::Nats(_), true) => "for each message",
            (EngineChoice::Nats(_), false) => "every 2 min",
            _ => "by the engine",
        };
        self.add(
            "a write to the disk before the run; servers write",
            format!("{milliseconds:.2} ms; {waits}"),
            &[("disk_write_seconds", json!(write.as_secs_f64()))],
        );
    }

    /// What is known when replicas have been killed for the last time.
    pub(super) fn add_end(&mut self, cluster: &Cluster, samples: usize) {
        self.add(
            "samples of a page",
            samples.to_string(),
            &[("samples_of_a_page", json!(samples))],
        );
        let restored: f64 = cluster.replicas.iter().map(|replica| replica.restored).sum();
        self.add(
            "records that replicas put back into the store",
            restored.to_string(),
            &[("restored_records", json!(restored))],
        );
    }

    /// The figures of the reader.
    pub(super) fn add_read(&mut self, read: &ReadResult) {
        let ReadResult {
            answered,
            refused,
            failed,
            missed,
            lower,
            ..
        } = read;
        self.add(
            "pages answered, with 503, not answered",
            format!("{answered}, {refused}, {failed}"),
            &[
                ("pages_answered", json!(answered)),
                ("pages_refused", json!(refused)),
                ("pages_failed", json!(failed)),
            ],
        );
        self.add(
            "pages older than another one, within `max_lag`",
            lower.to_string(),
            &[("pages_older_within_max_lag", json!(lower))],
        );
        self.add(
            "rounds without a page",
            missed.to_string(),
            &[("rounds_without_a_page", json!(missed))],
        );
        let gap = read.longest_gap.as_secs_f64();
        self.add(
            "longest time without a page",
            format!("{gap:.1} s"),
            &[("longest_gap_seconds", json!(gap))],
        );
        let stalest = format!(" ({})", read.stalest);
        self.add_ages("a page", "staleness", &read.staleness, &stalest);
        let ages: Vec<_> = read.composite_ages.iter().map(|age| age.seconds).collect();
        self.add_ages("a composite of 10 s", "composite_age", &ages, "");
    }

    /// Adds the ages of what a page or a composite shows, in seconds, if there are any. `note` belongs to the highest one.
    fn add_ages(&mut self, shown: &str, key: &str, ages: &[f64], note: &str) {
        if ages.is_empty() {
            return;
        }
        let ages = Samples::new(ages.iter().copied());
        let ([p50, p99], max) = ([0.5, 0.99].map(|q| ages.quantile(q)), ages.max());
        self.add(
            &format!("age of what {shown} shows: p50, p99, max"),
            format!("{p50:.2}, {p99:.2}, {max:.2} s{note}"),
            &[
                (&format!("{key}_p50_seconds"), json!(p50)),
                (&format!("{key}_p99_seconds"), json!(p99)),
                (&format!("{key}_max_seconds"), json!(max)),
            ],
        );
    }

    /// No Prometheus runs beside more than `most` agents, times their GPUs.
    pub(super) fn add_no_prometheus(&mut self, most: usize) {
        self.add(
            "Prometheus: counters, scrapes answered",
            format!("not run: more than {most} agents x GPUs"),
            &[],
        );
    }

    /// The resets that a Prometheus saw.
    pub(super) fn add_resets(&mut self, resets: &Resets) {
        let Resets {
            counters,
            scrapes,
            rested,
            second,
        } = resets;
        self.add(
            "Prometheus: counters, scrapes answered",
            format!("{counters}, {scrapes}"),
            &[
                ("prometheus_counters", json!(counters)),
                ("prometheus_scrapes", json!(scrapes)),
            ],
        );
        self.add(
            "Prometheus: resets at an interval of 3 s, of 1 s",
            format!("{rested}, {second}"),
            &[
                ("prometheus_resets", json!(rested)),
                ("prometheus_resets_each_second", json!(second)),
            ],
        );
    }
}

/// The times from the starts of replicas until they were ready, in seconds.
fn starts(cluster: &Cluster) -> Samples {
    let starts = cluster.replicas.iter().flat_map(|replica| &replica.catch_ups);
    Samples::new(starts.map(Duration::as_secs_f64))
}

/// The row of an event, and its key.
fn describe(event: Event) -> (&'static str, &'static str) {
    match event {
        Event::Fault(Fault::KillReplica) => ("replicas killed", "killed_replicas"),
        Event::Fault(Fault::KillServer) => ("brokers killed", "killed_brokers"),
        Event::Fault(Fault::PauseReplica) => ("replicas suspended for up to 10 s", "paused_replicas"),
        Event::Fault(Fault::StopReplica) => ("replicas suspended for 30 s", "stopped_replicas"),
        Event::Fault(Fault::Cut) => ("networks of a replica cut for 3 s to 15 s", "cut_networks"),
        Event::Fault(Fault::Fill) => ("times that the store was full for 4 s to 10 s", "full_stores"),
        Event::Fault(Fault::PutBack) => (
            "times that the store lost what it stored in 30 s",
            "stores_put_back",
        ),
        Event::Fault(Fault::Agents) | Event::Act(AgentAct::Freeze | AgentAct::End) => {
            ("agents ended", "ended_agents")
        }
        Event::Act(AgentAct::Restart) => ("agents restarted", "restarted_agents"),
        Event::Act(AgentAct::SetBack) => (
            "agents restarted with a clock that was set back",
            "agents_set_back",
        ),
        Event::Act(AgentAct::Resume) => ("agents killed and resumed with their totals", "resumed_agents"),
        Event::Act(AgentAct::Surge) => ("agents with two runs for 5 s", "surged_agents"),
        Event::Act(AgentAct::Leave) => ("agents that left, and others that came", "replaced_agents"),
    }
}
