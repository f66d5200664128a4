// SPDX-License-Identifier: Apache-2.0

//! The pages for scrapes: one snapshot of all tables in the requested format.
//!
//! A page is rendered and compressed once for all concurrent scrapers. New series are registered on arrival, so
//! the gateway knows which ones it can't show before a scrape.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tidegate_runtime::Every;
use tokio::sync::OnceCell;

use super::config::PrometheusExporterConfig;
use super::debug::{self, FormatOmissions};
use super::singleflight::Singleflight;
use crate::component::unix_now;
use crate::exporters::tables::ExporterTables;
use crate::net::pages::COMPRESSING;
use crate::net::{Coding, compress};
use crate::prom::catalog::Senders;
use crate::prom::{
    Conflict, Counts, Difference, Escaping, Format, OmissionReason, Page as Exposition, Renderer,
};

/// A format without requests for this long is forgotten with its text.
const FORGET_AFTER: Duration = Duration::from_secs(15 * 60);

/// Messages of one kind come at most so often.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Compressed answers, in our order of preference.
pub(super) const CODINGS: [Coding; 2] = [Coding::Zstd, Coding::Gzip];

/// An exposition.
pub(super) struct RenderedPage {
    exposition: Arc<Exposition>,
    variants: Arc<EncodedVariants>,
}

/// The compressed variants of a page. Each is made on first use and shared by all pages of the same version.
struct EncodedVariants {
    /// The version of the content. A page of the same version reuses the variants.
    version: u64,
    /// One cell per entry of [`CODINGS`]. `None` in a cell: compression failed.
    encoded: [OnceCell<Option<Bytes>>; CODINGS.len()],
    _weight: Weight,
}

/// The uncompressed bytes of a page version, in the total of versions that scrapers read or may still ask for.
struct Weight {
    bytes: usize,
    unread: Arc<AtomicUsize>,
}

impl Weight {
    fn of(bytes: usize, unread: &Arc<AtomicUsize>) -> Self {
        unread.fetch_add(bytes, Relaxed);
        let unread = unread.clone();
        Self { bytes, unread }
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.unread.fetch_sub(self.bytes, Relaxed);
    }
}

/// The sent bytes of a content. They count until all of them are dropped.
struct Sent(
    Bytes,
    #[expect(dead_code, reason = "kept for its weight")] Arc<EncodedVariants>,
);

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl RenderedPage {
    /// A page that reuses the variants of `last` if the version is the same.
    fn new(
        exposition: Arc<Exposition>,
        last: Option<&Arc<EncodedVariants>>,
        unread: &Arc<AtomicUsize>,
    ) -> Self {
        let version = exposition.version;
        let same = last.filter(|variants| variants.version == version);
        let fresh = || {
            Arc::new(EncodedVariants {
                version,
                encoded: Default::default(),
                _weight: Weight::of(exposition.body.len(), unread),
            })
        };
        let variants = same.cloned().unwrap_or_else(fresh);
        Self { exposition, variants }
    }

    /// The uncompressed size, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.exposition.body.len()
    }

    /// The page in one of [`CODINGS`] or uncompressed. `None`: it can't be compressed.
    pub(super) async fn coded(&self, coding: Coding) -> Option<Bytes> {
        let bytes = self.variant(coding).await?;
        Some(Bytes::from_owner(Sent(bytes, self.variants.clone())))
    }

    async fn variant(&self, coding: Coding) -> Option<Bytes> {
        let at = CODINGS.iter().position(|known| *known == coding);
        let Some(cell) = at.and_then(|at| self.variants.encoded.get(at)) else {
            return Some(self.exposition.body.clone());
        };
        let make = || async {
            let bytes = self.exposition.body.clone();
            let made = COMPRESSING.in_background(move || compress(coding, &bytes).ok());
            made.await.flatten().map(Bytes::from)
        };
        cell.get_or_init(make).await.clone()
    }
}

/// The renderer of one format and escaping, with the singleflight that its scrapers share.
struct FormatRenderer {
    format: Format,
    escaping: Escaping,
    job: Arc<RenderJob>,
    pages: Arc<Singleflight<RenderedPage>>,
    /// The time of the last request; `None`: it is the format for registering series before any request.
    asked: Option<Instant>,
}

/// Renders the pages of one format and escaping, and reports the series that it omits.
///
/// Lock order: `renderer` is released before `last` is locked.
struct RenderJob {
    /// The format and the escaping, for log lines and metric labels.
    name: String,
    views: Arc<ExporterTables>,
    exporter: Arc<str>,
    renderer: Mutex<Renderer>,
    last: Mutex<Option<Arc<EncodedVariants>>>,
    unread: Arc<AtomicUsize>,
    warnings: Arc<Every>,
    remarks: Arc<Every>,
}

/// Renders scrapes in every requested format. Ingest waits for none of them.
pub(super) struct Pages {
    views: Arc<ExporterTables>,
    exporter: Arc<str>,
    senders: Arc<Senders>,
    config: Arc<PrometheusExporterConfig>,
    renderers: Mutex<Vec<FormatRenderer>>,
    /// Bytes of the contents that are there.
    unread: Arc<AtomicUsize>,
    warnings: Arc<Every>,
    remarks: Arc<Every>,
}

impl Pages {
    pub(super) fn new(
        config: Arc<PrometheusExporterConfig>,
        views: Arc<ExporterTables>,
        exporter: Arc<str>,
        senders: Arc<Senders>,
    ) -> Self {
        let pages = Self {
            senders,
            views,
            exporter,
            config,
            renderers: Mutex::default(),
            unread: Arc::default(),
            warnings: Arc::new(Every::new(LOG_INTERVAL)),
            remarks: Arc::new(Every::new(LOG_INTERVAL)),
        };
        pages.pages_in(Format::Text, Escaping::default(), None);
        pages
    }

    /// The exposition of this moment or a later one. `None`: rendering failed.
    pub(super) async fn page(&self, format: Format, escaping: Escaping) -> Option<Arc<RenderedPage>> {
        let pages = self.pages_in(format, escaping, Some(Instant::now()));
        pages.next().await
    }

    /// Waits until pages have all series. While a reload runs, the page listens before the components that it reads have
    /// started. Returns false if the exporter stops before.
    pub(super) async fn wait_until_complete(&self) -> bool {
        self.views.wait_until_shown().await
    }

    /// Bytes of all contents that are there: the newest, and those that some scraper has not read yet.
    pub(super) fn unread_bytes(&self) -> usize {
        self.unread.load(Relaxed)
    }

    /// The number of formats, each with its newest content.
    pub(super) fn formats(&self) -> usize {
        self.renderers().len()
    }

    /// The omissions of every requested format, and the reasons, now. Blocks the thread.
    pub(super) fn debug(&self) -> serde_json::Value {
        let found = self.jobs().iter().map(|job| job.found()).collect();
        debug::page(&self.exporter, found, &self.views.own.stats())
    }

    /// Registers new series in every format in use, and reports those that can't be shown. Forgets formats that no
    /// scraper asks for any more. Blocks.
    pub(super) fn register_series(&self) {
        drop(self.forget());
        self.jobs().iter().for_each(|job| job.register_series());
    }

    /// Forgets all there is, which can take long: for the end.
    pub(super) fn close(&self) {
        drop(std::mem::take(&mut *self.renderers()));
    }

    fn renderers(&self) -> MutexGuard<'_, Vec<FormatRenderer>> {
        self.renderers.lock()
    }

    fn jobs(&self) -> Vec<Arc<RenderJob>> {
        self.renderers()
            .iter()
            .map(|renderer| renderer.job.clone())
            .collect()
    }

    fn pages_in(
        &self,
        format: Format,
        escaping: Escaping,
        asked: Option<Instant>,
    ) -> Arc<Singleflight<RenderedPage>> {
        // Names that every scraper accepts are equal in all escapings.
        let escaping = if self.config.strategy().escapes() {
            Escaping::default()
        } else {
            escaping
        };
        let mut renderers = self.renderers();
        let known = renderers
            .iter_mut()
            .find(|renderer| (renderer.format, renderer.escaping) == (format, escaping));
        if let Some(renderer) = known {
            renderer.asked = asked;
            return renderer.pages.clone();
        }
        let job = Arc::new(RenderJob {
            name: match escaping {
                Escaping::Underscores => format.name().to_owned(),
                escaping => format!("{}; escaping={}", format.name(), escaping.name()),
            },
            views: self.views.clone(),
            exporter: self.exporter.clone(),
            renderer: Mutex::new(
                Renderer::new(format, self.config.style(escaping)).sharing(self.senders.clone()),
            ),
            last: Mutex::default(),
            unread: self.unread.clone(),
            warnings: self.warnings.clone(),
            remarks: self.remarks.clone(),
        });
        let rendering = job.clone();
        let pages = Singleflight::new(move || rendering.render_page());
        renderers.push(FormatRenderer {
            format,
            escaping,
            job,
            pages: pages.clone(),
            asked,
        });
        pages
    }

    /// Removes the formats that no scraper asks for any more, or never did. The format asked for last stays, because
    /// some renderer must find out what can't be shown. The caller drops the result, which can take long.
    fn forget(&self) -> Vec<FormatRenderer> {
        let mut renderers = self.renderers();
        let last = renderers.iter().map(|renderer| renderer.asked).max().flatten();
        let is_old = |renderer: &mut FormatRenderer| {
            renderer.asked != last && renderer.asked.is_none_or(|asked| asked.elapsed() >= FORGET_AFTER)
        };
        renderers.extract_if(.., is_old).collect()
    }
}

impl RenderJob {
    fn render_page(&self) -> RenderedPage {
        let exposition = self.render();
        let mut last = self.last.lock();
        let page = RenderedPage::new(exposition, last.as_ref(), &self.unread);
        *last = Some(page.variants.clone());
        page
    }

    fn render(&self) -> Arc<Exposition> {
        self.with(|renderer| renderer.render(&self.views.all(), unix_now()))
    }

    fn register_series(&self) {
        self.with(|renderer| renderer.register_series(&self.views.all(), unix_now()));
    }

    fn found(&self) -> FormatOmissions {
        self.with(|renderer| {
            // Only what has been gone through says what can't be shown.
            renderer.check(&self.views.all(), unix_now());
            FormatOmissions {
                format: self.name.clone(),
                omitted: renderer.conflicts(),
                differences: renderer.differences(),
            }
        })
    }

    /// Calls `work` with the renderer, then reports new conflicts.
    fn with<T>(&self, work: impl FnOnce(&mut Renderer) -> T) -> T {
        let mut renderer = self.renderer.lock();
        let done = work(&mut renderer);
        let (conflicts, differences) = (renderer.take_conflicts(), renderer.take_differences());
        let counts = renderer.counts();
        drop(renderer);
        self.show(counts);
        self.report(&conflicts);
        self.remark(&differences);
        done
    }

    fn remark(&self, differences: &[Difference]) {
        let Some(first) = differences.first() else { return };
        if let Some(held_back) = self.remarks.ready() {
            tracing::warn!(
                exporter = %self.exporter,
                metric = %first.family,
                owner = %first.owner,
                shown = %first.shown,
                others = differences.len() - 1,
                held_back,
                "shown under another's {}",
                first.what
            );
        }
    }

    fn labels(&self, reason: OmissionReason) -> [(&'static str, String); 3] {
        [
            ("exporter", self.exporter.to_string()),
            ("format", self.name.clone()),
            ("reason", reason.name().to_owned()),
        ]
    }

    /// Shows how many series are omitted now.
    fn show(&self, counts: Counts) {
        for (reason, series) in OmissionReason::ALL.into_iter().zip(counts) {
            metrics::gauge!("tidegate_prometheus_omitted_series", &self.labels(reason)).set(series as f64);
        }
    }

    /// Counts what has been omitted for the first time, and names the first of it.
    fn report(&self, conflicts: &[Conflict]) {
        for conflict in conflicts {
            let labels = self.labels(conflict.reason);
            metrics::counter!("tidegate_prometheus_conflicting_series_total", &labels)
                .increment(conflict.series);
        }
        let Some(first) = conflicts.first() else { return };
        if let Some(held_back) = self.warnings.ready() {
            tracing::warn!(
                exporter = %self.exporter,
                format = %self.name,
                metric = %first.metric,
                owner = %first.owner,
                rival = first.rival.as_deref().unwrap_or_default(),
                series = first.series,
                other_metrics = conflicts.len() - 1,
                held_back,
                "omitted from the exposition: {}",
                first.why
            );
        }
    }
}

impl Drop for RenderJob {
    fn drop(&mut self) {
        self.show(Counts::default());
    }
}

#[cfg(test)]
mod tests;
