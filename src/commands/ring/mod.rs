// SPDX-License-Identifier: Apache-2.0

//! `ring`: looks into NIXL ring files and multi-process stores, and writes them like agents do.

mod inspect;
mod list;
pub(super) mod sim;
mod tail;

use clap::Subcommand;

use super::Failure;

/// Arguments of `ring`.
#[derive(Debug, clap::Args)]
pub struct RingArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the rings and stores in directories: version, owner, fill
    Ls(list::ListArgs),
    /// Show the header of a ring (or the totals of a store) and its waiting events, without consuming them
    Inspect(inspect::InspectArgs),
    /// Follow a ring and print its events as NIXL's own reader does, or as JSON lines
    Tail(tail::TailArgs),
    /// Write rings as NIXL agents do: any version, any number of agents, at a given rate
    Sim(sim::SimArgs),
}

/// Runs the subcommand.
///
/// # Errors
/// A file can't be read or made, or is not of NIXL, or the signal listener can't start.
pub fn run(args: &RingArgs) -> Result<(), Failure> {
    match &args.command {
        Command::Ls(args) => list::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Tail(args) => tail::run(args),
        Command::Sim(args) => sim::run(args),
    }
}

impl From<tidegate_ring::Error> for Failure {
    fn from(error: tidegate_ring::Error) -> Self {
        Self::Message(error.to_string())
    }
}

/// A subcommand's regular end: SIGINT and SIGTERM set the flag this returns.
fn until_interrupted() -> Result<std::sync::Arc<std::sync::atomic::AtomicBool>, Failure> {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    let over = std::sync::Arc::new(AtomicBool::new(false));
    let flag = over.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::io("starting the signal listener"))?;
    let mut signals = {
        let _inside = runtime.enter();
        super::run::Signals::listen(std::sync::Arc::default())?
    };
    std::thread::spawn(move || {
        runtime.block_on(signals.stop());
        flag.store(true, Relaxed);
    });
    Ok(over)
}
