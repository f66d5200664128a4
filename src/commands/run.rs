// SPDX-License-Identifier: Apache-2.0

//! `run`: the gateway itself, until a signal ends it.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Failure;
use super::load::{self, ConfigArgs, Loaded};
use super::reload::{self, Reloader};
use super::watch::{self, RuleContents, WatchedFiles};
use crate::built::{COMMIT, DATE, VERSION};
use crate::component::Shared;
use crate::config::{ComponentId, Problem, Problems, Severity};
use crate::net::descriptors;
use crate::service::{Graph, Plan, Running};
use crate::telemetry::Telemetry;
use crate::telemetry::config::{Detail, Level};

/// After the gateway has stopped, calls that wait for a file have so long to end.
const LAST_CALLS: Duration = Duration::from_secs(2);

/// The least time for a drain after a reload that was under way at the signal.
const LAST_DRAIN: Duration = Duration::from_secs(2);

/// The readers of cells have at most the limit of open files divided by this: connections may take three quarters.
const CELLS: u64 = 4;

/// Arguments of `run`.
#[derive(Debug, Default, clap::Args)]
#[command(
    after_help = "SIGTERM and SIGINT drain and stop; another one, more than a second later, stops at once. SIGHUP reads \
the configuration again and applies what has changed.\n\nExample:\n  \
tidegate run --config gateway.yaml --set exporters.prometheus.endpoint=0.0.0.0:9464"
)]
pub struct RunArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Look at the files of the configuration and its rule files every second, and apply what has changed
    #[arg(long)]
    watch_config: bool,
    /// Log everything, as with `service.telemetry.logs.level: debug`
    #[arg(long, short = 'v', conflicts_with = "quiet")]
    verbose: bool,
    /// Log warnings and errors only, as with `service.telemetry.logs.level: warn`
    #[arg(long, short = 'q')]
    quiet: bool,
}

impl RunArgs {
    /// The level of the command line, which overrides that of the configuration.
    fn level(&self) -> Option<Level> {
        if self.verbose {
            Some(Level::Debug)
        } else {
            self.quiet.then_some(Level::Warn)
        }
    }
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// The configuration has errors, the runtime can't start, or a component can't be built or started.
pub fn run(args: &RunArgs) -> Result<(), Failure> {
    let mut loaded = load::load(&args.config)?;
    loaded.override_level(args.level());
    let runtime = runtime()?;
    let shared = Arc::new(Shared::default());
    let files = args.watch_config.then(|| WatchedFiles::of(args.config.files()));
    if files.is_some() {
        watch::want_rules(&shared);
    }
    let served = runtime.block_on(async {
        let spawn = |files| tokio::spawn(watch::watch(files, shared.clone()));
        let watching = files.clone().map(spawn);
        let watched = shared.clone();
        let until = async |signals: &mut Signals| {
            if let Some(files) = &files {
                watch::log_watch(files, &watched);
            }
            signals.stop().await;
        };
        let served = serve(&mut loaded, Some(args.config.clone()), shared, until).await;
        if let Some(watching) = watching {
            watching.abort();
        }
        served
    });
    // Everything has stopped. A call that still hangs, of a file on a dead mount say, does not keep the process alive.
    runtime.shutdown_timeout(LAST_CALLS);
    served.inspect_err(|failure| print_unavailable(&loaded, failure))
}

/// The runtime of a gateway.
///
/// # Errors
/// The system refuses the threads or the event queue of the runtime.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    super::broken_runtime::end_the_process();
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("tidegate-worker")
        .build()
        .map_err(Failure::io("starting the runtime"))
}

/// Builds and starts what was loaded, waits for `until`, drains and stops. With `source`, requests for a reload read the
/// configuration from there; `loaded` is always the one that runs.
///
/// # Errors
/// A component or own telemetry can't be built or started, or the system refuses a signal handler.
pub async fn serve(
    loaded: &mut Loaded,
    source: Option<ConfigArgs>,
    shared: Arc<Shared>,
    until: impl AsyncFnOnce(&mut Signals),
) -> Result<(), Failure> {
    let open_files = descriptors::raise() / CELLS;
    tidegate_cells::limit_open_files(usize::try_from(open_files).unwrap_or(usize::MAX));
    if source.is_some() {
        // Before anything listens: requests that come during the start wait for its end.
        shared.reloads.support();
    }
    // Before anything starts: a signal that comes between would end the process without a drain, or be lost.
    let mut signals = Signals::listen(shared.clone())?;
    let drain = loaded.plan.drain_timeout;
    let telemetry = Telemetry::prepare(&loaded.plan.telemetry)?;
    if loaded.plan.telemetry.metrics.level == Detail::Detailed {
        shared.want_details();
    }
    tracing::info!(
        version = VERSION,
        commit = COMMIT,
        date = DATE,
        "starting tidegate"
    );
    let rules = RuleContents::of(&loaded.plan, &shared);
    let mut graph = Graph::build(&loaded.plan, &shared).map_err(|errors| loaded.build_failed(errors))?;
    loaded.build_warned(std::mem::take(&mut graph.warnings));
    log_pipelines(&loaded.plan);
    let metrics = graph.metrics.clone();
    let config = std::mem::take(&mut loaded.shown);
    let overview = loaded.plan.overview(config, metrics.clone(), SystemTime::now());
    shared.overview.set(overview);
    if let Some(rules) = rules {
        rules.watch(&shared);
    }
    let telemetry = telemetry.start(&loaded.plan.telemetry, metrics, &shared).await?;
    loaded.log_warnings();
    let mut running = Running::start(graph, shared.clone(), drain).await?;
    let mut reloader = Reloader {
        args: source,
        loaded,
        shared: shared.clone(),
    };
    reload::record(true, SystemTime::now());
    match shared.health.unready() {
        None => tracing::info!(
            version = VERSION,
            "everything is ready, running and processing data"
        ),
        Some(reason) => tracing::info!(
            version = VERSION,
            reason,
            "everything runs and processes data; readers of metrics get 503 until the reason is gone"
        ),
    }
    let asked = run_until(until, &mut signals, &mut reloader, &mut running, &telemetry).await;
    let has_drained = match asked {
        Some(asked) => {
            tracing::info!("stopping: receivers first, then draining");
            // A reload that was under way has taken a part of the time.
            let drain = reloader.drain().saturating_sub(asked.elapsed()).max(LAST_DRAIN);
            ends(running.stop(drain), &mut signals).await
        }
        None => false,
    };
    if has_drained {
        tracing::info!("stopped");
    } else {
        tracing::warn!("second signal: stopped without draining");
    }
    telemetry.stop().await;
    Ok(())
}

/// Prints all addresses and sockets that are not available, unless the error of the start names the only one. A start ends
/// at the first one. Call this after [`serve`], when the runtime has closed the sockets of the gateway.
pub(super) fn print_unavailable(loaded: &Loaded, failure: &Failure) {
    let Failure::Component(error) = failure else {
        return;
    };
    let unavailable = loaded.unavailable_listeners();
    if has_more_errors(&unavailable, &error.component) {
        eprint!("{unavailable}");
    }
}

/// Whether there are errors beyond one of this component.
fn has_more_errors(unavailable: &Problems, component: &str) -> bool {
    let errors = unavailable.sorted();
    let mut errors = errors
        .iter()
        .filter(|problem| problem.severity == Severity::Error);
    let is_of_component = |problem: &Problem| {
        let rest = problem.path.strip_prefix(component);
        rest.is_some_and(|rest| rest.starts_with("::"))
    };
    let first = errors.next();
    first.is_some_and(|first| !is_of_component(first)) || errors.next().is_some()
}

/// Answers requests for reloads until `until` is over, and says when that was. The end of `until` breaks off the read of a
/// configuration. Only a second signal breaks off the reload that follows: `None`.
async fn run_until(
    until: impl AsyncFnOnce(&mut Signals),
    signals: &mut Signals,
    reloader: &mut Reloader<'_>,
    running: &mut Running,
    telemetry: &Telemetry,
) -> Option<Instant> {
    // In a box, which ends before the signals are used again.
    let mut until = Box::pin(until(signals));
    let shared = reloader.shared.clone();
    loop {
        let reading = async { reloader.read(shared.reloads.asked().await).await };
        let read = tokio::select! {
            () = &mut until => return Some(Instant::now()),
            read = reading => read,
        };
        let Some(read) = read else { continue };
        let mut reload = std::pin::pin!(reloader.reload(read, running, telemetry));
        tokio::select! {
            () = &mut reload => {}
            () = &mut until => {
                let asked = Instant::now();
                drop(until);
                // A start that waits for a disk ends soon.
                shared.reloads.close();
                return ends(reload, signals).await.then_some(asked);
            }
        }
    }
}

/// Says what is about to start. Components log their addresses, files and directories when they open them.
fn log_pipelines(plan: &Plan) {
    let texts = |ids: &[ComponentId]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    for pipeline in &plan.pipelines {
        tracing::info!(
            id = %pipeline.id,
            receivers = %texts(&pipeline.receivers),
            processors = %texts(&pipeline.processors),
            exporters = %texts(&pipeline.exporters),
            "pipeline"
        );
    }
    if !plan.extension_order.is_empty() {
        tracing::info!(extensions = %texts(&plan.extension_order), "extensions");
    }
}

/// Waits for the end of `work` after the signal to stop. Returns false when a second signal comes first.
///
/// It takes the signals as they come: an echo that waits for the end of `work` would look like a second signal.
async fn ends(work: impl Future<Output = ()>, signals: &mut Signals) -> bool {
    tokio::select! {
        () = work => true,
        () = signals.stop() => false,
    }
}

/// Another signal within this time does not count. `timeout` and process groups send one twice, and supervisors send SIGTERM
/// when a terminal has sent SIGINT.
const ECHO: Duration = Duration::from_secs(1);

/// The signals that a gateway answers, kept from the time it starts to listen.
pub struct Signals {
    /// When one has stopped it.
    stopped: Option<Instant>,
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    shared: Arc<Shared>,
}

impl Signals {
    /// Listens from now on.
    ///
    /// # Errors
    /// The system refuses a signal handler.
    pub fn listen(shared: Arc<Shared>) -> Result<Self, Failure> {
        Ok(Self {
            stopped: None,
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
            shared,
        })
    }

    /// Waits for the next SIGTERM or SIGINT; another one within a second does not count. SIGHUP asks
    /// for a reload.
    pub async fn stop(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
                _ = self.hangup.recv() => {
                    let shared = self.shared.clone();
                    tokio::spawn(async move {
                        if let Err(why) = shared.reloads.ask("SIGHUP").await {
                            tracing::error!("SIGHUP refused: {why}");
                        }
                    });
                    continue;
                }
            }
            if self.stopped.is_none_or(|at| at.elapsed() >= ECHO) {
                self.stopped = Some(Instant::now());
                return;
            }
        }
    }
}

fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(Failure::io("listening for signals"))
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal as Number, getpid, kill_process};
    use tokio::sync::Semaphore;
    use tokio::time::timeout;

    use super::*;

    /// A signal reaches all tests of the process: one at a time sends some.
    static SENDING: Semaphore = Semaphore::const_new(1);

    fn send(number: Number) {
        kill_process(getpid(), number).unwrap();
    }

    #[test]
    fn a_failed_start_lists_more_than_the_one_address_of_its_error() {
        let says = |paths: &[&str]| {
            let mut problems = Problems::default();
            problems
                .at_span(None, "receivers::uds")
                .warning("a warning is not an error");
            for path in paths {
                problems.at_span(None, *path).error("taken");
            }
            has_more_errors(&problems, "receivers::otlp")
        };
        let (grpc, http) = (
            "receivers::otlp::protocols::grpc",
            "receivers::otlp::protocols::http",
        );
        assert!(!says(&[]));
        assert!(!says(&[grpc]));
        assert!(says(&[grpc, http]));
        assert!(says(&["receivers::otlp/b::protocols::grpc"]));
    }

    #[tokio::test]
    async fn two_signals_at_once_are_one() {
        let _sending = SENDING.acquire().await.unwrap();
        let mut signals = Signals::listen(Arc::default()).unwrap();
        send(Number::TERM);
        signals.stop().await;
        send(Number::TERM);
        send(Number::INT);
        let again = timeout(Duration::from_millis(300), signals.stop()).await;
        assert!(again.is_err(), "the echo counts");
        tokio::time::sleep(ECHO).await;
        send(Number::INT);
        signals.stop().await;
    }

    #[tokio::test]
    async fn an_echo_during_a_long_reload_is_no_second_signal() {
        let _sending = SENDING.acquire().await.unwrap();
        let mut signals = Signals::listen(Arc::default()).unwrap();
        send(Number::TERM);
        signals.stop().await;
        send(Number::INT);
        let reload = tokio::time::sleep(ECHO + Duration::from_millis(100));
        assert!(ends(reload, &mut signals).await, "the echo counts");
        let later = timeout(Duration::from_millis(300), signals.stop()).await;
        assert!(later.is_err(), "the echo counts after the reload");
        send(Number::INT);
        let hangs = std::future::pending();
        assert!(!ends(hangs, &mut signals).await, "a second signal ends the wait");
    }
}
