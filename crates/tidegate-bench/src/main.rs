//! Measures the release binary of tidegate from outside, as an operator would see it.
//!
//! `cargo xtask bench [GROUP...]` builds both and runs this. Each group starts gateways of its own, on a core of
//! their own where there are two, and yields rows; the report prints them with their budgets and writes
//! `target/bench/report.json` and `report.md`.

mod gateway;
mod groups;
mod http;
mod machine;
mod report;
mod stats;

use std::path::PathBuf;
use std::process::ExitCode;

use groups::GROUPS;
use report::Report;

/// Whatever stops a measurement: said to whoever runs it, never handled.
type Error = Box<dyn std::error::Error>;

/// What the command line asks for.
struct Arguments {
    /// The binary under test.
    binary: PathBuf,
    /// Where the report goes.
    output: PathBuf,
    /// Names of groups; all when empty.
    groups: Vec<String>,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Error> {
    let arguments = arguments()?;
    let machine = machine::describe()?;
    println!("{machine}\n");
    let mut report = Report::new(machine);
    for group in GROUPS {
        if arguments.groups.is_empty() || arguments.groups.iter().any(|name| name == group.name) {
            println!("{}: {}", group.name, group.about);
            for row in (group.run)(&arguments.binary)? {
                println!("  {row}");
                report.add(group.name, row);
            }
        }
    }
    report.write(&arguments.output)?;
    println!("\nwritten to {}", arguments.output.display());
    Ok(())
}

fn arguments() -> Result<Arguments, Error> {
    let mut given = std::env::args().skip(1);
    let (Some(binary), Some(output)) = (given.next(), given.next()) else {
        return Err("usage: tidegate-bench BINARY OUTPUT_DIRECTORY [GROUP...]".into());
    };
    let groups: Vec<String> = given.collect();
    let names: Vec<&str> = GROUPS.iter().map(|group| group.name).collect();
    match groups.iter().find(|group| !names.contains(&group.as_str())) {
        Some(unknown) => Err(format!("no group `{unknown}`; there are: {}", names.join(", ")).into()),
        None => Ok(Arguments {
            binary: binary.into(),
            output: output.into(),
            groups,
        }),
    }
}
