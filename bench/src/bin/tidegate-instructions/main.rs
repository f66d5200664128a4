// SPDX-License-Identifier: Apache-2.0

//! One of the hottest paths, a few times over, for a simulator that counts instructions: those of [`counted`] alone.
//!
//! `cargo xtask bench instructions` runs it below valgrind's callgrind, once a path, and holds what an item cost against
//! `benches/instructions.txt`. By itself it only says which paths there are (without an argument), or how many items
//! went down one of them.

mod otlp;
mod pages;
mod rings;

use std::hint::black_box;
use std::process::ExitCode;

/// As in the gateway.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Any failure. It is printed for the user, and not handled.
type WorkloadError = Box<dyn std::error::Error + Send + Sync>;

/// Rounds in which everything becomes known, and rounds that are counted.
const WARM_UP: usize = 3;
const ROUNDS: usize = 5;

/// A path, set up.
trait Workload {
    /// Gets ready for the next round.
    fn prepare(&mut self) -> Result<(), WorkloadError> {
        Ok(())
    }

    /// Sends one load down the path; gives how many items of it arrived.
    fn run(&mut self) -> usize;
}

/// A path by name.
struct Path {
    name: &'static str,
    /// Items a round; if fewer arrive, something other than the path was counted.
    items: usize,
    set_up: fn() -> Result<Box<dyn Workload>, WorkloadError>,
}

const PATHS: &[Path] = &[
    Path {
        name: "otlp_check",
        items: otlp::POINTS,
        set_up: otlp::check,
    },
    Path {
        name: "otlp_aggregate",
        items: otlp::POINTS,
        set_up: otlp::aggregate,
    },
    Path {
        name: "otlp_edit",
        items: otlp::POINTS - otlp::FILTERED,
        set_up: otlp::edit,
    },
    Path {
        name: "ring_v1",
        items: rings::EVENTS,
        set_up: rings::v1,
    },
    Path {
        name: "ring_v4",
        items: rings::EVENTS,
        set_up: rings::v4,
    },
    Path {
        name: "exposition_text",
        items: pages::SERIES,
        set_up: pages::exposition,
    },
    Path {
        name: "scraped_text",
        items: pages::SERIES,
        set_up: pages::scraped,
    },
];

fn main() -> ExitCode {
    match std::env::args().nth(1) {
        None => PATHS.iter().for_each(|path| println!("{}", path.name)),
        Some(name) => match run(&name) {
            Ok(items) => println!("{items}"),
            Err(error) => {
                eprintln!("{name}: {error}");
                return ExitCode::FAILURE;
            }
        },
    }
    ExitCode::SUCCESS
}

/// Items that were counted.
fn run(name: &str) -> Result<usize, WorkloadError> {
    let path = PATHS.iter().find(|path| path.name == name);
    let path = path.ok_or("no such path")?;
    let mut subject = (path.set_up)()?;
    let mut total = 0;
    for round in 0..WARM_UP + ROUNDS {
        subject.prepare()?;
        let items = if round < WARM_UP {
            subject.run()
        } else {
            counted(&mut *subject)
        };
        if items != path.items {
            return Err(format!("{items} items of {} arrived", path.items).into());
        }
        total += items;
    }
    Ok(total / (WARM_UP + ROUNDS) * ROUNDS)
}

/// The simulator knows this function by name and counts from when it is called until it returns.
#[inline(never)]
fn counted(subject: &mut dyn Workload) -> usize {
    // Were the call the last thing here, this function would be left before the path is gone down.
    black_box(subject.run())
}
