//! The loop over all rings of a receiver.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_ring::{Batch as Columns, Error};

use super::books::Names;
use super::config::Config;
use super::kinds::Selection;
use super::ring::{Look, Outlet, Ring};
use super::watch::Watch;
use crate::component::worker::Pause;
use crate::component::{Context, Entry, Shared};

/// How long a file that could not be opened rests before it is tried again, once it has been reported.
const REJECT_REST: Duration = Duration::from_secs(1);
/// A file that could not be opened is not reported before it has had this long to become a ring.
const REJECT_PATIENCE: Duration = Duration::from_millis(200);

/// All rings of a receiver.
pub(super) struct Drain {
    shared: Arc<Shared>,
    /// Of the receiver in the configuration.
    path: Arc<str>,
    outlet: Outlet,
    consume: bool,
    poll_interval: Duration,
    watch: Watch,
    rings: BTreeMap<PathBuf, Ring>,
    refusals: BTreeMap<PathBuf, Refusal>,
    /// Reused by every drain of every ring.
    columns: Columns,
}

/// A file that could not be opened as a ring.
struct Refusal {
    since: Instant,
    retry: Instant,
    reported: Option<&'static str>,
}

impl Drain {
    pub(super) fn new(config: &Config, base: &Context, entry: Entry) -> Self {
        let hostname: Arc<str> = match config.hostname.as_str() {
            "" => rustix::system::uname().nodename().to_string_lossy().into(),
            configured => configured.into(),
        };
        Self {
            outlet: Outlet {
                receiver: base.id.clone(),
                entry,
                selection: Selection::new(config),
                hostname,
                names: Names::default(),
            },
            shared: base.shared.clone(),
            path: base.path.clone(),
            consume: config.consume,
            poll_interval: config.poll_interval,
            watch: Watch::of(config),
            rings: BTreeMap::new(),
            refusals: BTreeMap::new(),
            columns: Columns::default(),
        }
    }

    /// Until the worker is stopped; every ring is drained a last time then.
    pub(super) fn run(&mut self, pause: &Pause) {
        loop {
            let now = Instant::now();
            self.scan(now);
            self.look(now, |ring, now| ring.due <= now);
            let next = self.rings.values().map(|ring| ring.due).min();
            let wait = next.map_or(self.poll_interval, |due| {
                due.saturating_duration_since(Instant::now())
            });
            if !pause.wait(wait.min(self.poll_interval)) {
                break;
            }
        }
        self.look(Instant::now(), |_, _| true);
    }

    fn look(&mut self, now: Instant, due: impl Fn(&Ring, Instant) -> bool) {
        let (columns, outlet) = (&mut self.columns, &self.outlet);
        self.rings
            .retain(|_, ring| !due(ring, now) || ring.look(columns, outlet, now) == Look::Stays);
    }

    fn scan(&mut self, now: Instant) {
        let Some(files) = self.watch.scan(now) else { return };
        self.shared.notices.set(&self.path, self.watch.missing());
        self.refusals.retain(|path, _| files.contains(path));
        for path in files {
            let rests = self
                .refusals
                .get(&path)
                .is_some_and(|refusal| now < refusal.retry);
            if !rests && !self.rings.contains_key(&path) {
                self.open(path, now);
            }
        }
        let rings = metrics::gauge!("tidegate_nixl_rings", "receiver" => self.outlet.receiver.clone());
        rings.set(self.rings.len() as f64);
    }

    fn open(&mut self, path: PathBuf, now: Instant) {
        match Ring::open(&path, self.consume, self.poll_interval, &self.outlet) {
            Ok(ring) => {
                tracing::debug!(agent = ring.agent(), path = %ring.path().display(), "draining");
                self.refusals.remove(&path);
                self.rings.insert(path, ring);
            }
            Err(error) => self.refuse(&path, &error, now),
        }
    }

    /// Reports a file once a reason, after it has had time to become a ring, and lets it rest.
    fn refuse(&mut self, path: &Path, error: &Error, now: Instant) {
        let fresh = Refusal {
            since: now,
            retry: now,
            reported: None,
        };
        let refusal = self.refusals.entry(path.to_owned()).or_insert(fresh);
        if now < refusal.since + REJECT_PATIENCE {
            return;
        }
        refusal.retry = now + REJECT_REST;
        if refusal.reported == Some(error.reason()) {
            return;
        }
        refusal.reported = Some(error.reason());
        tracing::warn!(%error, "not drained");
        metrics::counter!(
            "tidegate_nixl_rejected_files_total",
            "receiver" => self.outlet.receiver.clone(),
            "reason" => error.reason(),
        )
        .increment(1);
    }
}
