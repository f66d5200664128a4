//! `shm`: reads the cells that processes keep their metrics in (`crates/tidegate-cells`), any number of them, without
//! disturbing the writers.
//!
//! A directory is one thing: its processes' values are merged, those of the dead with them, and go on as running
//! totals of one source. So a worker that is killed, or one that takes its place, changes no total; and what dead
//! processes have counted outlives the gateway in a file beside theirs.

pub mod config;
mod directory;
mod series;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use crate::batch::Signal;
use crate::component::worker::{Pause, Worker};
use crate::component::{
    ComponentError, ConfigType, Context, Entry, Factory, Lifecycle, Receiver, ReceiverFactory, Stability,
};
use config::Config;
use directory::Cells;

/// The factory of `shm`.
pub static FACTORY: ReceiverFactory = Factory {
    kind: "shm",
    aliases: &[],
    signals: &[(Signal::Metrics, Stability::Beta)],
    help: "reads the shared-memory cells of processes that use tidegate's SDK",
    config: ConfigType::of::<Config>(),
    build: |settings, cx| {
        let entry = cx.entry(Signal::Metrics).cloned();
        let entry = entry.ok_or_else(|| cx.base.error("only metrics pipelines can use it"))?;
        Ok(Arc::new(Shm {
            config: settings.get(),
            base: cx.base,
            entry,
            worker: Worker::new("tidegate-shm"),
        }))
    },
};

/// Whatever a look costs, the thread sleeps this many times as long.
const REST: u32 = 3;

struct Shm {
    config: Arc<Config>,
    base: Context,
    entry: Entry,
    worker: Worker,
}

impl Receiver for Shm {}

#[async_trait]
impl Lifecycle for Shm {
    async fn start(&self) -> Result<(), ComponentError> {
        let patterns = match self.config.directories.as_slice() {
            [] => vec![default_pattern().map_err(|error| self.base.error(error.to_string()))?],
            told => told.to_vec(),
        };
        let mut directories = Directories {
            config: self.config.clone(),
            patterns,
            receiver: self.base.id.clone(),
            entry: self.entry.clone(),
            open: BTreeMap::new(),
            refused: BTreeMap::new(),
            listed: None,
        };
        self.worker
            .start(move |pause| directories.run(pause))
            .map_err(|error| self.base.error(error.to_string()))
    }

    /// Looks everywhere a last time before it returns.
    async fn stop(&self, deadline: Instant) {
        self.worker.stop(deadline).await;
    }
}

/// Where writers are when they are told no directory.
fn default_pattern() -> Result<String, tidegate_cells::Error> {
    let directory = tidegate_cells::default_directory()?;
    Ok(glob::Pattern::escape(&directory.to_string_lossy()))
}

/// All directories of a receiver.
struct Directories {
    config: Arc<Config>,
    patterns: Vec<String>,
    receiver: Arc<str>,
    entry: Entry,
    open: BTreeMap<PathBuf, Cells>,
    /// What was listed and is no directory, and why.
    refused: BTreeMap<PathBuf, String>,
    listed: Option<Instant>,
}

impl Directories {
    fn run(&mut self, pause: &Pause) {
        loop {
            let start = Instant::now();
            self.look(start);
            let rest = self.config.poll_interval.max(start.elapsed() * REST);
            if !pause.wait(rest) {
                break;
            }
        }
        self.look(Instant::now());
    }

    fn look(&mut self, now: Instant) {
        let is_due = self
            .listed
            .is_none_or(|listed| now.duration_since(listed) >= self.config.scan_interval);
        if is_due {
            self.listed = Some(now);
            self.list();
        }
        for cells in self.open.values_mut() {
            cells.look(&self.entry, now);
            if is_due {
                self.config.fold.then(|| cells.fold(self.config.grace_period));
            }
        }
        if is_due {
            self.tell();
        }
    }

    /// Takes up directories that are new. One that has gone is as empty as it was when its last file went.
    fn list(&mut self) {
        let patterns = self.patterns.iter();
        let found = patterns.flat_map(|pattern| glob::glob(pattern).into_iter().flatten().flatten());
        for path in found.collect::<Vec<_>>() {
            if self.open.contains_key(&path) {
                continue;
            }
            match Cells::open(&path, self.config.limits(), self.receiver.clone()) {
                Ok(cells) => {
                    tracing::info!(directory = %path.display(), "reading cells");
                    self.refused.remove(&path);
                    self.open.insert(path, cells);
                }
                Err(error) => {
                    let error = error.to_string();
                    if self.refused.get(&path) != Some(&error) {
                        tracing::warn!(%error, "not read");
                        self.refused.insert(path, error);
                    }
                }
            }
        }
    }

    /// What there is, as metrics of the gateway's own.
    fn tell(&self) {
        let mut all = directory::Census::default();
        self.open.values().for_each(|cells| all.add(cells));
        let label = || ("receiver", self.receiver.to_string());
        for (state, count) in [("alive", all.alive), ("dead", all.dead)] {
            metrics::gauge!("tidegate_shm_processes", &[label(), ("state", state.to_owned())])
                .set(count as f64);
        }
        for (reason, count) in [
            ("series", all.refused.series),
            ("room", all.refused.room),
            ("invalid", all.refused.invalid),
        ] {
            metrics::gauge!("tidegate_shm_refused", &[label(), ("reason", reason.to_owned())])
                .set(count as f64);
        }
        metrics::gauge!("tidegate_shm_directories", &[label()]).set(self.open.len() as f64);
        metrics::gauge!("tidegate_shm_series", &[label()]).set(all.series as f64);
        metrics::gauge!("tidegate_shm_unread_files", &[label()]).set(all.problems as f64);
    }
}

/// The shortest time between two looks that makes sense.
const MIN_POLL: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
