// SPDX-License-Identifier: Apache-2.0

//! The report of all runs: a table with a column for each, and a file for programs.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::figures::Figures;
use super::options::Options;
use crate::picture::{Picture, PlotLine};
use crate::publish::{CLUSTER, Published};
use crate::{BenchError, machine, publish};

/// The names of the files.
const TABLE: &str = "cluster.md";
const NUMBERS: &str = "cluster.json";

/// A run: its figures, the number of violations, and the first of them.
pub(super) struct RunResult {
    pub(super) agents: usize,
    pub(super) figures: Figures,
    pub(super) violations: (u64, Vec<String>),
}

/// The properties of all runs.
#[derive(Clone)]
pub(super) struct ReportHead {
    machine: String,
    /// The engine and, of several servers, their number.
    engine: String,
    seed: u64,
    /// Of the pages, in seconds.
    interval: f64,
    /// Between two counts, in seconds.
    updates: f64,
    gpus: usize,
    syncs: bool,
    build: String,
    has_faults: bool,
    publish: Option<String>,
}

impl ReportHead {
    /// The folder of the gateway's binary has the name of its build.
    pub(super) fn new(binary: &Path, options: &Options) -> Result<Self, BenchError> {
        let folder = binary.parent().and_then(Path::file_name);
        Ok(Self {
            machine: machine::describe()?,
            engine: match options.servers {
                1 => options.engine.name().to_owned(),
                servers => format!("{}-{servers}-servers", options.engine.name()),
            },
            seed: options.seed,
            interval: options.interval.as_secs_f64(),
            updates: options.updates.as_secs_f64(),
            gpus: options.gpus,
            syncs: options.syncs,
            build: folder.unwrap_or_default().to_string_lossy().into_owned(),
            has_faults: !options.faults.is_empty(),
            publish: options.publish.clone(),
        })
    }

    /// The name of the section in the documentation: the engine, and what is not the default.
    fn section(&self) -> String {
        let mut name = format!("{CLUSTER}/{}", self.engine);
        if self.interval != 1.0 {
            name += &format!("-{}s", self.interval);
        }
        if self.updates != self.interval {
            name += &format!("-counts-{}s", self.updates);
        }
        if self.gpus != 1 {
            name += &format!("-{}gpus", self.gpus);
        }
        if !self.syncs {
            name += "-no-sync";
        }
        if self.has_faults {
            name += "-faults";
        }
        name
    }

    fn text(&self) -> String {
        let Self {
            machine,
            engine,
            seed,
            build,
            ..
        } = self;
        format!("engine {engine}, seed {seed}, {build} build of the gateway, {machine}")
    }
}

/// Prints the table and the outcome, and writes both. An error if there are violations.
pub(super) fn finish(output: &Path, head: &ReportHead, runs: &[RunResult]) -> Result<(), BenchError> {
    let count: u64 = runs.iter().map(|run| run.violations.0).sum();
    let outcome = match count {
        0 => "all totals are exact".to_owned(),
        1 => "1 violation".to_owned(),
        count => format!("{count} violations"),
    };
    let mut text = format!("{}\n\n{}\n{outcome}\n", head.text(), table(runs)?);
    for violation in runs.iter().flat_map(|run| &run.violations.1) {
        writeln!(text, "- {violation}")?;
    }
    println!("\n{text}");
    std::fs::write(output.join(TABLE), &text)?;
    let numbers = serde_json::to_string_pretty(&numbers(head, runs))?;
    std::fs::write(output.join(NUMBERS), numbers)?;
    if let Some(command) = &head.publish {
        let first = runs.iter().find_map(|run| run.violations.1.first());
        let told = first.map_or_else(|| outcome.clone(), |first| format!("{outcome}: {first}"));
        publish(command, head, runs, &told)?;
    }
    if count == 0 {
        Ok(())
    } else {
        Err(format!("{outcome}: see {}", output.join(TABLE).display()).into())
    }
}

/// Writes the table into the documentation, and the curves of calm runs at the default interval.
fn publish(command: &str, head: &ReportHead, runs: &[RunResult], outcome: &str) -> Result<(), BenchError> {
    let name = head.section();
    let text = format!(
        "Seed {}, {} build: {outcome}.\n\n{}",
        head.seed,
        head.build,
        table(runs)?
    );
    if name == format!("{CLUSTER}/{}", head.engine) && runs.len() > 1 {
        draw(&head.engine, runs)?;
    }
    publish::publish(Published {
        command,
        machine: &head.machine,
        sections: vec![(name, text)],
    })
}

/// Draws processor time by the number of agents.
fn draw(engine: &str, runs: &[RunResult]) -> Result<(), BenchError> {
    let names = runs.iter().flat_map(|run| run.figures.numbers.keys());
    let names: BTreeSet<_> = names.filter_map(|key| key.strip_suffix("_cores")).collect();
    let cores = |run: &RunResult, name: &str| run.figures.numbers.get(&format!("{name}_cores"))?.as_f64();
    let lines = names.into_iter().map(|name| PlotLine {
        name: name.to_owned(),
        points: runs
            .iter()
            .filter_map(|run| Some((run.agents as f64, cores(run, name)?)))
            .collect(),
    });
    let lines: Vec<_> = lines.collect();
    let picture = Picture {
        title: "Cores in use, by the number of agents",
        x: "agents with 70 series each",
        y: "cores",
        lines: &lines,
    };
    Ok(std::fs::write(
        format!("docs/cluster-{engine}.svg"),
        picture.svg(),
    )?)
}

/// A row for each figure of any run, in the order of the first run that has it.
fn table(runs: &[RunResult]) -> Result<String, BenchError> {
    let mut text = "|".to_owned();
    for run in runs {
        write!(text, " | {} agents", run.agents)?;
    }
    writeln!(text, " |\n| ---{} |", " | ---".repeat(runs.len()))?;
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in runs.iter().flat_map(|run| &run.figures.rows) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    for name in names {
        write!(text, "| {name}")?;
        for run in runs {
            let row = run.figures.rows.iter().find(|(other, _)| other == name);
            write!(text, " | {}", row.map_or("", |(_, value)| value))?;
        }
        writeln!(text, " |")?;
    }
    Ok(text)
}

fn numbers(head: &ReportHead, runs: &[RunResult]) -> Value {
    let runs = runs.iter().map(|run| {
        let (count, first) = &run.violations;
        let mut numbers = run.figures.numbers.clone();
        numbers.insert("violations".to_owned(), json!(count));
        numbers.insert("first_violations".to_owned(), json!(first));
        Value::Object(numbers)
    });
    json!({
        "machine": head.machine,
        "engine": head.engine,
        "seed": head.seed,
        "build": head.build,
        "runs": runs.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(agents: usize, rows: &[(&str, u64)], violations: &[&str]) -> RunResult {
        let mut figures = Figures::default();
        for (name, value) in rows {
            figures.add(name, value.to_string(), &[(name, json!(value))]);
        }
        RunResult {
            agents,
            figures,
            violations: (
                violations.len() as u64,
                violations.iter().map(|text| (*text).to_owned()).collect(),
            ),
        }
    }

    fn head() -> ReportHead {
        ReportHead {
            machine: "a machine".to_owned(),
            engine: "nats".to_owned(),
            seed: 3,
            interval: 1.0,
            updates: 1.0,
            gpus: 1,
            syncs: true,
            build: "debug".to_owned(),
            has_faults: true,
            publish: None,
        }
    }

    #[test]
    fn a_section_has_the_name_of_what_is_not_the_default() {
        assert_eq!(head().section(), "cluster/nats-faults");
        let calm = ReportHead {
            has_faults: false,
            ..head()
        };
        assert_eq!(calm.section(), "cluster/nats");
        let large = ReportHead {
            updates: 10.0,
            gpus: 8,
            ..calm.clone()
        };
        assert_eq!(large.section(), "cluster/nats-counts-10s-8gpus");
        let lazy = ReportHead {
            syncs: false,
            ..calm.clone()
        };
        assert_eq!(lazy.section(), "cluster/nats-no-sync");
        let fast = ReportHead {
            interval: 0.2,
            updates: 0.2,
            ..calm
        };
        assert_eq!(fast.section(), "cluster/nats-0.2s");
    }

    #[test]
    fn several_servers_have_a_section_of_their_own() {
        let section = |servers: &str| {
            let calm = ["--server", "nats", "--faults", "none", "--servers", servers];
            let options = Options::parse(&calm).unwrap();
            let head = ReportHead::new(Path::new("target/release/tidegate"), &options).unwrap();
            head.section()
        };
        assert_eq!(section("1"), "cluster/nats");
        assert_eq!(section("3"), "cluster/nats-3-servers");
    }

    #[test]
    fn a_run_with_a_violation_fails_and_keeps_its_list() {
        let directory = tempfile::tempdir().unwrap();
        let mut runs = vec![run(10, &[("kills", 3)], &[])];
        assert!(finish(directory.path(), &head(), &runs).is_ok());
        runs.push(run(20, &[("kills", 4), ("cuts", 1)], &["a fell"]));
        assert!(finish(directory.path(), &head(), &runs).is_err());
        let text = std::fs::read_to_string(directory.path().join(TABLE)).unwrap();
        for part in [
            "seed 3, debug build",
            "| | 10 agents | 20 agents |\n| --- | --- | --- |\n| kills | 3 | 4 |\n| cuts |  | 1 |",
            "1 violation\n- a fell",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        let numbers = std::fs::read_to_string(directory.path().join(NUMBERS)).unwrap();
        let numbers: Value = serde_json::from_str(&numbers).unwrap();
        assert_eq!(
            (&numbers["build"], &numbers["runs"][1]["cuts"]),
            (&json!("debug"), &json!(1))
        );
        assert_eq!(numbers["runs"][1]["first_violations"], json!(["a fell"]));
    }
}
