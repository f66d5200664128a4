// SPDX-License-Identifier: Apache-2.0

//! A group of rules: its timer and its evaluations, which run on background threads.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidegate_engine::{Key, UnixNanos, clock};
use tidegate_promql::Millis;
use tidegate_rules::{AlertState, GroupState, RuleDefinition, RuleGroup, SavedAlerts, save};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::alertmanager::UnsentAlerts;
use super::backend::{KnownSources, LiveBackend, address};
use super::engine::RuleEngine;
use super::metrics::GroupMetrics;
use super::millis as millis_of;
use crate::component::shared::Phase;
use crate::component::worker::Turns;
use crate::component::{Held, ReadToken, unix_now};
use crate::extensions::rule_status::{GroupReport, RuleState};
use crate::prom::catalog::millis;

/// Evaluations at a time. Further ones wait, and heavy queries of readers do not wait with them.
static EVALUATIONS: Turns = Turns::of(4);

/// Alerts that have not changed are kept again after this time: with them goes the time for which they were pending.
const KEEP_AGAIN: Duration = Duration::from_secs(1);

/// The part of a group that evaluations change.
pub(super) struct Evaluated {
    pub(super) state: GroupState,
    sources: KnownSources,
    /// What both take of the memory.
    held: Held,
}

impl Evaluated {
    /// Counts the present state in the account of memory. The limits on samples and alerts bound how much one evaluation adds.
    fn count(&mut self) {
        const ENTRY: usize = 2 * size_of::<Key>();
        let sources: usize = self.sources.values().map(HashSet::len).sum();
        self.held.keep(self.state.bytes() + sources * ENTRY);
    }
}

/// A group that an instance leaves to its successor.
pub(super) enum LeftGroup {
    Ended(Evaluated),
    /// Its last evaluation is under way.
    Busy(Arc<GroupRun>),
}

impl LeftGroup {
    /// The rules.
    pub(super) fn group(&self) -> &RuleGroup {
        match self {
            Self::Ended(left) => left.state.group(),
            Self::Busy(left) => &left.group,
        }
    }

    /// Whether its last evaluation is under way.
    pub(super) fn is_busy(&self) -> bool {
        match self {
            Self::Ended(_) => false,
            Self::Busy(left) => left.evaluated.is_locked(),
        }
    }

    /// The states of its rules before its last evaluation has ended.
    fn rule_states(&self) -> Vec<RuleState> {
        match self {
            Self::Ended(left) => rule_states(&left.state, &|_| Duration::ZERO),
            Self::Busy(left) => left.report().rules.clone(),
        }
    }

    /// Its alerts as they are kept.
    pub(super) fn kept(&self, at: Millis) -> Option<Arc<[u8]>> {
        match self {
            Self::Ended(left) => Some(save([&left.state], at).into()),
            Self::Busy(left) => left.kept(),
        }
    }

    /// Its state after its last evaluation, and the alerts that nobody has sent. It blocks the thread, at most for the time
    /// limits of the queries.
    pub(super) fn wait(self) -> (Option<Evaluated>, Vec<UnsentAlerts>) {
        match self {
            Self::Ended(left) => (Some(left), Vec::new()),
            Self::Busy(left) => left.wait_for_state(),
        }
    }
}

/// The alerts of a group as they are kept.
#[derive(Default)]
struct KeptAlerts {
    bytes: Option<Arc<[u8]>>,
    /// A hash of the alerts in `bytes`.
    hash: u64,
    at: Option<Instant>,
}

/// A group that is evaluated.
pub(super) struct GroupRun {
    engine: Arc<RuleEngine>,
    group: Arc<RuleGroup>,
    interval: Duration,
    /// `None`: the group has ended.
    evaluated: Mutex<Option<Evaluated>>,
    /// The group of the instance before, until the first evaluation here. If the instance stops before it, because a reload has
    /// failed, the next one gets it whole: also what this group does not need.
    predecessor: Mutex<Option<LeftGroup>>,
    report: Mutex<Arc<GroupReport>>,
    kept: Mutex<KeptAlerts>,
    metrics: GroupMetrics,
}

impl GroupRun {
    /// A group that is not evaluated yet.
    pub(super) fn new(engine: Arc<RuleEngine>, group: Arc<RuleGroup>) -> Self {
        let configured = group.interval.and_then(|interval| u64::try_from(interval).ok());
        let interval = configured.map_or(engine.config.interval, Duration::from_millis);
        let report = GroupReport {
            group: group.clone(),
            interval,
            evaluated: None,
            took: Duration::ZERO,
            rules: Vec::new(),
        };
        let sources = group.rules.iter();
        let sources = sources.map(|rule| (address(&rule.expr), HashSet::new()));
        Self {
            evaluated: Mutex::new(Some(Evaluated {
                state: GroupState::new(group.clone(), engine.options.clone()),
                sources: sources.collect(),
                held: Held::ours(engine.shared.memory.clone()),
            })),
            predecessor: Mutex::default(),
            report: Mutex::new(Arc::new(report)),
            kept: Mutex::default(),
            metrics: GroupMetrics::new(&engine.component, &format!("{};{}", group.file, group.name)),
            interval,
            group,
            engine,
        }
    }

    /// Whether it is the successor of this group: the same name in the same file.
    pub(super) fn succeeds(&self, other: &RuleGroup) -> bool {
        self.group.file == other.file && self.group.name == other.name
    }

    /// Takes over the state of its predecessor, at the first evaluation.
    pub(super) fn adopt(&self, previous: LeftGroup) {
        self.show(previous.group(), &previous.rule_states());
        *self.predecessor.lock() = Some(previous);
    }

    fn adopt_into(&self, evaluated: &mut Evaluated, previous: Evaluated) {
        // A dead source would otherwise be forgotten, and its alerts would resolve.
        let group = previous.state.group().clone();
        let mut known: HashMap<String, HashSet<Key>> = HashMap::new();
        for rule in &group.rules {
            let sources = previous.sources.get(&address(&rule.expr));
            if let Some(sources) = sources.filter(|sources| !sources.is_empty()) {
                known.insert(rule.expr.to_string(), sources.clone());
            }
        }
        for rule in self.group.rules.iter().filter(|_| !known.is_empty()) {
            if let Some(sources) = known.get(&rule.expr.to_string()) {
                evaluated.sources.insert(address(&rule.expr), sources.clone());
            }
        }
        evaluated.state.adopt(previous.state);
        evaluated.count();
    }

    /// Shows states of rules that are taken over from `earlier`: alerts must not seem to be away until the first evaluation.
    fn show(&self, earlier: &RuleGroup, states: &[RuleState]) {
        let numbers = self.group.predecessors(earlier).into_iter();
        let rules = numbers.map(|number| {
            let state = number.and_then(|number| states.get(number));
            state.cloned().unwrap_or_default()
        });
        Arc::make_mut(&mut self.report.lock()).rules = rules.collect();
    }

    /// Waits for the last evaluation of the predecessor, and takes over its state and what it has not sent.
    fn adopt_predecessor(&self, evaluated: &mut Evaluated) {
        let predecessor = self.predecessor.lock().take();
        let Some(predecessor) = predecessor else {
            return;
        };
        let (previous, unsent) = predecessor.wait();
        if let Some(previous) = previous {
            self.adopt_into(evaluated, previous);
        }
        self.engine.send_unsent(unsent);
    }

    /// Takes over alerts that a previous run has kept. Returns their number.
    pub(super) fn restore(&self, saved: &mut SavedAlerts, at: Millis) -> usize {
        match &mut *self.evaluated.lock() {
            Some(evaluated) => {
                let restored = saved.restore(&mut evaluated.state, at);
                self.show(&self.group, &rule_states(&evaluated.state, &|_| Duration::ZERO));
                restored
            }
            None => 0,
        }
    }

    /// Ends the group, and leaves its state to its successor. A group that was never evaluated leaves its predecessor.
    pub(super) fn leave(self: &Arc<Self>) -> LeftGroup {
        let left = self.evaluated.try_lock().and_then(|mut evaluated| {
            let own = evaluated.take().map(LeftGroup::Ended);
            self.predecessor.lock().take().or(own)
        });
        left.unwrap_or_else(|| LeftGroup::Busy(self.clone()))
    }

    /// The same after the evaluation that is under way, with the alerts that nobody has sent.
    fn wait_for_state(&self) -> (Option<Evaluated>, Vec<UnsentAlerts>) {
        let mut evaluated = self.evaluated.lock();
        let own = evaluated.take();
        let predecessor = self.predecessor.lock().take();
        let (left, mut unsent) = predecessor.map_or((own, Vec::new()), LeftGroup::wait);
        unsent.extend(self.engine.take_unsent());
        (left, unsent)
    }

    /// Does something while an evaluation seems to be under way.
    #[cfg(test)]
    pub(super) fn during_evaluation<T>(&self, act: impl FnOnce() -> T) -> T {
        let _evaluated = self.evaluated.lock();
        act()
    }

    /// The state after the last evaluation.
    pub(super) fn report(&self) -> Arc<GroupReport> {
        self.report.lock().clone()
    }

    /// Keeps the alerts that it has taken over. Until its first evaluation, the storage has those.
    pub(super) fn keep_taken(&self, at: Millis) {
        let evaluated = self.evaluated.lock();
        let states = evaluated.iter().map(|evaluated| &evaluated.state);
        let kept = match &*self.predecessor.lock() {
            Some(previous) => previous.kept(at),
            None => Some(save(states, at).into()),
        };
        self.kept.lock().bytes = kept;
    }

    /// The alerts of the last evaluation as they are kept.
    pub(super) fn kept(&self) -> Option<Arc<[u8]>> {
        self.kept.lock().bytes.clone()
    }

    /// Evaluates at each interval, until it is stopped.
    pub(super) async fn run(self: Arc<Self>, stopping: CancellationToken) {
        let interval = u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX).max(1);
        let mut due = first_slot(unix_now(), interval, self.phase(interval));
        loop {
            let rest = Duration::from_nanos(due.saturating_sub(unix_now()));
            tokio::select! {
                () = sleep(rest) => {}
                () = stopping.cancelled() => return,
            }
            let group = self.clone();
            // A panic is in the log. The next evaluation goes on.
            EVALUATIONS
                .in_background(move || group.evaluate_if_ready(due))
                .await;
            let (next, missed) = next_slot(due, interval, unix_now());
            self.metrics.missed.increment(missed);
            due = next;
        }
    }

    /// The distance of its evaluations from the multiples of the interval: groups with equal intervals share the time.
    fn phase(&self, interval: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.group.file, &self.group.name).hash(&mut hasher);
        hasher.finish() % interval
    }

    /// Evaluates the rules if the gateway is ready. Tables that are not complete yet would let alerts resolve.
    pub(super) fn evaluate_if_ready(&self, due: UnixNanos) {
        let health = &self.engine.shared.health;
        if health.phase() == Phase::Ready
            && let Ok(read) = health.begin_read()
        {
            self.evaluate(due, read);
        }
    }

    /// Evaluates the rules on the present. `due` is the time of the evaluation for alerts and samples: if the time at which it
    /// begins counted, an alert would miss its `for` by some milliseconds, and fire an interval later.
    pub(super) fn evaluate(&self, due: UnixNanos, read: ReadToken) {
        let mut evaluated = self.evaluated.lock();
        let Some(evaluated) = &mut *evaluated else {
            return;
        };
        let at = millis(clock::wall(due));
        // Series that rules of another group record now begin again after their end.
        self.engine.orphans.end(&self.engine, at - 1);
        self.adopt_predecessor(evaluated);
        let Evaluated { state, sources, .. } = &mut *evaluated;
        let (began, now) = (Instant::now(), unix_now());
        let late = millis(clock::wall(now)).saturating_sub(at).max(0);
        let mut backend = LiveBackend::new(&self.engine, (now, late), read, sources);
        let summary = state.evaluate(at, &mut backend);
        let took_by_query = backend.took;
        let (resend_delay, interval) = (self.engine.config.resend_delay, self.interval);
        let alerts = state.due_alerts(at, millis_of(resend_delay), millis_of(interval));
        self.engine.send(&alerts);
        drop(alerts);
        let took = began.elapsed();
        self.metrics.evaluations.increment(self.group.rules.len() as u64);
        self.metrics.failures.increment(summary.failures as u64);
        let template_errors = summary.template_errors as u64;
        self.metrics.template_errors.increment(template_errors);
        self.metrics.duration.record(took.as_secs_f64());
        let took_of = |rule: &RuleDefinition| {
            let took = took_by_query.get(&address(&rule.expr));
            took.copied().unwrap_or_default()
        };
        let report = GroupReport {
            group: self.group.clone(),
            interval: self.interval,
            evaluated: Some(at),
            took,
            rules: rule_states(state, &took_of),
        };
        if self.engine.config.storage.is_some() {
            self.keep(state, &report, at);
        }
        evaluated.count();
        *self.report.lock() = Arc::new(report);
    }

    /// Saves the alerts if they have changed.
    fn keep(&self, state: &GroupState, report: &GroupReport, at: Millis) {
        let mut hasher = DefaultHasher::new();
        state.waiting().hash(&mut hasher);
        for (number, rule) in report.rules.iter().enumerate() {
            for alert in &rule.alerts {
                (number, &alert.labels, alert.active_at, alert.fired_at).hash(&mut hasher);
            }
        }
        let hash = hasher.finish();
        let mut kept = self.kept.lock();
        let has_alerts = report.rules.iter().any(|rule| !rule.alerts.is_empty());
        let is_old = kept.at.is_none_or(|at| at.elapsed() >= KEEP_AGAIN);
        if kept.hash != hash || kept.at.is_none() || (has_alerts && is_old) {
            *kept = KeptAlerts {
                bytes: Some(save(std::iter::once(state), at).into()),
                hash,
                at: Some(Instant::now()),
            };
        }
    }
}

/// The state of each rule with its alerts.
fn rule_states(state: &GroupState, took_of: &dyn Fn(&RuleDefinition) -> Duration) -> Vec<RuleState> {
    let rules = &state.group().rules;
    let mut states: Vec<RuleState> = rules
        .iter()
        .zip(state.health())
        .map(|(rule, health)| RuleState {
            health: health.clone(),
            took: took_of(rule),
            alerts: Vec::new(),
        })
        .collect();
    let numbers = rules.iter().map(std::ptr::from_ref).zip(0usize..);
    let numbers: HashMap<*const RuleDefinition, usize> = numbers.collect();
    for (rule, alert) in state.alerts() {
        let number = numbers.get(&std::ptr::from_ref(rule)).copied();
        let of_rule = number.and_then(|number| states.get_mut(number));
        if let Some(of_rule) = of_rule.filter(|_| alert.state != AlertState::Inactive) {
            of_rule.alerts.push(alert.clone());
        }
    }
    states
}

/// The first time after `now` that is `phase` after a multiple of the interval.
fn first_slot(now: UnixNanos, interval: u64, phase: u64) -> UnixNanos {
    let since = now.saturating_sub(phase) % interval;
    now.saturating_add(interval - since)
}

/// The next time after an evaluation that was due at `due`, and the number of times that were missed. A time that is over
/// by less than an interval is not missed.
fn next_slot(due: UnixNanos, interval: u64, now: UnixNanos) -> (UnixNanos, u64) {
    let next = due.saturating_add(interval);
    let missed = now.saturating_sub(next) / interval;
    (next.saturating_add(missed.saturating_mul(interval)), missed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_evaluation_is_at_most_an_interval_away() {
        assert_eq!(first_slot(1000, 100, 30), 1030);
        assert_eq!(first_slot(1030, 100, 30), 1130);
        assert_eq!(first_slot(1029, 100, 30), 1030);
        assert_eq!(first_slot(1000, 100, 0), 1100);
    }

    #[test]
    fn evaluations_keep_their_phase_and_missed_ones_are_counted() {
        assert_eq!(next_slot(1000, 100, 1010), (1100, 0));
        assert_eq!(next_slot(1000, 100, 1199), (1100, 0), "late, not missed");
        assert_eq!(next_slot(1000, 100, 1200), (1200, 1));
        assert_eq!(next_slot(1000, 100, 1450), (1400, 3));
    }
}
