// SPDX-License-Identifier: Apache-2.0

//! `quickstart`: the main job at work with no set-up. A child process writes the rings of a simulated 8-rank NIXL node;
//! the gateway drains, aggregates and serves them; the terminal shows where to look, and the composites as they change.

mod table;

use std::io::IsTerminal;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use super::Failure;
use super::load::load_from;
use super::run::{Signals, runtime, serve};
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
    after_help = "Ctrl-C stops it and leaves nothing behind. It replaces ports that are in use by free ones."
)]
pub struct QuickstartArgs {
    /// Transfers per second of each simulated agent
    #[arg(long, default_value_t = 250.0)]
    rate: f64,
    /// Stop after this number of seconds
    #[arg(long)]
    seconds: Option<f64>,
}

/// A place of the configuration that listens, with its usual port.
struct Listens {
    what: &'static str,
    option: &'static str,
    port: u16,
    path: &'static str,
}

/// Everything of the configuration that listens.
const LISTENS: [Listens; 6] = [
    Listens {
        what: "Prometheus scrape",
        option: "exporters.prometheus.endpoint",
        port: 9464,
        path: "/metrics",
    },
    Listens {
        what: "composites as JSON",
        option: "extensions.admin.endpoint",
        port: 8080,
        path: "/api/v1/composites",
    },
    Listens {
        what: "own metrics",
        option: "service.telemetry.metrics.address",
        port: 8888,
        path: "/metrics",
    },
    Listens {
        what: "health",
        option: "extensions.health_check.endpoint",
        port: 13133,
        path: "/",
    },
    Listens {
        what: "OTLP over gRPC, in",
        option: "receivers.otlp.protocols.grpc.endpoint",
        port: 4317,
        path: "",
    },
    Listens {
        what: "OTLP over HTTP, in",
        option: "receivers.otlp.protocols.http.endpoint",
        port: 4318,
        path: "",
    },
];

/// Runs until Ctrl-C.
///
/// # Errors
/// The system refuses the directory, a port or the simulation, or the gateway can't start.
pub fn run(args: &QuickstartArgs) -> Result<(), Failure> {
    let rings = Rings::make()?;
    let mut loader = Loader::default().text("quickstart.yaml", CONFIG);
    print_line!(
        "tidegate quickstart: a simulated 8-rank NIXL node writes its rings to {}",
        rings.directory.display()
    );
    for listens in &LISTENS {
        let address = format!("127.0.0.1:{}", free_port(listens.port)?);
        print_line!("  {:<20} http://{address}{}", listens.what, listens.path);
        loader = loader.set(format!("{}={address}", listens.option));
    }
    let directory = rings.directory.display().to_string();
    let loaded = load_from(loader.env(move |name| (name == "QUICKSTART_RINGS").then(|| directory.clone())))?;
    let _child = Simulation::start(&rings, args.rate)?;
    let shared = Arc::new(Shared::default());
    let shown = shared.clone();
    runtime()?.block_on(serve(loaded, None, shared, async |signals: &mut Signals| {
        show_until_over(&shown, args.seconds, signals).await;
    }))
}

/// Draws the table until a signal comes or the time is up.
async fn show_until_over(shared: &Shared, seconds: Option<f64>, signals: &mut Signals) {
    let over = async {
        match seconds {
            Some(seconds) => tokio::time::sleep(Duration::from_secs_f64(seconds.max(0.0))).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = signals.stop() => {}
        () = over => {}
        () = draw(shared) => {}
    }
    print_line!("\nstopping");
}

async fn draw(shared: &Shared) {
    let terminal = std::io::stdout().is_terminal();
    let mut interval = tokio::time::interval(if terminal { REDRAW } else { REPRINT });
    let mut lines = 0;
    // The first tick comes at once, when there is nothing to show yet.
    interval.tick().await;
    loop {
        interval.tick().await;
        let table = table::render(&shared.composites.list());
        if terminal && lines > 0 {
            // Up to where the table began, and everything below erased.
            print!("\x1b[{lines}A\x1b[J");
        }
        lines = table.lines().count();
        print_line!("{}", table.trim_end());
    }
}

/// The usual port where it is free, else any.
fn free_port(usual: u16) -> Result<u16, Failure> {
    let bound = TcpListener::bind(("127.0.0.1", usual)).or_else(|_| TcpListener::bind(("127.0.0.1", 0)));
    let address = bound.and_then(|listener| listener.local_addr());
    address
        .map(|address| address.port())
        .map_err(Failure::io("looking for a free port"))
}

/// A directory of our own for the rings, removed at the end.
struct Rings {
    directory: PathBuf,
}

impl Rings {
    fn make() -> Result<Self, Failure> {
        let shm = PathBuf::from("/dev/shm");
        let base = if shm.is_dir() { shm } else { std::env::temp_dir() };
        let directory = base.join(format!("tidegate-quickstart-{}", std::process::id()));
        std::fs::create_dir_all(&directory)
            .map_err(Failure::io(format!("making {}", directory.display())))?;
        Ok(Self { directory })
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        // The command does not fail because of left-overs in a temporary directory.
        let _ = std::fs::remove_dir_all(&self.directory);
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
