// SPDX-License-Identifier: Apache-2.0

//! `composite_page`: composites in a page of shared memory. Processes of this node, such as a router, read them in
//! less than a microsecond. The crate `tidegate-page` has the layout and the readers for Rust and C.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use tidegate_engine::{Attributes, Freshness};
use tidegate_page::{Entry, Page, Published, canonical_labels};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::component::patterns::{check_pattern, patterns};
use crate::component::{
    ComponentError, ConfigType, Context, ErrorDoc, Extension, ExtensionFactory, Factory, Lifecycle,
    Stability, unix_now,
};
use crate::config::{Node, Problems};
use crate::net::FileMode;
use crate::watch::{CompositeSnapshot, Watched, refresh};

crate::options! {
    /// Options of the `composite_page` extension.
    pub struct CompositePageConfig {
        /// Path of the file, on a file system in memory, for example `/dev/shm/tidegate.page`.
        pub path: PathBuf = required,
        /// Permission bits of the file. Only the gateway may write it.
        pub mode: FileMode = FileMode(0o644),
        /// Most groups of composites, 1 to 65536. Further groups are omitted from the page and counted.
        pub capacity: u32 = 1024,
        /// Interval of updates, at least 1ms.
        pub interval: Duration = Duration::from_millis(10),
        /// Composites in the page: exact names, globs, or `regex:...`.
        pub composites: Vec<String> = vec!["*".to_owned()],
    }
    check = CompositePageConfig::check
}

impl CompositePageConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.interval < Duration::from_millis(1) {
            cx.at(at.child("interval")).error("must be at least 1ms");
        }
        if !(1..=65536).contains(&self.capacity) {
            cx.at(at.child("capacity")).error("must be between 1 and 65536");
        }
        if self.mode.0 & !0o644 != 0 || self.mode.0 & 0o600 != 0o600 {
            cx.at(at.child("mode"))
                .error("must let the owner read and write, and others at most read");
        }
        for pattern in &self.composites {
            check_pattern(pattern, at.child("composites"), cx);
        }
    }
}

/// The errors of `composite_page`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::logged(
        "Composites have no room in the page, or are not valid there.",
        "composites that are not in the page",
        "Raise `capacity`, or restrict `composites`. `reasons` has the causes.",
    ),
    ErrorDoc::logged(
        "The gateway can't remove the page at its stop.",
        "the page of composites could not be removed",
        "Check the permissions of the directory, and remove the file.",
    ),
];

/// The factory of `composite_page`.
pub static FACTORY: ExtensionFactory = Factory {
    kind: "composite_page",
    aliases: &[],
    stability: Stability::Beta,
    help: "keeps composites in shared memory, for readers on this node",
    errors: &[ERRORS],
    config: ConfigType::of::<CompositePageConfig>(),
    build: |settings, cx| Ok(Arc::new(CompositePage::new(settings.get(), cx))),
};

struct CompositePage {
    config: Arc<CompositePageConfig>,
    base: Context,
    writer: Mutex<Option<JoinHandle<()>>>,
    stopping: CancellationToken,
}

impl CompositePage {
    fn new(config: Arc<CompositePageConfig>, base: Context) -> Self {
        Self {
            config,
            base,
            writer: Mutex::default(),
            stopping: CancellationToken::new(),
        }
    }
}

impl Extension for CompositePage {}

#[async_trait]
impl Lifecycle for CompositePage {
    async fn start(&self) -> Result<(), ComponentError> {
        let config = &self.config;
        let page = Page::create(&config.path, config.capacity, config.mode.0);
        let page = page.map_err(|error| self.base.error(format!("{}: {error}", config.path.display())))?;
        tracing::info!(extension = %self.base.id, path = %config.path.display(), "writing composites");
        let wanted = patterns(&config.composites).map_err(|error| self.base.error(error.to_string()))?;
        let (shared, stopping) = (self.base.shared.clone(), self.stopping.clone());
        let interval = config.interval;
        let task = tokio::spawn(async move {
            let mut writer = PageWriter {
                page,
                texts: HashMap::new(),
                refused: 0,
            };
            let mut ticks = tokio::time::interval(interval);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
            let write = async {
                loop {
                    ticks.tick().await;
                    let mut all = shared.composites.list();
                    let is_wanted = |name: &str| wanted.iter().any(|pattern| pattern.matches(name));
                    all.retain(|watched| is_wanted(&watched.declaration().name));
                    // An expression that takes longer is written in a later round: others don't wait for it.
                    let _ = tokio::time::timeout(interval, refresh(&all)).await;
                    writer.write(&all);
                }
            };
            // The stop does not wait for expressions either.
            let _: Option<()> = stopping.run_until_cancelled(write).await;
            if let Err(error) = writer.page.close() {
                tracing::warn!(%error, "the page of composites could not be removed");
            }
        });
        *self.writer.lock() = Some(task);
        Ok(())
    }

    async fn stop(&self, deadline: Instant) {
        self.stopping.cancel();
        let writer = self.writer.lock().take();
        if let Some(writer) = writer {
            // The process removes the file in any case.
            let _ = tokio::time::timeout_at(deadline.into(), writer).await;
        }
    }
}

struct PageWriter {
    page: Page,
    /// Labels as the page has them.
    texts: HashMap<Attributes, String>,
    /// Entries that did not fit in the last round.
    refused: usize,
}

impl PageWriter {
    fn write(&mut self, all: &[Arc<Watched>]) {
        let now = unix_now();
        // Readers are other processes.
        let said = tidegate_engine::clock::wall(now);
        let looks: Vec<(Arc<str>, CompositeSnapshot)> = all
            .iter()
            .map(|watched| (watched.declaration().name.clone(), watched.read(now)))
            .collect();
        let groups: usize = looks.iter().map(|(_, snapshot)| snapshot.answers.len()).sum();
        if self.texts.len() > 2 * groups + 64 {
            self.texts.clear();
        }
        for (_, snapshot) in &looks {
            for group in snapshot.answers.iter() {
                let attributes = &group.answer.attributes;
                if !self.texts.contains_key(attributes) {
                    self.texts.insert(attributes.clone(), text(attributes));
                }
            }
        }
        let mut round = self.page.round();
        for (name, snapshot) in &looks {
            for group in snapshot.answers.iter() {
                let answer = &group.answer;
                let ranks = answer.quantiles.iter();
                let ranks: smallvec::SmallVec<[(f64, f64); 4]> =
                    ranks.map(|ranked| (ranked.quantile, ranked.value)).collect();
                let age = answer
                    .age
                    .map(|age| u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
                let entry = Entry {
                    name,
                    labels: self.texts.get(&answer.attributes).map_or("", String::as_str),
                    state: state(answer.state),
                    value: answer.value,
                    min: answer.min,
                    avg: answer.avg,
                    max: answer.max,
                    sum: answer.known(answer.sum),
                    count: answer.known(answer.count),
                    last: answer.last,
                    quantiles: &ranks,
                    window: answer.window,
                    as_of_ns: said,
                    newest_ns: age.map(|age| said.saturating_sub(age)),
                    sources_expected: u32::try_from(answer.sources_expected).unwrap_or(u32::MAX),
                    sources_reporting: u32::try_from(answer.sources_reporting).unwrap_or(u32::MAX),
                    seq: group.seq,
                };
                // The round counts entries that don't fit.
                let _ = round.set(&entry);
            }
        }
        let published = round.finish(said);
        self.note(&published);
    }

    fn note(&mut self, published: &Published) {
        let reasons = [
            ("full", published.refused_full),
            ("too_long", published.refused_too_long),
            ("duplicate", published.refused_duplicate),
            ("invalid", published.refused_invalid),
        ];
        for (reason, entries) in reasons {
            metrics::gauge!("tidegate_composite_page_refused_entries", "reason" => reason)
                .set(entries as f64);
        }
        let refused = reasons.iter().map(|(_, entries)| entries).sum();
        if refused > self.refused {
            tracing::warn!(refused, ?reasons, "composites that are not in the page");
        }
        self.refused = refused;
    }
}

fn text(attributes: &Attributes) -> String {
    let pairs: Vec<(String, String)> = attributes
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    let pairs: Vec<(&str, &str)> = pairs.iter().map(|(key, value)| (&**key, &**value)).collect();
    canonical_labels(&pairs)
}

fn state(state: Freshness) -> tidegate_page::State {
    match state {
        Freshness::Fresh => tidegate_page::State::Fresh,
        Freshness::Idle => tidegate_page::State::Idle,
        Freshness::Stale => tidegate_page::State::Stale,
        Freshness::Partial => tidegate_page::State::Partial,
        Freshness::Absent => tidegate_page::State::Absent,
    }
}
