// SPDX-License-Identifier: Apache-2.0

//! Measures the release binary of tidegate from outside, as an operator would see it.
//!
//! `cargo xtask bench [GROUP...]` builds both and runs this. Each group starts gateways of its own, on a core of
//! their own where there are two, and yields rows; the report prints them with their budgets and writes
//! `target/bench/report.json` and `report.md`. `cargo xtask soak [MINUTES]` runs the long one, `cargo xtask cluster` a
//! cluster under faults, `cargo xtask abuse` peers that lie.

mod abuse;
mod cluster;
mod floor;
mod gateway;
mod groups;
mod http;
mod machine;
mod otlp;
mod pages;
mod picture;
mod process;
mod progress;
mod publish;
mod report;
mod selection;
mod series;
mod soak;
mod stalls;
mod stats;
mod subject;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use groups::GROUPS;
use progress::LongTask;
use publish::Published;
use report::Report;
use selection::{Selection, group_of};

/// As in the gateway, since some of what is measured is memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Any failure of a measurement. It is printed for the user, and not handled.
type BenchError = Box<dyn std::error::Error + Send + Sync>;

/// The default duration of a soak.
const SOAK_MINUTES: f64 = 10.0;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), BenchError> {
    const USAGE: &str = "usage: tidegate-bench BINARY (bench OUTPUT_DIRECTORY [--publish] [--only SUBJECT,...] \
        [--window MS] [--rounds N] [--kind KIND] [GROUP[/JOB]...] | soak [MINUTES [--reloads]] | \
        cluster OUTPUT_DIRECTORY [MINUTES] [--agents N,...] [--engine nats|kafka|direct] [--seed S] \
        [--interval SECONDS] [--faults FAULT,...] [--server NATS_SERVER] [--jars KAFKA_JARS] \
        [--prometheus PROMETHEUS] [--namespaces] [--publish] | \
        abuse OUTPUT_DIRECTORY [--small] [--peer] [--publish] [NAME...] | pages FIGURES COMMAND)";
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [binary, "bench", output, asked @ ..] => bench(&binary_path(binary)?, output.as_ref(), asked),
        [_, "forward", name, from, to, frame] => floor::run(name, from.parse()?, to.parse()?, frame.parse()?),
        // By itself, so that memory tells of nothing else.
        [_, "series", kind, series] => {
            groups::engine::print_bytes(kind, series.parse()?);
            Ok(())
        }
        [_, "replica", producers] => cluster::simulated::print_figures(producers.parse()?),
        [_, "exposed", format, series] => {
            groups::prometheus::print_bytes(format, series.parse()?);
            Ok(())
        }
        [_, "pages", figures, command] => pages::publish_figures(figures.as_ref(), command),
        [binary, "abuse", output, asked @ ..] => abuse::run(&binary_path(binary)?, output.as_ref(), asked),
        [binary, "cluster", output, asked @ ..] => {
            cluster::run(&binary_path(binary)?, output.as_ref(), asked)
        }
        [binary, "soak"] => soak::run(binary.as_ref(), minutes(SOAK_MINUTES), false),
        [binary, "soak", time] => soak::run(binary.as_ref(), minutes(time.parse()?), false),
        [binary, "soak", time, "--reloads"] => soak::run(binary.as_ref(), minutes(time.parse()?), true),
        _ => Err(USAGE.into()),
    }
}

fn minutes(minutes: f64) -> Duration {
    Duration::from_secs_f64(minutes * 60.0)
}

/// Programs are started in directories of their own.
fn binary_path(binary: &str) -> std::io::Result<PathBuf> {
    match binary {
        "-" => Ok(binary.into()),
        _ => std::path::absolute(binary),
    }
}

/// Runs the groups and jobs named, or all.
fn bench(binary: &Path, output: &Path, asked: &[&str]) -> Result<(), BenchError> {
    let asked = selection::set(parse(asked)?);
    let names: Vec<&str> = GROUPS.iter().map(|group| group.name).collect();
    if let Some(unknown) = asked
        .groups
        .iter()
        .find(|asked| !names.contains(&group_of(asked)))
    {
        return Err(format!("no group `{unknown}`; there are: {}", names.join(", ")).into());
    }
    let machine = machine::describe()?;
    println!("{machine}\n");
    let mut report = Report::new(machine);
    let chosen: Vec<_> = GROUPS
        .iter()
        .filter(|group| asked.has_group(group.name))
        .collect();
    for (index, group) in chosen.iter().enumerate() {
        println!("{}: {}", group.name, group.about);
        let progress = LongTask::new(format!("bench {}", group.name))
            .step(index + 1, chosen.len())
            .begin(groups::measured_so_far());
        let rows = (group.run)(binary)?;
        drop(progress);
        for row in rows {
            if !row.is_only_in_a_table() {
                println!("  {row}");
            }
            report.add(group.name, row);
        }
        // After each group: its results stay if a later group fails.
        report.write(output)?;
        if asked.publish {
            publish::publish(Published {
                command: &asked.command,
                machine: report.machine(),
                sections: report.sections(),
            })?;
        }
    }
    println!("\nwritten to {}", output.display());
    Ok(())
}

/// There is no median of none.
fn rounds(asked: &str) -> Result<usize, BenchError> {
    match asked.parse()? {
        0 => Err("--rounds wants 1 or more".into()),
        rounds => Ok(rounds),
    }
}

/// Options and names of groups, in any order.
fn parse(arguments: &[&str]) -> Result<Selection, BenchError> {
    let mut selection = Selection {
        command: format!("cargo xtask bench {}", arguments.join(" "))
            .trim_end()
            .to_owned(),
        ..Selection::default()
    };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .ok_or_else(|| format!("{argument} wants a value"))
        };
        match *argument {
            "--only" => selection.subjects = value()?.split(',').map(str::to_owned).collect(),
            "--rounds" => selection.rounds = Some(rounds(value()?)?),
            "--window" => selection.window = Some(Duration::from_millis(value()?.parse()?)),
            "--kind" => selection.kind = Some(value()?.parse()?),
            "--publish" => selection.publish = true,
            option if option.starts_with("--") => return Err(format!("no option {option}").into()),
            group => selection.groups.push(group.to_owned()),
        }
    }
    Ok(selection)
}
