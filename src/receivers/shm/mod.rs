// SPDX-License-Identifier: Apache-2.0

//! `shm`: reads the cells in which processes keep their metrics (`crates/tidegate-cells`), for any number of
//! processes, without disturbing the writers.
//!
//! A directory is one source. The values of its processes, including dead ones, are merged into running totals. So
//! killing or replacing a worker changes no total. A file beside theirs keeps the counts of dead processes, so
//! that they outlive the gateway.

pub mod config;
mod directory;
mod paths;
mod repeats;
mod series;
mod starts;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tidegate_cells::Directory;
use tidegate_engine::Attributes;

use crate::batch::Signal;
use crate::component::worker::{Pause, Worker};
use crate::component::{
    ComponentError, ConfigType, Context, Entry, ErrorDoc, Factory, Lifecycle, Receiver, ReceiverFactory,
    Stability,
};
use crate::receivers::kept::{self, Kept};
use crate::receivers::printable::{printable, printable_path};
use config::ShmConfig;
use directory::Cells;
use paths::Listed;
use starts::Starts;

/// The errors of `shm`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::logged(
        "A directory or a file of cells can't be read.",
        "not read",
        "Check the permissions, and the version of the SDK. The line has the cause.",
    ),
    ErrorDoc::logged(
        "The files of ended processes can't be merged.",
        "the files of dead processes could not be merged",
        "Let the gateway write to the directory, and check its free space.",
    ),
    ErrorDoc::logged(
        "Many files of a directory of cells can't be read.",
        "further files are not read",
        "Look at the lines before it, which name the first files.",
    ),
    ErrorDoc::logged(
        "The files of ended processes wait, because another process keeps the lock `.lock` of the directory.",
        "another process keeps the lock of the merge",
        "Find the process with `lslocks`, and end it. Let only the users of the service read the directory.",
    ),
    ErrorDoc::logged(
        "Many directories of cells have come, or paths are not directories.",
        "further paths have no line in the log",
        "Narrow the globs in `directories`.",
    ),
    ErrorDoc::logged(
        "The pipelines refuse cells permanently.",
        "the pipelines refuse these cells permanently",
        "Look at the limits of the processors. The line has the cause.",
    ),
];

/// The factory of `shm`.
pub static FACTORY: ReceiverFactory = Factory {
    kind: "shm",
    aliases: &[],
    stability: &[(Signal::Metrics, Stability::Beta)],
    help: "reads the shared-memory cells of processes that use tidegate's SDK",
    errors: &[ERRORS],
    config: ConfigType::of::<ShmConfig>(),
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

/// The thread sleeps for this multiple of the time of a reading.
const REST: u32 = 3;

/// The time until the next reading, after one that took `elapsed`. Leases must not end meanwhile.
fn rest(poll_interval: Duration, elapsed: Duration) -> Duration {
    let most = directory::LEASE / directory::LEASE_POLLS;
    poll_interval.max(most.min(elapsed.saturating_mul(REST)))
}

struct Shm {
    config: Arc<ShmConfig>,
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
            given => given.to_vec(),
        };
        let mut directories = Directories::new(self.config.clone(), patterns, &self.base, self.entry.clone());
        self.worker
            .start(move |pause| directories.run(pause))
            .map_err(|error| self.base.error(error.to_string()))
    }

    /// Looks everywhere a last time before it returns.
    async fn stop(&self, deadline: Instant) {
        self.worker.stop(deadline).await;
    }
}

/// The default directory of writers.
fn default_pattern() -> Result<String, tidegate_cells::Error> {
    let directory = tidegate_cells::default_directory()?;
    Ok(glob::Pattern::escape(&directory.to_string_lossy()))
}

/// The pairs of directories with one resource that the log names.
const MOST_PAIRS: usize = 5;

/// The refused paths that a receiver remembers.
const MOST_REFUSED: usize = 1000;

/// The lines of the log about new and refused paths in a scan, and about files that are not read, of each directory.
const MOST_LINES: usize = 20;

/// All directories of a receiver.
struct Directories {
    config: Arc<ShmConfig>,
    patterns: Vec<String>,
    receiver: Arc<str>,
    base: Context,
    entry: Entry,
    open: BTreeMap<PathBuf, Cells>,
    /// Those of all receivers of the gateway, also of the receivers before a reload.
    starts: Arc<Starts>,
    /// Listed paths that are not read, with the reason: the first ones.
    refused: BTreeMap<PathBuf, String>,
    /// The number of further ones.
    refused_further: usize,
    /// Room for their contents.
    kept: Kept,
    listed: Option<Instant>,
}

impl Directories {
    fn new(config: Arc<ShmConfig>, patterns: Vec<String>, base: &Context, entry: Entry) -> Self {
        Self {
            config,
            patterns,
            receiver: base.id.clone(),
            base: base.clone(),
            entry,
            open: BTreeMap::new(),
            starts: base.shared.parts.get(Starts::default),
            refused: BTreeMap::new(),
            refused_further: 0,
            kept: Kept::new(&base.shared.memory),
            listed: None,
        }
    }

    fn run(&mut self, pause: &Pause) {
        loop {
            let start = Instant::now();
            self.poll(start);
            if !pause.wait(rest(self.config.poll_interval, start.elapsed())) {
                break;
            }
        }
        self.finish();
    }

    /// Looks a last time. What it has reported no longer holds.
    fn finish(&mut self) {
        self.poll(Instant::now());
        self.base.shared.notices.set(&self.base.path, Vec::new());
        self.record_conflicts(0, 0);
    }

    fn poll(&mut self, now: Instant) {
        let is_due = self
            .listed
            .is_none_or(|listed| now.duration_since(listed) >= self.config.scan_interval);
        // Room that a fold took is there for the file that it made.
        let bytes = self.bytes();
        self.kept.count(bytes);
        if is_due {
            self.open.values_mut().for_each(Cells::renew_lines);
            let is_first = self.listed.is_none();
            self.listed = Some(now);
            self.list(now);
            if is_first {
                self.starts.forget_gone();
            }
            if is_first && self.open.is_empty() && self.refused.is_empty() {
                self.log_nothing_found();
            }
        }
        for cells in self.open.values_mut() {
            cells.poll(&self.entry, now, &mut self.kept);
        }
        let bytes = self.bytes();
        self.kept.set_used(bytes);
        if is_due {
            self.open.values().for_each(Cells::note_whether_gone);
            self.forget_gone();
            self.fold();
            self.report_conflicts();
            self.record_metrics();
        }
    }

    fn fold(&mut self) {
        for cells in self.open.values_mut().filter(|_| self.config.fold) {
            cells.fold(self.config.grace_period, &mut self.kept);
        }
    }

    /// The memory of all directories, in bytes.
    fn bytes(&self) -> usize {
        let refused = self.refused.iter();
        let refused = refused.map(|(path, why)| kept::note(path) + why.len());
        self.open.values().map(Cells::bytes).chain(refused).sum()
    }

    /// Takes up directories that are new, and forgets refused paths that are gone.
    fn list(&mut self, now: Instant) {
        let mut listed: Vec<_> = self
            .patterns
            .iter()
            .flat_map(|pattern| paths::list(pattern))
            .collect();
        // The configuration may name a path that a glob finds too, such as a link. Then the name counts.
        listed.sort_by_key(|listed| listed.is_found);
        let before = std::mem::take(&mut self.refused);
        self.refused_further = 0;
        let mut lines = 0;
        for Listed {
            path,
            is_found,
            refusal,
        } in listed
        {
            if self.open.contains_key(&path) || self.refused.contains_key(&path) {
                continue;
            }
            let opened = match refusal {
                Some(why) => Err(format!("{}: {why}", path.display())),
                None => self.open(&path, is_found, now),
            };
            match opened {
                Ok(cells) => {
                    lines += 1;
                    if lines <= MOST_LINES {
                        let directory = printable_path(&path);
                        tracing::info!(receiver = &*self.receiver, %directory, "reading cells");
                    }
                    self.open.insert(path, cells);
                }
                Err(_) if self.refused.len() >= MOST_REFUSED => self.refused_further += 1,
                Err(error) => {
                    if before.get(&path) != Some(&error) {
                        lines += 1;
                        if lines <= MOST_LINES {
                            let error = printable(&error);
                            tracing::warn!(receiver = &*self.receiver, %error, "not read");
                        }
                    }
                    self.refused.insert(path, error);
                }
            }
        }
        if lines > MOST_LINES {
            let others = lines - MOST_LINES;
            tracing::warn!(
                receiver = &*self.receiver,
                others,
                "further paths have no line in the log"
            );
        }
    }

    fn open(&mut self, path: &Path, is_found: bool, now: Instant) -> Result<Cells, String> {
        let limits = self.config.limits();
        let opened = if is_found {
            Directory::open_unlinked(path, limits)
        } else {
            Directory::open(path, limits)
        };
        // First: other paths take no room for directories.
        let opened = opened.map_err(|error| error.to_string())?;
        if !self.kept.take(directory::empty(path), now) {
            return Err(kept::no_room(path));
        }
        let receiver = self.receiver.clone();
        Ok(Cells::new(opened, &self.config, receiver, &self.starts))
    }

    /// Forgets directories that are gone.
    fn forget_gone(&mut self) {
        let before = self.open.len();
        self.open.retain(|_, cells| !cells.is_over());
        if self.open.len() < before {
            self.starts.forget_gone();
        }
    }

    /// Logs the absolute paths that the receiver reads: a relative pattern depends on the working directory of the gateway.
    fn log_nothing_found(&self) {
        let absolute = |pattern: &String| {
            let path = std::path::absolute(pattern);
            path.map_or_else(|_| pattern.clone(), |path| path.display().to_string())
        };
        let directories: Vec<_> = self.patterns.iter().map(absolute).collect();
        tracing::info!(
            receiver = &*self.receiver,
            directories = directories.join(", "),
            "no directory of cells exists yet"
        );
    }

    /// Pairs of directories whose sources have the same attributes: other components take them for one source.
    fn equal_sources(&self) -> Vec<(&Path, &Path)> {
        let mut known: BTreeMap<&Attributes, &Path> = BTreeMap::new();
        let mut equal = Vec::new();
        for (path, cells) in &self.open {
            let Some(source) = cells.source() else { continue };
            match known.get(source) {
                Some(first) => equal.push((*first, path.as_path())),
                None => _ = known.insert(source, path),
            }
        }
        equal
    }

    /// Reports conflicts that make values wrong or hide them.
    fn report_conflicts(&self) {
        let equal = self.equal_sources();
        let notices = equal.iter().take(MOST_PAIRS).map(|(one, other)| {
            format!(
                "the directories {} and {} have the same resource, so they count as one source and their values replace \
                 each other. Give their programs different `service.name` or `service.instance.id`",
                printable_path(one),
                printable_path(other)
            )
        });
        let of_families = self.open.values().flat_map(Cells::conflicts);
        let notices = notices.chain(of_families).collect();
        self.base.shared.notices.set(&self.base.path, notices);
        let families: usize = self.open.values().map(Cells::conflicting_families).sum();
        self.record_conflicts(equal.len(), families);
    }

    /// Records the numbers of these conflicts in the gateway's own metrics.
    fn record_conflicts(&self, resources: usize, families: usize) {
        for (reason, count) in [("resource", resources), ("family", families)] {
            let labels = [
                ("receiver", self.receiver.to_string()),
                ("reason", reason.to_owned()),
            ];
            metrics::gauge!("tidegate_shm_conflicts", &labels).set(count as f64);
        }
    }

    /// Records the counts of processes in the gateway's own metrics.
    fn record_metrics(&self) {
        let mut all = directory::DirectoryStats::default();
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
            (kept::MEMORY, all.without_room as u64),
            ("open_files", all.without_files as u64),
            ("paths", self.refused_further as u64),
            ("lock", all.locked as u64),
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
