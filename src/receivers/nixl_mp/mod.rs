// SPDX-License-Identifier: Apache-2.0

//! `nixl_mp`: reads the multi-process stores of NIXL's `prometheus_mp` exporter (`nixl.*.mmap`). They contain
//! cumulative totals, and any number of readers may read them.
//!
//! The receiver writes, unlinks and locks nothing permanently. A store sends only changes. When its agent is gone,
//! its series end, and the totals that aggregate them keep its counts.

pub mod config;
mod series;
mod store;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;

use crate::batch::Signal;
use crate::component::worker::{Pause, Worker};
use crate::component::{
    ComponentError, ConfigType, Context, Entry, ErrorDoc, Factory, Lifecycle, Receiver, ReceiverFactory,
    Stability,
};
use crate::receivers::kept::{self, Kept};
use crate::receivers::printable::{printable, printable_path};
use crate::receivers::watch::{FileNames, Watch};
use config::NixlMpConfig;
use store::{ReadOutcome, Store};

/// The errors of `nixl_mp`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::logged(
        "A file can't be opened, is not a store of NIXL, or has an unknown version.",
        "not read",
        "Run `tidegate ring inspect` on the file. Run the gateway as the user of the agent.",
    ),
    ErrorDoc::logged(
        "The pipelines refuse a store permanently.",
        "the pipelines refuse this store permanently",
        "Look at the limits of the processors. The line has the cause.",
    ),
];

/// The factory of `nixl_mp`.
pub static FACTORY: ReceiverFactory = Factory {
    kind: "nixl_mp",
    aliases: &[],
    stability: &[(Signal::Metrics, Stability::Beta)],
    help: "reads NVIDIA NIXL's multi-process stores (nixl.*.mmap)",
    errors: &[ERRORS],
    config: ConfigType::of::<NixlMpConfig>(),
    build: |settings, cx| {
        let entry = cx.entry(Signal::Metrics).cloned();
        let entry = entry.ok_or_else(|| cx.base.error("only metrics pipelines can use it"))?;
        let worker = Worker::new("tidegate-nixlmp");
        Ok(Arc::new(NixlMp {
            config: settings.get(),
            base: cx.base,
            entry,
            worker,
        }))
    },
};

struct NixlMp {
    config: Arc<NixlMpConfig>,
    base: Context,
    entry: Entry,
    worker: Worker,
}

impl Receiver for NixlMp {}

#[async_trait]
impl Lifecycle for NixlMp {
    async fn start(&self) -> Result<(), ComponentError> {
        tracing::info!(receiver = %self.base.id, directories = ?self.config.directories, "watching directories");
        let mut stores = Stores::new(self.config.clone(), self.base.clone(), self.entry.clone());
        self.worker
            .start(move |pause| stores.run(pause))
            .map_err(|error| self.base.error(error.to_string()))
    }

    /// Reads every store a last time before it returns.
    async fn stop(&self, deadline: Instant) {
        self.worker.stop(deadline).await;
    }
}

/// All stores of a receiver.
struct Stores {
    config: Arc<NixlMpConfig>,
    receiver: Arc<str>,
    base: Context,
    entry: Entry,
    watch: Watch,
    stores: BTreeMap<PathBuf, Store>,
    /// Files that are not stores, or not ours to read, by the reason that was reported; and stores that have ended.
    refused: BTreeMap<PathBuf, &'static str>,
    /// Room for both.
    kept: Kept,
}

impl Stores {
    fn new(config: Arc<NixlMpConfig>, base: Context, entry: Entry) -> Self {
        let names = FileNames::new(&config.include, &config.exclude);
        let watch = Watch::new(config.directories.clone(), names, config.scan_interval);
        Self {
            config,
            receiver: base.id.clone(),
            kept: Kept::new(&base.shared.memory),
            base,
            entry,
            watch,
            stores: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    fn run(&mut self, pause: &Pause) {
        loop {
            let now = Instant::now();
            if let Some(files) = self.watch.scan(now) {
                self.base
                    .shared
                    .notices
                    .set(&self.base.path, self.watch.missing());
                self.adopt(files, now);
            }
            self.poll(now);
            if !pause.wait(self.config.poll_interval) {
                break;
            }
        }
        self.poll(Instant::now());
        // What it has reported no longer holds.
        self.base.shared.notices.set(&self.base.path, Vec::new());
    }

    fn poll(&mut self, now: Instant) {
        let (entry, liveness, refused) = (&self.entry, self.config.liveness_interval, &mut self.refused);
        let receiver = &*self.receiver;
        self.stores
            .retain(|path, store| match store.poll(entry, now, liveness) {
                ReadOutcome::Stays => true,
                ReadOutcome::Ended(reason) => {
                    tracing::info!(receiver, store = %printable_path(path), reason, "store closed");
                    refused.insert(path.clone(), reason);
                    false
                }
            });
        let bytes = self.bytes();
        self.kept.set_used(bytes);
    }

    /// The memory of all files, in bytes.
    fn bytes(&self) -> usize {
        let stores = self.stores.keys().map(|path| store::BYTES + kept::note(path));
        let refused = self.refused.keys().map(|path| kept::note(path));
        stores.chain(refused).sum()
    }

    fn adopt(&mut self, files: Vec<PathBuf>, now: Instant) {
        self.refused.retain(|path, _| files.contains(path));
        for path in files {
            let ended = self.refused.get(&path) == Some(&store::ENDED);
            if ended || self.stores.contains_key(&path) {
                continue;
            }
            if !self.kept.take(store::BYTES + kept::note(&path), now) {
                let why = kept::no_room(&path);
                self.refuse(path, kept::MEMORY, &why);
                continue;
            }
            match Store::open(&path, now) {
                Ok(store) => {
                    let receiver = &*self.receiver;
                    tracing::info!(receiver, store = %printable_path(&path), agent = store.agent(), "store opened");
                    self.refused.remove(&path);
                    self.stores.insert(path, store);
                }
                Err(error) => self.refuse(path, error.reason(), &error),
            }
        }
        metrics::gauge!("tidegate_nixl_mp_stores", "receiver" => self.receiver.clone())
            .set(self.stores.len() as f64);
        let unread = self.refused.values().filter(|reason| **reason != store::ENDED);
        metrics::gauge!("tidegate_nixl_mp_unread_files", "receiver" => self.receiver.clone())
            .set(unread.count() as f64);
    }

    fn refuse(&mut self, path: PathBuf, reason: &'static str, error: &dyn Display) {
        if self.refused.insert(path, reason) == Some(reason) {
            return;
        }
        tracing::warn!(receiver = &*self.receiver, error = %printable(&error.to_string()), "not read");
        metrics::counter!(
            "tidegate_nixl_mp_rejected_files_total",
            "receiver" => self.receiver.clone(),
            "reason" => reason,
        )
        .increment(1);
    }
}

#[cfg(test)]
mod tests;
