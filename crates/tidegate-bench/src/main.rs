//! Measures the release binary of tidegate from outside, as an operator would see it.
//!
//! `cargo xtask bench [GROUP...]` builds both and runs this. Each group starts gateways of its own, on a core of
//! their own where there are two, and yields rows; the report prints them with their budgets and writes
//! `target/bench/report.json` and `report.md`. `cargo xtask soak [MINUTES]` runs the long one.

mod gateway;
mod groups;
mod http;
mod machine;
mod otlp;
mod process;
mod report;
mod soak;
mod stalls;
mod stats;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use groups::GROUPS;
use report::Report;

/// As in the gateway, since some of what is measured is memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Whatever stops a measurement: said to whoever runs it, never handled.
type Error = Box<dyn std::error::Error + Send + Sync>;

/// How long a soak lasts unless told.
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

fn run() -> Result<(), Error> {
    const USAGE: &str = "usage: tidegate-bench BINARY (bench OUTPUT_DIRECTORY [GROUP...] | soak [MINUTES])";
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [binary, "bench", output, groups @ ..] => bench(binary.as_ref(), output.as_ref(), groups),
        // By itself, so that memory tells of nothing else.
        [_, "series", kind, series] => {
            groups::engine::print_bytes(kind, series.parse()?);
            Ok(())
        }
        [_, "exposed", format, series] => {
            groups::prometheus::print_bytes(format, series.parse()?);
            Ok(())
        }
        [binary, "soak"] => soak::run(binary.as_ref(), minutes(SOAK_MINUTES)),
        [binary, "soak", time] => soak::run(binary.as_ref(), minutes(time.parse()?)),
        _ => Err(USAGE.into()),
    }
}

fn minutes(minutes: f64) -> Duration {
    Duration::from_secs_f64(minutes * 60.0)
}

/// Runs the groups named, or all.
fn bench(binary: &Path, output: &Path, groups: &[&str]) -> Result<(), Error> {
    let names: Vec<&str> = GROUPS.iter().map(|group| group.name).collect();
    if let Some(unknown) = groups.iter().find(|group| !names.contains(group)) {
        return Err(format!("no group `{unknown}`; there are: {}", names.join(", ")).into());
    }
    let machine = machine::describe()?;
    println!("{machine}\n");
    let mut report = Report::new(machine);
    for group in GROUPS {
        if groups.is_empty() || groups.contains(&group.name) {
            println!("{}: {}", group.name, group.about);
            for row in (group.run)(binary)? {
                println!("  {row}");
                report.add(group.name, row);
            }
        }
    }
    report.write(output)?;
    println!("\nwritten to {}", output.display());
    Ok(())
}
