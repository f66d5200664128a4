// SPDX-License-Identifier: Apache-2.0

//! `quickstart`: the main job at work with no set-up. A child process writes the rings of a simulated 8-rank NIXL node;
//! the gateway drains, aggregates and serves them; the terminal shows where to look, and the composites as they change.

mod addresses;
mod rings;
mod table;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use self::addresses::Addresses;
use self::rings::Rings;
use super::Failure;
use super::load::load_from;
use super::ring::sim::parse_rate;
use super::run::{Signals, print_unavailable, runtime, serve};
use super::terminal::{self, Screen, clip, screen};
use crate::component::Shared;
use crate::config::Loader;
use crate::print_line;

/// The configuration that runs; also an example to start from.
const CONFIG: &str = include_str!("../../../config/quickstart.yaml");
/// How often the table is drawn on a terminal.
const REDRAW: Duration = Duration::from_millis(500);
/// And how often it is printed where output is not a terminal.
const REPRINT: Duration = Duration::from_secs(5);
/// The simulation has this long to end by itself before it is killed.
const CHILD_GRACE: Duration = Duration::from_millis(500);

/// Arguments of `quickstart`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Ctrl-C or q stops it and leaves nothing behind. It replaces ports that are in use by free ones. It removes the \
rings of earlier runs that were killed."
)]
pub struct QuickstartArgs {
    /// Transfers per second of each simulated agent
    #[arg(long, default_value_t = 250.0, value_parser = parse_rate)]
    rate: f64,
    /// Stop after this number of seconds
    #[arg(long, value_parser = parse_seconds)]
    seconds: Option<Duration>,
    /// Existing directory for the rings; they get a directory in it. Unset: /dev/shm or, if that is not writable, the
    /// directory for temporary files
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    directory: Option<PathBuf>,
}

/// A text as the value of a variable of a configuration, which is read as YAML with `${...}` in it.
fn literal(text: &str) -> String {
    // Each string of JSON is one of YAML.
    let quoted = serde_json::Value::from(text).to_string();
    quoted.replace('$', "$$")
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok();
    let seconds = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "expected a number of seconds, 0 or more".to_owned())
}

/// Runs until Ctrl-C.
///
/// # Errors
/// The system refuses the directory, a port or the simulation, or the gateway can't start.
pub fn run(args: &QuickstartArgs) -> Result<(), Failure> {
    let bases = rings::bases(args.directory.as_deref());
    let removed: Vec<PathBuf> = bases
        .iter()
        .flat_map(|base| rings::remove_leftovers(base))
        .collect();
    let rings = Rings::create(&bases)?;
    let addresses = Addresses::choose()?;
    let lines = addresses.lines(&rings.directory);
    for line in &lines {
        print_line!("{line}");
    }
    for directory in removed {
        print_line!("removed {}, which a killed run left", directory.display());
    }
    let loader = Loader::default().text("quickstart.yaml", CONFIG);
    let loader = addresses.settings().into_iter().fold(loader, Loader::set);
    let directory = literal(&rings.directory.display().to_string());
    let mut loaded =
        load_from(loader.env(move |name| (name == "QUICKSTART_RINGS").then(|| directory.clone())))?;
    let _child = Simulation::start(&rings, args.rate)?;
    let shared = Arc::new(Shared::default());
    let shown = shared.clone();
    let until = async |signals: &mut Signals| show_until_over(&shown, &lines, args.seconds, signals).await;
    let served = runtime()?.block_on(serve(&mut loaded, None, shared, until));
    served.inspect_err(|failure| print_unavailable(&loaded, failure))
}

/// Shows the table until a signal or a key comes, or the time is up.
async fn show_until_over(shared: &Shared, lines: &[String], limit: Option<Duration>, signals: &mut Signals) {
    let over = async {
        match limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = signals.stop() => {}
        () = over => {}
        () = show(shared, lines) => {}
    }
    print_line!("stopping");
}

/// Shows the table: in place on a terminal, else line by line.
async fn show(shared: &Shared, lines: &[String]) {
    if Screen::is_possible() {
        // A terminal that is gone ends the command.
        let _ = draw(shared, lines).await;
    } else {
        print(shared).await;
    }
}

async fn print(shared: &Shared) {
    let mut ticks = tokio::time::interval(REPRINT);
    // The first tick comes at once, when there is nothing to show yet.
    ticks.tick().await;
    loop {
        ticks.tick().await;
        for line in table::lines(&shared.composites.list()) {
            print_line!("{line}");
        }
    }
}

/// Draws until the key q or a hangup. `lines` stay above the table.
async fn draw(shared: &Shared, lines: &[String]) -> std::io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    let terminal = Screen::open()?;
    let mut keys = terminal::keys();
    let mut ticks = tokio::time::interval(REDRAW);
    let mut scroll: usize = 0;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = hangup.recv() => return Ok(()),
            Some(key) = keys.recv() => match key {
                b'q' => return Ok(()),
                b'j' => scroll = scroll.saturating_add(1),
                b'k' => scroll = scroll.saturating_sub(1),
                _ => {}
            },
        }
        let (width, height) = Screen::size();
        let fit =
            |lines: Vec<String>| -> Vec<String> { lines.into_iter().map(|line| clip(line, width)).collect() };
        let head = fit(lines.to_vec());
        let table = fit(table::lines(&shared.composites.list()));
        terminal.draw(&screen(head, table, &mut scroll, height), lines.len())?;
    }
}

/// The child that writes; it ends when our end of its input closes, also when we are killed.
struct Simulation(Child);

impl Simulation {
    fn start(rings: &Rings, rate: f64) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(Failure::io("finding this program"))?;
        let child = Command::new(program)
            .args(["ring", "sim", "--agents", "8", "--until-eof", "--directory"])
            .arg(&rings.directory)
            .args(["--rate", &rate.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        child.map(Self).map_err(Failure::io("starting the simulation"))
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let deadline = std::time::Instant::now() + CHILD_GRACE;
        while std::time::Instant::now() < deadline {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // Nothing more can be done for a child that resists even this.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
