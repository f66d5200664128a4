// SPDX-License-Identifier: Apache-2.0

//! A replica: the machines that read and lead, and the series and composites that it shows. It does no I/O.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidegate_cluster::{
    CallId, ClusterLeader, LeaderConfig, PageReader, ProducerName, ReplicaState, ReplicaStatus, StoreCall,
    StoreEvent,
};
use tidegate_engine::{Bounds, Budget, Composite, Series, SeriesSource, SourceList, Table, UnixNanos};
use tokio::sync::watch;

use super::claims::ClaimBoard;
use super::config::PartialsReceiverConfig;
use super::nodes::ExpectedNodes;
use super::shown::ShownSeries;
use super::{STOPPING, report};
use crate::component::shared::Phase;
use crate::component::{Cluster, ComponentError, Context, unix_now};

/// Interval of the sweeps, and of the reports.
const SWEEP: Duration = Duration::from_secs(1);

/// The part of the time that may go into showing merged series: one in this many.
const SHOW_SHARE: u32 = 10;

/// The most calls that one pass takes from a machine. The others follow with the next event or tick.
const CALLS_AT_ONCE: usize = 64;

/// What happens to a replica.
pub(super) enum ReplicaInput {
    /// Events of the session of the reader.
    Read(Vec<StoreEvent>),
    /// Events of the session of the leader.
    Lead(Vec<StoreEvent>),
    /// Time has passed.
    Tick,
}

/// The calls that a replica makes next.
#[derive(Default)]
pub(super) struct ReplicaCalls {
    pub(super) reader: Vec<(CallId, StoreCall)>,
    pub(super) leader: Vec<(CallId, StoreCall)>,
}

/// The state of a replica.
pub(super) struct Replica {
    base: Context,
    cluster: Arc<Cluster>,
    reader: PageReader,
    leader: ClusterLeader,
    /// The producers of `expect`.
    configured: BTreeSet<ProducerName>,
    /// The nodes of `expect_from`.
    nodes: Option<watch::Receiver<Arc<ExpectedNodes>>>,
    /// Those that the reader expects: their memory is theirs.
    expected_nodes: Arc<ExpectedNodes>,
    composites: Vec<Arc<Composite>>,
    shown: ShownSeries,
    claims: Arc<ClaimBoard>,
    /// The memory that merged series may take.
    bounds: Arc<Bounds>,
    max_lag: Duration,
    last_sweep: UnixNanos,
    /// The state in the last report.
    reported: Option<ReplicaState>,
    /// When the series were last shown, how long that took, and the messages that they contain.
    last_show: (UnixNanos, Duration, u64),
    /// The last question to the store whose answer is shown.
    confirmed: watch::Sender<u64>,
    /// The time of the store that the shown series have: everything until then is in them.
    shown_as_of: UnixNanos,
    /// Whether the receiver has stopped. It is locked while a step tells others of the replica.
    has_stopped: Arc<Mutex<bool>>,
}

impl Replica {
    pub(super) fn new(
        base: Context,
        config: &PartialsReceiverConfig,
        cluster: Arc<Cluster>,
        composites: Vec<Arc<Composite>>,
        table: Arc<Table>,
    ) -> Result<Self, ComponentError> {
        let bounds = base.shared.memory.bounds_of_tables();
        let budget = Arc::new(Budget::of(bounds.clone()));
        let declarations = composites.iter().map(|composite| composite.declaration().clone());
        let reader = PageReader::new(config.reader(&cluster), declarations.collect(), &budget);
        let mut reader = reader.map_err(|error| base.error(format!("composites: {error}")))?;
        let configured = config.expected();
        reader.expect(configured.clone());
        // No other process has this name.
        let holder = format!(
            "{}-{:016x}",
            rustix::system::uname().nodename().to_string_lossy(),
            rand::random::<u64>()
        );
        Ok(Self {
            leader: ClusterLeader::new(LeaderConfig::new(cluster.name(), &holder)),
            base,
            cluster,
            reader,
            configured,
            nodes: None,
            expected_nodes: Arc::default(),
            composites,
            shown: ShownSeries::new(table),
            claims: Arc::default(),
            bounds,
            max_lag: config.max_lag,
            last_sweep: 0,
            reported: None,
            last_show: (0, Duration::ZERO, 0),
            confirmed: watch::Sender::new(0),
            shown_as_of: 0,
            has_stopped: Arc::default(),
        })
    }

    /// Expects these nodes too, and follows their changes.
    pub(super) fn expect_nodes(&mut self, nodes: watch::Receiver<Arc<ExpectedNodes>>) {
        self.nodes = Some(nodes);
    }

    fn follow_nodes(&mut self) {
        let Some(nodes) = &self.nodes else { return };
        let now = nodes.borrow().clone();
        if Arc::ptr_eq(&now, &self.expected_nodes) {
            return;
        }
        let names = self.configured.iter().chain(&now.names);
        self.reader.expect(names.cloned().collect());
        self.expected_nodes = now;
    }

    /// Takes an input, and gives the calls that are due then. It may take long.
    pub(super) fn step(&mut self, input: ReplicaInput) -> ReplicaCalls {
        let (now, begun) = (unix_now(), Instant::now());
        match input {
            ReplicaInput::Read(events) => {
                for event in events {
                    // A replica that is slow takes it late. It says nothing of the time since then.
                    let waited = match event {
                        StoreEvent::Current(_, _, said) => begun.saturating_duration_since(said),
                        _ => Duration::ZERO,
                    };
                    let at = now.saturating_sub(nanos(waited));
                    if unless_panic(|| self.reader.event(event, at)).is_none() {
                        self.reader.note_failure();
                    }
                }
                self.show_confirmed(now);
            }
            ReplicaInput::Lead(events) => {
                for event in events {
                    unless_panic(|| self.leader.event(event, &mut self.reader, now));
                }
            }
            ReplicaInput::Tick => self.tick(now),
        }
        // Exporters let go of the increases that the table shows, so only of those.
        let is_shown = self.reader.is_ready(now) && self.last_show.2 == self.messages();
        let leads = self.is_leader(now);
        let Self { reader, leader, .. } = self;
        self.claims.exchange(leader, reader, is_shown, leads, now);
        ReplicaCalls {
            reader: calls_of(|| reader.poll()),
            leader: calls_of(|| leader.poll(reader, now)),
        }
    }

    fn tick(&mut self, now: UnixNanos) {
        let begun = Instant::now();
        self.follow_nodes();
        let is_sweep_due = now.saturating_sub(self.last_sweep) >= nanos(SWEEP);
        if is_sweep_due {
            self.last_sweep = now;
            self.reader.set_max_bytes(self.bounds.bytes());
            self.reader.tick(now);
        }
        let status = self.reader.status(now);
        let is_ready = unready(&status).is_none();
        if let Some(election) = self.cluster.election() {
            election.stand(is_ready);
        }
        if is_ready && self.is_show_due(now) {
            self.show(now);
        }
        self.show_confirmed(now);
        // Without new messages, the shown series are those of now.
        if is_ready && self.last_show.2 == self.messages() {
            self.note_shown();
        }
        let leads = self.is_leader(now);
        let has_stopped = self.has_stopped.clone();
        let has_stopped = has_stopped.lock();
        if *has_stopped {
            // What the receiver said when it stopped stays.
            return;
        }
        self.cluster.note_leading(is_ready && leads);
        self.log_readiness(&status);
        if is_sweep_due || self.reported != Some(status.state) {
            self.reported = Some(status.state);
            report::report(
                &self.base,
                &self.cluster,
                &mut self.reader,
                &self.leader,
                &self.shown,
                leads,
                now,
            );
        }
        // Readers may come when the series and the warnings are there.
        self.hold(&status, now, begun);
    }

    /// Logs that readers get values from now on, or no longer.
    fn log_readiness(&self, status: &ReplicaStatus) {
        let was_ready = self.reported.is_some_and(|state| unready_in(state).is_none());
        let cluster = self.cluster.name();
        match (was_ready, unready(status)) {
            (false, None) => tracing::info!(
                cluster,
                reporting = status.reporting,
                expected = status.expected,
                "the replica is ready: it has read the store"
            ),
            (true, Some(reason)) => tracing::warn!(
                cluster,
                reason,
                "the replica is not ready: readers of metrics get 503 until it has read the store"
            ),
            _ => {}
        }
    }

    /// Whether this replica is the one that exports, by the election that the options name.
    fn is_leader(&self, now: UnixNanos) -> bool {
        match self.cluster.election() {
            Some(election) => election.is_leading(),
            None => self.leader.is_leading(now),
        }
    }

    /// Says until when readers may come: while the shown series are not too old. Both times are those of the beginning: to
    /// show them may take long.
    fn hold(&self, status: &ReplicaStatus, now: UnixNanos, at: Instant) {
        let (health, path) = (&self.base.shared.health, &self.base.path);
        if health.phase() == Phase::Stopping {
            return health.hold(path, Some(STOPPING));
        }
        let lag = Duration::from_nanos(now.saturating_sub(self.shown_as_of));
        let end = at.checked_add(self.max_lag.saturating_sub(lag));
        match (unready(status), end) {
            (None, Some(end)) => health.hold_from(path, "stale", end),
            (why, _) => health.hold(path, why),
        }
    }

    /// Shows the values that readers wait for, and lets them continue.
    fn show_confirmed(&mut self, now: UnixNanos) {
        let confirmed = self.reader.confirmed();
        if confirmed == *self.confirmed.borrow() || !self.reader.is_ready(now) {
            return;
        }
        if self.last_show.2 != self.messages() {
            if !self.is_rested(now) {
                return;
            }
            self.show(now);
        }
        self.confirmed.send_replace(confirmed);
    }

    /// Whether there are new messages, or the shown values need a confirmation.
    fn is_show_due(&self, now: UnixNanos) -> bool {
        let (at, _, messages) = self.last_show;
        let is_old = now.saturating_sub(at) >= nanos(SWEEP);
        self.is_rested(now) && (is_old || messages != self.messages())
    }

    /// Whether the last show was long ago, compared with the time that it took.
    fn is_rested(&self, now: UnixNanos) -> bool {
        let (at, took, _) = self.last_show;
        now.saturating_sub(at) >= nanos(rest_after(took, self.max_lag))
    }

    fn messages(&self) -> u64 {
        let stats = self.reader.stats();
        stats.pages + stats.records
    }

    fn show(&mut self, now: UnixNanos) {
        let (begun, messages) = (Instant::now(), self.messages());
        self.shown.show(self.reader.merged(), now);
        for composite in &self.composites {
            if let Some(answers) = self.reader.answers(&composite.declaration().name, now) {
                composite.publish(answers);
            }
        }
        self.last_show = (now, begun.elapsed(), messages);
        self.note_shown();
    }

    /// Notes that the shown series have all that the reader knows.
    fn note_shown(&mut self) {
        self.shown_as_of = self.reader.caught_up_at().unwrap_or_default();
    }

    /// Changes to the last question to the store whose answer is shown.
    pub(super) fn confirmed(&self) -> watch::Receiver<u64> {
        self.confirmed.subscribe()
    }

    /// Whether the receiver has stopped. A step may end after that: then it tells nobody of the replica.
    pub(super) fn has_stopped(&self) -> &Arc<Mutex<bool>> {
        &self.has_stopped
    }

    /// The claims of deltas.
    pub(super) fn claims(&self) -> &Arc<ClaimBoard> {
        &self.claims
    }

    /// Whether readers may trust the table now.
    pub(super) fn is_ready(&self) -> bool {
        unready(&self.reader.status(unix_now())).is_none()
    }
}

/// Names the producers of a merged series. It does not keep the replica, which has the table that has this.
#[derive(Debug)]
pub(super) struct ReplicaSources(pub(super) Weak<Mutex<Replica>>);

impl SourceList for ReplicaSources {
    fn sources_of(&self, series: &Series, now: UnixNanos) -> Option<Vec<SeriesSource>> {
        // The driver holds the lock for one step at a time.
        let sources = self.0.upgrade()?.lock().reader.sources_of(series, now);
        (!sources.is_empty()).then_some(sources)
    }
}

/// Does a part of a step. A panic, which the log has, ends this part only. A machine waits for the answer to each of its calls, so
/// no other call or answer may get lost: the replica would stay `stale`.
fn unless_panic<R>(part: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(part)).ok()
}

/// The calls that are due. If the machine panics, the others follow with the next event or tick.
fn calls_of(mut poll: impl FnMut() -> Option<(CallId, StoreCall)>) -> Vec<(CallId, StoreCall)> {
    std::iter::from_fn(|| unless_panic(&mut poll).flatten())
        .take(CALLS_AT_ONCE)
        .collect()
}

/// The time between the beginnings of two shows. A slow machine shows the series before they are too old for readers.
pub(super) fn rest_after(took: Duration, max_lag: Duration) -> Duration {
    (took * SHOW_SHARE).min((max_lag / 2).max(took * 2))
}

/// Why readers must not trust the replica; `None`: they may.
pub(super) fn unready(status: &ReplicaStatus) -> Option<&'static str> {
    unready_in(status.state)
}

fn unready_in(state: ReplicaState) -> Option<&'static str> {
    match state {
        ReplicaState::CatchingUp => Some("catching up"),
        ReplicaState::Stale => Some("stale"),
        ReplicaState::Fresh | ReplicaState::Partial => None,
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
