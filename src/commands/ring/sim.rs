// SPDX-License-Identifier: Apache-2.0

//! `ring sim`: agents that transfer nothing but write rings as real ones do.
//!
//! Events come in the order in which NIXL emits them (post time, transfer time, bytes, request), are staged and
//! flushed at intervals like NIXL's export thread does.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidegate_ring::{Event, Layout, Writer};

use super::until_interrupted;
use crate::commands::Failure;

/// Kinds as in NIXL's table of event types.
const TX_BYTES: u16 = 0;
const RX_BYTES: u16 = 1;
const TX_REQUESTS: u16 = 2;
const RX_REQUESTS: u16 = 3;
const MEMORY_REGISTERED: u16 = 4;
const XFER_TIME: u16 = 6;
const POST_TIME: u16 = 7;
const ERR_NOT_FOUND: u16 = 11;
/// One of this number of transfers fails.
const ERROR_ODDS: u32 = 2_000;
/// The memory that each agent registers when it starts: the KV cache of a rank.
const REGISTERED_BYTES: u64 = 16 << 30;
/// The greatest rate: more than any machine simulates.
const MAX_RATE: f64 = 1e6;

/// Arguments of `ring sim`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  tidegate ring sim --directory /tmp/rings --agents 8 --rate 500")]
pub(super) struct SimArgs {
    /// Directory of the rings; created if it does not exist
    #[arg(long)]
    directory: PathBuf,
    /// Number of agents
    #[arg(long, default_value_t = 8)]
    agents: u32,
    /// Ring version: 1, 2a, 2b, 3, 4 or 5
    #[arg(long, default_value = "4", value_parser = parse_layout)]
    version: Layout,
    /// Slots per ring (a power of two)
    #[arg(long, default_value_t = 4096)]
    capacity: u64,
    /// Transfers per second of each agent, with four events each
    #[arg(long, default_value_t = 250.0, value_parser = parse_rate)]
    rate: f64,
    /// Interval between two flushes of an agent, in milliseconds
    #[arg(long, default_value_t = 10)]
    flush_ms: u64,
    /// Prefix of the agents' names; a number follows
    #[arg(long, default_value = "rank_")]
    prefix: String,
    /// Stop after this number of seconds
    #[arg(long)]
    seconds: Option<f64>,
    /// Stop when standard input ends (for a parent process)
    #[arg(long)]
    until_eof: bool,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A number of transfers per second.
///
/// # Errors
/// It is not a number, is negative, or is too large.
pub(in crate::commands) fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok();
    let rate = rate.filter(|rate| (0.0..=MAX_RATE).contains(rate));
    rate.ok_or_else(|| format!("expected a number from 0 to {MAX_RATE}"))
}

fn parse_layout(label: &str) -> Result<Layout, String> {
    let found = Layout::ALL.into_iter().find(|layout| layout.label() == label);
    found.ok_or_else(|| "one of 1, 2a, 2b, 3, 4, 5".to_owned())
}

struct Agent {
    writer: Writer,
    rng: SmallRng,
    /// Typical transfer time of this rank in microseconds: ranks differ, so that composites have something to show.
    typical_us: f64,
    /// Transfers that are due but not whole yet.
    owed: f64,
}

/// Writes until interrupted.
pub(super) fn run(args: &SimArgs) -> Result<(), Failure> {
    std::fs::create_dir_all(&args.directory)
        .map_err(Failure::io(format!("making {}", args.directory.display())))?;
    let over = until_interrupted()?;
    if args.until_eof {
        watch_stdin(over.clone());
    }
    let mut agents = (0..args.agents)
        .map(|rank| Agent::new(args, rank))
        .collect::<Result<Vec<_>, _>>()?;
    let started = Instant::now();
    let interval = Duration::from_millis(args.flush_ms.max(1));
    let mut last = started;
    while !over.load(Relaxed)
        && args
            .seconds
            .is_none_or(|limit| started.elapsed().as_secs_f64() < limit)
    {
        std::thread::sleep(interval);
        let now = Instant::now();
        let passed = now.duration_since(last).as_secs_f64();
        last = now;
        for agent in &mut agents {
            agent.flush(args.rate * passed);
        }
    }
    let dropped: u64 = agents.iter().map(|agent| agent.writer.dropped()).sum();
    if dropped > 0 {
        eprintln!("tidegate: {dropped} events found their ring full and were dropped, as NIXL drops them");
    }
    Ok(())
}

fn watch_stdin(over: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        // Whatever ends the input, an error too, ends the simulation.
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        over.store(true, Relaxed);
    });
}

impl Agent {
    fn new(args: &SimArgs, rank: u32) -> Result<Self, Failure> {
        let path = args.directory.join(format!("{}{rank}", args.prefix));
        let mut writer = Writer::create(path, args.version, args.capacity)?;
        writer.push_all(&[event(MEMORY_REGISTERED, REGISTERED_BYTES)]);
        let mut rng = SmallRng::seed_from_u64(args.seed ^ (u64::from(rank) << 32));
        let typical_us = rng.random_range(300.0..900.0);
        Ok(Self {
            writer,
            rng,
            typical_us,
            owed: 0.0,
        })
    }

    fn flush(&mut self, transfers: f64) {
        self.owed += transfers;
        while self.owed >= 1.0 {
            self.owed -= 1.0;
            self.transfer();
        }
        self.writer.flush();
    }

    fn transfer(&mut self) {
        if self.rng.random_range(0..ERROR_ODDS) == 0 {
            self.writer.push(event(ERR_NOT_FOUND, 1));
            return;
        }
        // A long tail, as networks have.
        let spread: f64 = self.rng.random_range(0.5f64..1.5) / self.rng.random_range(0.05f64..1.0).sqrt();
        let xfer_us = (self.typical_us * spread) as u64;
        let bytes = 1u64 << self.rng.random_range(16..24);
        let (bytes_kind, requests_kind) = if self.rng.random_bool(0.5) {
            (TX_BYTES, TX_REQUESTS)
        } else {
            (RX_BYTES, RX_REQUESTS)
        };
        let events = [
            event(POST_TIME, xfer_us / 20 + 1),
            event(XFER_TIME, xfer_us),
            event(bytes_kind, bytes),
            event(requests_kind, 1),
        ];
        for event in events {
            self.writer.push(event);
        }
    }
}

fn event(kind: u16, value: u64) -> Event {
    Event {
        kind,
        value,
        timestamp_us: crate::component::unix_now() / 1_000,
    }
}
