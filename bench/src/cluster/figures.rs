// SPDX-License-Identifier: Apache-2.0

//! The figures of a run, as a table.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use super::Cluster;
use super::faults::{Fault, FaultInjector};
use super::fleet::AgentAct;
use super::member::Member;
use super::options::{EngineChoice, Options};
use super::reader::ReadResult;
use super::rows::ROWS;
use crate::BenchError;
use crate::stats::Samples;

/// The rows of the table.
pub(super) struct Figures {
    rows: Vec<(String, String)>,
    time: Duration,
}

impl Figures {
    /// The figures of the time with faults.
    pub(super) fn of(cluster: &Cluster, options: &Options, time: Duration, faults: &FaultInjector) -> Self {
        let mut figures = Self {
            rows: Vec::new(),
            time,
        };
        let engine = match options.engine {
            EngineChoice::Nats(_) => "nats",
            EngineChoice::Direct => "direct",
        };
        let (living, agents) = cluster.fleet.model.lock().agents();
        figures.add("engine, seed", format!("{engine}, {}", options.seed));
        figures.add("time with faults", format!("{:.0} s", time.as_secs_f64()));
        figures.add("agents: at a time, of all names", format!("{living}, {agents}"));
        figures.add("series of an agent", ROWS.len().to_string());
        for (kind, count) in &faults.counts {
            figures.add(what(*kind), count.to_string());
        }
        if let Some(broker) = &cluster.broker {
            figures.add_usage(&broker.member);
        }
        for replica in &cluster.replicas {
            figures.add_usage(&replica.member);
        }
        let folded: f64 = cluster.replicas.iter().map(|replica| replica.folded).sum();
        figures.add("runs folded by replicas that were killed", folded.to_string());
        figures.add_sent(cluster);
        let catch_ups = cluster.replicas.iter().flat_map(|replica| &replica.catch_ups);
        let catch_ups = Samples::new(catch_ups.map(Duration::as_secs_f64));
        figures.add(
            "start of a replica until it is ready: p50, max",
            format!(
                "{:.2}, {:.2} s, of {}",
                catch_ups.median(),
                catch_ups.max(),
                catch_ups.count()
            ),
        );
        figures
    }

    pub(super) fn add(&mut self, name: &str, value: String) {
        self.rows.push((name.to_owned(), value));
    }

    fn add_usage(&mut self, member: &Member) {
        let usage = member.usage();
        let name = format!("{}: cores, peak memory", member.name);
        self.add(&name, format!("{:.3}, {:.1} MiB", usage.cores(), usage.peak_mib));
    }

    fn add_sent(&mut self, cluster: &Cluster) {
        let sent = cluster.fleet.model.lock().sent();
        let (bytes, connections) = cluster.fleet.sent();
        let rate = |count: u64| count as f64 / self.time.as_secs_f64();
        let (pages, raw, packed) = (rate(sent.stored), rate(sent.bytes) / 1e3, rate(bytes) / 1e3);
        self.add("runs of agents", sent.runs.to_string());
        self.add("messages stored", format!("{pages:.0}/s"));
        self.add(
            "bytes of pages, compressed",
            format!("{raw:.0}, {packed:.0} kB/s"),
        );
        self.add(
            "messages that the store did not take, late pages",
            format!("{}, {}", sent.failed, sent.late),
        );
        self.add("connections of agents to the store", connections.to_string());
    }

    /// The figures of the reader.
    pub(super) fn add_read(&mut self, read: &ReadResult) {
        let ReadResult {
            answered,
            refused,
            failed,
            missed,
            ..
        } = read;
        self.add(
            "pages answered, with 503, not answered",
            format!("{answered}, {refused}, {failed}"),
        );
        self.add(
            "pages older than another one, within `max_lag`",
            read.lower.to_string(),
        );
        self.add("rounds without a page", missed.to_string());
        self.add(
            "longest time without a page",
            format!("{:.1} s", read.longest_gap.as_secs_f64()),
        );
        if !read.staleness.is_empty() {
            let ages = Samples::new(read.staleness.iter().copied());
            let [p50, p99] = [0.5, 0.99].map(|q| ages.quantile(q));
            self.add(
                "age of what a page shows: p50, p99, max",
                format!("{p50:.2}, {p99:.2}, {:.2} s ({})", ages.max(), read.stalest),
            );
        }
    }

    /// Prints the table and the verdict, and writes both to a file. An error if there are violations.
    pub(super) fn finish(&self, output: &Path, count: u64, violations: &[String]) -> Result<(), BenchError> {
        let mut text = "| | |\n| --- | --- |\n".to_owned();
        for (name, value) in &self.rows {
            writeln!(text, "| {name} | {value} |")?;
        }
        let verdict = match count {
            0 => "all totals are exact".to_owned(),
            count => format!("{count} violations"),
        };
        writeln!(text, "\n{verdict}")?;
        for violation in violations {
            writeln!(text, "- {violation}")?;
        }
        println!("\n{text}");
        let file = output.join("cluster.md");
        std::fs::write(&file, &text)?;
        if count == 0 {
            Ok(())
        } else {
            Err(format!("{verdict}: see {}", file.display()).into())
        }
    }
}

fn what(kind: Fault) -> &'static str {
    match kind {
        Fault::KillReplica => "replicas killed",
        Fault::KillServer => "NATS servers killed",
        Fault::PauseReplica => "replicas paused for up to 10 s",
        Fault::Agent(AgentAct::Restart) => "agents restarted",
        Fault::Agent(AgentAct::SetBack) => "agents restarted with a clock that was set back",
        Fault::Agent(AgentAct::Resume) => "agents killed and resumed with their totals",
        Fault::Agent(AgentAct::Surge) => "agents with two runs for 5 s",
        Fault::Agent(AgentAct::Leave) => "agents that left, and others that came",
        Fault::Agent(AgentAct::Freeze | AgentAct::End) => "agents ended",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_with_a_violation_fails_and_keeps_its_list() {
        let directory = tempfile::tempdir().unwrap();
        let figures = Figures {
            rows: vec![("agents".to_owned(), "3".to_owned())],
            time: Duration::from_secs(1),
        };
        assert!(figures.finish(directory.path(), 0, &[]).is_ok());
        let wrong = ["a fell".to_owned()];
        assert!(figures.finish(directory.path(), 1, &wrong).is_err());
        let text = std::fs::read_to_string(directory.path().join("cluster.md")).unwrap();
        assert!(
            text.contains("| agents | 3 |") && text.contains("1 violations\n- a fell"),
            "{text}"
        );
    }
}
