// SPDX-License-Identifier: Apache-2.0

//! `rules`: evaluates Prometheus rule files on the live tables.
//!
//! Each group has a task with its timer (`group`). Its evaluations run on background threads, never on the path of data.
//! Their queries read the view that the `admin` extension answers from (`backend`). Recorded series are a table that
//! queries and pages read, and the `rules` receiver pushes. Alerts wait in a queue for each Alertmanager
//! (`alertmanager`), and show in the API of `admin`. A storage keeps them over a restart (`saved`), and the gateway over a
//! reload. What a reload removes (`orphans`) ends at the first evaluation after it: a reload may still fail until then.

mod alertmanager;
mod backend;
mod config;
mod engine;
mod files;
mod group;
mod metrics;
mod orphans;
mod paths;
mod payload;
mod saved;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use tidegate_engine::{Table, clock};
use tidegate_promql::Millis;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use self::alertmanager::{UnsentAlerts, count_unsent};
use self::config::RulesConfig;
use self::engine::RuleEngine;
use self::files::LoadedRules;
pub use self::files::{ContentKeys, RuleFiles};
use self::group::{GroupRun, LeftGroup};
use self::orphans::Orphans;
use self::saved::{AlertsFile, NotKept};
use super::rule_status::{GroupReport, ReportsRules, RuleReporters};
use crate::component::shared::Phase;
use crate::component::worker::in_background;
use crate::component::{
    ComponentError, ConfigType, Context, ErrorDoc, Extension, ExtensionFactory, Factory, Lifecycle, Shared,
    Stability, unix_now,
};
use crate::prom::catalog::{PastNeed, millis as millis_at};

/// The interval at which changed alerts are written and old recorded series expire.
const ATTEND: Duration = Duration::from_secs(1);

/// The state of an instance that has stopped is for its successor only if this starts within this time.
const SUCCESSION: Duration = Duration::from_secs(120);

/// The errors of `rules`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::logged(
        "No file matches a glob of `files`.",
        "no rule file matches",
        "Correct the glob, or add the files.",
    ),
    ErrorDoc::logged(
        "The Alertmanager refuses alerts. The extension drops them.",
        "the Alertmanager refuses alerts, which are dropped",
        "Correct the labels or annotations that the line names.",
    ),
    ErrorDoc::logged(
        "The Alertmanager can't be reached. The alerts wait.",
        "the Alertmanager takes no alerts, they wait",
        "Check the address and the network.",
    ),
    ErrorDoc::logged(
        "The state of alerts can't be stored.",
        "alerts are not kept: a restart begins their `for` again",
        "Raise `max_size` of the storage extension, or repair the disk.",
    ),
    ErrorDoc::logged(
        "The stored state of alerts is damaged.",
        "kept alerts are damaged: their `for` begins again",
        "Check the disk.",
    ),
];

/// The factory of `rules`.
pub static FACTORY: ExtensionFactory = Factory {
    kind: "rules",
    aliases: &[],
    stability: Stability::Alpha,
    help: "evaluates Prometheus recording and alerting rules on the live tables",
    errors: &[ERRORS],
    config: ConfigType::of::<RulesConfig>(),
    build: |settings, cx| Ok(Arc::new(RulesExtension::new(settings.get(), cx)?)),
};

fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX / 4)
}

/// What an instance that has stopped leaves to its successor, by the id of the extension.
#[derive(Default)]
struct Transfers(Mutex<HashMap<String, Transfer>>);

/// The state of an instance that has stopped.
struct Transfer {
    since: Instant,
    groups: Vec<LeftGroup>,
    /// The alerts that were not sent, by Alertmanager.
    alerts: Vec<UnsentAlerts>,
}

struct RulesExtension {
    base: Context,
    config: Arc<RulesConfig>,
    loaded: LoadedRules,
    /// Keeps the history as long as the rules read it, until this instance has gone.
    _need: Arc<PastNeed>,
    engine: Arc<RuleEngine>,
    groups: RunningGroups,
    file: Mutex<Option<Arc<AlertsFile>>>,
    /// What the API shows. It is one value, so that it can be removed.
    reporter: Arc<dyn ReportsRules>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    senders: Mutex<Vec<JoinHandle<()>>>,
    /// Whether it has taken over a state, which must not get lost if the start fails.
    has_adopted: AtomicBool,
    /// Evaluations end first, and then the senders send the rest.
    stopping: CancellationToken,
    stopping_senders: CancellationToken,
}

/// The groups of an extension, in the order of the files.
type RunningGroups = Arc<[Arc<GroupRun>]>;

/// The state of all groups, for the API.
struct GroupReporter {
    groups: RunningGroups,
    engine: Arc<RuleEngine>,
}

impl ReportsRules for GroupReporter {
    fn groups(&self) -> Vec<Arc<GroupReport>> {
        self.groups.iter().map(|group| group.report()).collect()
    }

    fn alertmanagers(&self) -> Vec<String> {
        let all = self.engine.alertmanagers.iter();
        all.map(|one| one.shown().to_owned()).collect()
    }
}

impl RulesExtension {
    fn new(config: Arc<RulesConfig>, base: Context) -> Result<Self, ComponentError> {
        let loaded = LoadedRules::load(&config.files, millis(config.query_offset));
        let loaded = loaded.map_err(|error| base.error(error.to_string()))?;
        let engine = Arc::new(RuleEngine::new(config.clone(), &base)?);
        let groups = loaded.groups.iter();
        let groups: RunningGroups = groups
            .map(|group| Arc::new(GroupRun::new(engine.clone(), group.clone())))
            .collect();
        Ok(Self {
            reporter: Arc::new(GroupReporter {
                groups: groups.clone(),
                engine: engine.clone(),
            }),
            base,
            config,
            _need: engine.view.need_past(loaded.needed_ms()),
            loaded,
            engine,
            groups,
            file: Mutex::default(),
            tasks: Mutex::default(),
            senders: Mutex::default(),
            has_adopted: AtomicBool::new(false),
            stopping: CancellationToken::new(),
            stopping_senders: CancellationToken::new(),
        })
    }

    fn check_history(&self) -> Result<(), ComponentError> {
        let checked = self.loaded.check_reach(self.engine.view.past_limits());
        checked.map_err(|error| self.base.error(error.to_string()))
    }

    /// Takes over the state of the instance before this one. `false`: there was none.
    fn adopt(&self) -> bool {
        let transfers = self.base.shared.parts.get(Transfers::default);
        let left = transfers.0.lock().remove(&*self.base.id);
        let Some(left) = left.filter(|left| left.since.elapsed() < SUCCESSION) else {
            return false;
        };
        for previous in left.groups {
            let mut groups = self.groups.iter();
            match groups.find(|group| group.succeeds(previous.group())) {
                Some(successor) => successor.adopt(previous),
                None => self.engine.orphans.add(previous),
            }
        }
        self.engine.send_unsent(left.alerts);
        self.has_adopted.store(true, Relaxed);
        true
    }

    /// Leaves the state to the next instance. When the gateway stops, there is none.
    fn leave(&self) {
        let shared = &self.base.shared;
        if shared.health.phase() == Phase::Stopping {
            for (alertmanager, alerts) in self.engine.take_unsent() {
                count_unsent(&self.base.id, &alertmanager, alerts.len());
            }
            return;
        }
        let since = Instant::now();
        let groups = self.groups.iter().map(GroupRun::leave);
        let transfer = Transfer {
            since,
            groups: groups.chain(self.engine.orphans.leave()).collect(),
            // After the groups: the last evaluation of one that has ended has sent its alerts.
            alerts: self.engine.take_unsent(),
        };
        let transfers = shared.parts.get(Transfers::default);
        transfers.0.lock().insert(self.base.id.to_string(), transfer);
        tokio::spawn(discard(shared.clone(), self.base.id.clone(), since));
    }

    /// Opens the storage. Alerts that it has kept go to groups that have no predecessor.
    async fn open(&self, restores: bool) -> Result<(), ComponentError> {
        let Some(storage) = &self.config.storage else {
            return Ok(());
        };
        let storage = self.base.storage("storage", storage)?;
        let file = Arc::new(AlertsFile::of(storage, &self.base.path));
        *self.file.lock() = Some(file.clone());
        let (groups, engine) = (self.groups.clone(), self.engine.clone());
        let restoring = in_background(move || {
            let at = millis_at(clock::wall(unix_now()));
            let mut saved = if restores { file.read()? } else { Vec::new() };
            let mut restored = 0;
            for alerts in &mut saved {
                for group in &*groups {
                    restored += group.restore(alerts, at);
                }
            }
            groups.iter().for_each(|group| group.keep_taken(at));
            engine.orphans.keep(at);
            Ok::<_, NotKept>(restored)
        });
        let restored = restoring
            .await
            .map_err(|error| self.base.error(error.to_string()))?;
        let restored = restored.map_err(|error| self.base.error(format!("storage: {error}")))?;
        if restores {
            tracing::info!(extension = %self.base.id, alerts = restored, "the alerts are restored");
        }
        Ok(())
    }

    /// The task that keeps alerts and lets old series expire.
    fn attend(&self) -> JoinHandle<()> {
        let (groups, engine) = (self.groups.clone(), self.engine.clone());
        let (file, id, stopping) = (
            self.file.lock().clone(),
            self.base.id.clone(),
            self.stopping.clone(),
        );
        tokio::spawn(async move {
            let mut ticks = interval(ATTEND);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            let began = Instant::now();
            let mut written: Vec<Arc<[u8]>> = Vec::new();
            let mut fails = false;
            loop {
                tokio::select! {
                    _ = ticks.tick() => {}
                    () = stopping.cancelled() => return,
                }
                let (engine, file) = (engine.clone(), file.clone());
                let kept = kept_alerts(&groups, &engine.orphans).filter(|kept| !is_same(kept, &written));
                let written_now = kept.clone().unwrap_or_default();
                // No evaluation ends orphans if there are no groups.
                let ends_orphans = groups.is_empty()
                    && engine.shared.health.is_readable()
                    && began.elapsed() >= engine.config.interval;
                let attending = in_background(move || {
                    let now = unix_now();
                    if ends_orphans {
                        engine.orphans.end(&engine, millis_at(clock::wall(now)));
                    }
                    engine.recorded.table().expire(now);
                    file.zip(kept).map(|(file, kept)| file.write(&kept))
                });
                // A panic is in the log. The next round continues.
                match attending.await {
                    Ok(Some(Ok(()))) => (written, fails) = (written_now, false),
                    Ok(Some(Err(error))) if !std::mem::replace(&mut fails, true) => {
                        tracing::error!(extension = %id, %error, "alerts are not kept: a restart begins their `for` again");
                    }
                    _ => {}
                }
            }
        })
    }
}

/// Waits for the successor of an instance, and discards what is there for it if none has come.
async fn discard(shared: Arc<Shared>, id: Arc<str>, since: Instant) {
    sleep(SUCCESSION).await;
    let transfers = shared.parts.get(Transfers::default);
    let discarded = {
        let mut all = transfers.0.lock();
        let is_left = all.get(&*id).is_some_and(|left| left.since == since);
        if is_left { all.remove(&*id) } else { None }
    };
    let Some(discarded) = discarded else {
        return;
    };
    let mut unsent = discarded.alerts;
    // Evaluations that outlasted the stop have sent alerts after it.
    for group in discarded.groups {
        let of_group = in_background(move || group.wait().1).await;
        unsent.extend(of_group.unwrap_or_default());
    }
    for (alertmanager, alerts) in unsent {
        count_unsent(&id, &alertmanager, alerts.len());
    }
}

/// The alerts of all groups as they are kept. `None`: there is no storage.
fn kept_alerts(groups: &[Arc<GroupRun>], orphans: &Orphans) -> Option<Vec<Arc<[u8]>>> {
    let kept: Option<Vec<_>> = groups.iter().map(|group| group.kept()).collect();
    let mut kept = kept?;
    kept.extend(orphans.kept());
    Some(kept)
}

/// Whether both are the same alerts.
fn is_same(one: &[Arc<[u8]>], other: &[Arc<[u8]>]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| Arc::ptr_eq(one, other))
}

/// Waits for tasks until the deadline, and ends the others.
async fn end(tasks: Vec<JoinHandle<()>>, deadline: Instant) {
    for mut task in tasks {
        if timeout_at(deadline.into(), &mut task).await.is_err() {
            task.abort();
        }
    }
}

impl Extension for RulesExtension {
    fn table(&self) -> Option<&Arc<Table>> {
        Some(self.engine.recorded.table())
    }

    /// `admin` may be built later than the rules. In a reload, the old instance must not stop for rules that can't run.
    fn check_needs(&self) -> Result<(), ComponentError> {
        self.check_history()
    }

    fn is_outdated(&self) -> bool {
        self.loaded.is_outdated(&self.config.files)
    }
}

#[async_trait]
impl Lifecycle for RulesExtension {
    async fn start(&self) -> Result<(), ComponentError> {
        // The memory limit, which bounds the history, is known only now.
        self.check_history()?;
        let has_predecessor = self.adopt();
        self.open(!has_predecessor).await?;
        self.engine.recorded.limit(self.config.max_series);
        RuleReporters::of(&self.base.shared).add(self.reporter.clone());
        for missing in &self.loaded.missing {
            tracing::warn!(extension = %self.base.id, glob = missing, "no rule file matches");
        }
        let senders = self.engine.alertmanagers.iter();
        let senders = senders.map(|one| tokio::spawn(one.clone().run(self.stopping_senders.clone())));
        *self.senders.lock() = senders.collect();
        let mut tasks = vec![self.attend()];
        let groups = self.groups.iter();
        tasks.extend(groups.map(|group| tokio::spawn(group.clone().run(self.stopping.clone()))));
        *self.tasks.lock() = tasks;
        tracing::info!(
            extension = %self.base.id,
            groups = self.groups.len(),
            rules = self.loaded.groups.iter().map(|group| group.rules.len()).sum::<usize>(),
            "evaluating rules"
        );
        Ok(())
    }

    async fn stop(&self, deadline: Instant) {
        self.stopping.cancel();
        let tasks = std::mem::take(&mut *self.tasks.lock());
        let was_running = !tasks.is_empty();
        let leaves = self.has_adopted.swap(false, Relaxed) || was_running;
        end(tasks, deadline).await;
        self.stopping_senders.cancel();
        let senders = std::mem::take(&mut *self.senders.lock());
        end(senders, deadline).await;
        let file = self.file.lock().clone();
        if was_running
            && let (Some(file), Some(kept)) = (file, kept_alerts(&self.groups, &self.engine.orphans))
        {
            let written = in_background(move || file.write(&kept)).await;
            if let Ok(Err(error)) = written {
                tracing::error!(extension = %self.base.id, %error, "alerts are not kept: a restart begins their `for` again");
            }
        }
        // After the write, which can take long: the alerts of a reload must not seem to be away.
        RuleReporters::of(&self.base.shared).remove(&self.reporter);
        if leaves {
            self.leave();
        }
    }
}

#[cfg(test)]
mod tests;
