//! `run`: the gateway itself, until a signal ends it.

use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Failure;
use super::load::{self, Loaded};
use crate::component::Shared;
use crate::service::{Graph, Running};
use crate::telemetry::{Telemetry, start_logs};

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "SIGTERM and SIGINT drain and stop; a second one stops at once.\n\nExample:\n  \
tidegate run --config gateway.yaml --set exporters.prometheus.endpoint=0.0.0.0:9464"
)]
pub struct Args {
    #[command(flatten)]
    config: load::ConfigArgs,
}

/// Runs until SIGTERM or SIGINT.
pub fn run(args: &Args) -> Result<(), Failure> {
    let loaded = load::load(&args.config)?;
    runtime()?.block_on(serve(loaded, Arc::new(Shared::default()), until_signalled))
}

/// The runtime of a gateway.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("tidegate-worker")
        .build()
        .map_err(Failure::io("starting the runtime"))
}

/// Builds and starts what was loaded, waits for `until`, drains and stops.
pub async fn serve<F: Future<Output = Result<(), Failure>>>(
    mut loaded: Loaded,
    shared: Arc<Shared>,
    until: impl FnOnce() -> F,
) -> Result<(), Failure> {
    let drain = loaded.plan.drain_timeout;
    start_logs(&loaded.plan.telemetry.logs);
    let recorder = Telemetry::recorder()?;
    let graph = Graph::build(&loaded.plan, &shared).map_err(|errors| loaded.build_failed(errors))?;
    let telemetry = Telemetry::start(&loaded.plan.telemetry, recorder, graph.books.clone()).await?;
    loaded.log_warnings();
    let running = Running::start(graph, shared, drain).await?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        "everything is ready, running and processing data"
    );
    let ended = until().await;
    tracing::info!("stopping: receivers first, then draining");
    stop(running, drain).await;
    telemetry.stop().await;
    ended
}

/// Stops cleanly, or at once when a second signal comes.
async fn stop(running: Running, drain: Duration) {
    tokio::select! {
        () = running.stop(drain) => tracing::info!("stopped"),
        _ = until_signalled() => tracing::warn!("second signal: stopped without draining"),
    }
}

/// Waits for SIGTERM or SIGINT. SIGHUP is answered and ignored.
pub async fn until_signalled() -> Result<(), Failure> {
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut hangup = listen(SignalKind::hangup())?;
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = hangup.recv() => tracing::error!(
                "SIGHUP refused: this version can't reload its configuration; restart it to apply changes"
            ),
        }
    }
}

fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(Failure::io("listening for signals"))
}
