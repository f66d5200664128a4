// SPDX-License-Identifier: Apache-2.0

//! A gateway under test: the graph of the configuration, with stand-ins, on a clock that the test sets.
//!
//! All of it runs on one thread. The clock of the engine and that of the runtime move together, in small steps. After each
//! step the tasks run until none has anything to do.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_engine::{UnixNanos, clock};
use tidegate_promql::{HistoryLimits, Query};
use tokio::task::yield_now;

use super::stand_ins::{self, StandIns};
use crate::commands::load;
use crate::component::graph_metrics::GraphMetrics;
use crate::component::{Evaluator, Shared, unix_now};
use crate::config::{Class, Loader};
use crate::extensions::file_storage;
use crate::prom::catalog::{KeptPast, View, millis};
use crate::service::graph::GraphMember;
use crate::service::{Graph, Plan, Running};

/// The longest step of the clock.
const STEP: Duration = Duration::from_millis(50);

/// Rounds over all tasks after a step. A batch passes one component or queue a round.
const ROUNDS: usize = 24;

/// The interval of samples and of searches for expired series.
const UPKEEP: Duration = Duration::from_secs(1);

/// The most real time for an answer, a start or a stop.
const PATIENCE: Duration = Duration::from_secs(30);

/// The time for a stop, as in a real gateway.
const DRAIN: Duration = Duration::from_secs(10);

/// The history for queries without an `admin` extension.
const HISTORY: HistoryLimits = HistoryLimits {
    interval_ms: 1_000,
    span_ms: 900_000,
    max_bytes: 64 << 20,
};

/// The time of a test.
pub(super) struct TestClock {
    begin: UnixNanos,
    elapsed: Duration,
}

impl TestClock {
    /// Sets the clock of the process to the begin of a test.
    pub(super) fn begin(begin: UnixNanos) -> Self {
        clock::set_manual(begin);
        Self {
            begin,
            elapsed: Duration::ZERO,
        }
    }

    /// The time since the begin.
    pub(super) fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// The time of the engine at so long after the begin.
    pub(super) fn time(&self, elapsed: Duration) -> UnixNanos {
        self.begin.saturating_add(nanos(elapsed))
    }

    /// Moves both clocks by one step, `to` at most. Says whether a second has begun.
    async fn step(&mut self, to: Duration) -> bool {
        let steps = self.elapsed.as_millis() / STEP.as_millis() + 1;
        let next = STEP.saturating_mul(u32::try_from(steps).unwrap_or(u32::MAX));
        let next = next.min(to);
        let step = next.saturating_sub(self.elapsed);
        let is_second = next.as_secs() / UPKEEP.as_secs() > self.elapsed.as_secs() / UPKEEP.as_secs();
        self.elapsed = next;
        clock::set_manual(self.time(next));
        tokio::time::advance(step).await;
        is_second
    }
}

/// A duration in nanoseconds.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Lets all tasks run.
pub(super) async fn drain() {
    for _ in 0..ROUNDS {
        yield_now().await;
    }
}

/// Waits for work of other threads, such as writes to storage, while the clock stands still. `None`: it took too long.
pub(super) async fn complete<T>(work: impl Future<Output = T>) -> Option<T> {
    let begun = Instant::now();
    let limit = async {
        while begun.elapsed() < PATIENCE {
            yield_now().await;
        }
    };
    tokio::select! {
        biased;
        done = work => Some(done),
        () = limit => None,
    }
}

/// A gateway that runs.
pub(super) struct TestGateway {
    running: Running,
    pub(super) shared: Arc<Shared>,
    pub(super) stand_ins: Arc<StandIns>,
    /// The counters of its components.
    pub(super) metrics: GraphMetrics,
    view: Arc<View>,
    /// The components that are not started. The history is as long as rules among them need it.
    _omitted: Vec<GraphMember>,
    /// The differences from a real gateway, one line each.
    pub(super) notes: Vec<String>,
}

impl TestGateway {
    /// Builds and starts the gateway of a configuration.
    pub(super) async fn start(mut loaded: load::Loaded, clock: &TestClock) -> Result<Self, String> {
        let mut notes = stand_ins::replace(&mut loaded.plan);
        let shared = Arc::new(Shared::default());
        let built = Graph::build(&loaded.plan, &shared);
        let mut graph = built.map_err(|errors| loaded.build_failed_text(errors))?;
        // The others only serve the network.
        let storage = format!("{}::{}", Class::Extension.section(), file_storage::FACTORY.kind);
        let extensions = format!("{}::", Class::Extension.section());
        let is_started = |path: &str| !path.starts_with(&extensions) || path.starts_with(&storage);
        let members = std::mem::take(&mut graph.members).into_iter();
        let (members, omitted): (Vec<_>, Vec<_>) = members.partition(|member| is_started(&member.path));
        let paths = omitted.iter().map(|member| &member.path);
        notes.extend(paths.map(|path| format!("{path} is not started")));
        graph.members = members;
        let metrics = graph.metrics.clone();
        let view = View::of(&shared);
        view.keep_past(KeptPast::fixed(HISTORY));
        shared.evaluators.add(Arc::new(Evaluator(view.clone())));
        let started = complete(Running::start(graph, shared.clone(), DRAIN + clock.elapsed())).await;
        let running = started
            .ok_or("the gateway did not start in time")?
            .map_err(|error| error.to_string())?;
        drain().await;
        Ok(Self {
            running,
            stand_ins: StandIns::of(&shared),
            shared,
            metrics,
            view,
            _omitted: omitted,
            notes,
        })
    }

    /// Lets time pass. `each_step` is called after every step.
    pub(super) async fn advance(
        &self,
        clock: &mut TestClock,
        to: Duration,
        mut each_step: impl FnMut(UnixNanos),
    ) {
        while clock.elapsed() < to {
            let is_second = clock.step(to).await;
            each_step(unix_now());
            drain().await;
            if is_second {
                let now = unix_now();
                self.stand_ins.expire(now);
                self.view.record(now, Duration::ZERO, &mut |_| true);
            }
        }
    }

    /// The warnings of a query, such as a metric that is not known.
    pub(super) fn query_warnings(&self, query: &Query) -> Vec<String> {
        let now = unix_now();
        let asked = self.view.ask(now, &query.selections());
        match query.instant(&asked, millis(clock::wall(now))) {
            Ok(_) => asked.query_warnings().warnings(),
            Err(_) => Vec::new(),
        }
    }

    /// Stops it, receivers first.
    pub(super) async fn stop(self, clock: &TestClock) -> Result<(), String> {
        let stopped = complete(self.running.stop(DRAIN + clock.elapsed())).await;
        self.stand_ins.clear();
        stopped.ok_or_else(|| "the gateway did not stop in time".to_owned())
    }
}

/// The arguments of the configuration that lead its storage to a directory of the test.
pub(super) fn storage_overrides(plan: &Plan, directory: &Path) -> Vec<String> {
    let stores = plan
        .extensions
        .iter()
        .filter(|(_, planned)| planned.factory.kind == file_storage::FACTORY.kind);
    let overrides = stores.enumerate().flat_map(|(at, (id, _))| {
        let directory = directory.join(format!("storage-{at}"));
        [
            format!("extensions::{id}::directory={}", directory.display()),
            format!("extensions::{id}::create_directory=true"),
        ]
    });
    overrides.collect()
}

/// Loads a configuration with further arguments.
pub(super) fn load_config<'a>(
    config: &Path,
    env: impl Fn(&str) -> Option<String> + 'a,
    sets: impl IntoIterator<Item = String>,
) -> Result<load::Loaded, String> {
    let loader = Loader::default().file(config).env(env);
    let loader = sets.into_iter().fold(loader, Loader::set);
    load::check_loader(loader).into_loaded()
}
