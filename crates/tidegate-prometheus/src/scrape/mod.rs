// SPDX-License-Identifier: Apache-2.0

//! Decodes a scraped page directly to points, without intermediate families.
//!
//! A [`ScrapeDecoder`] keeps the state of one target. It knows a line by the bytes of its name and labels on the
//! page. It parses and relabels a new line, and resolves it to a series and a role in it (a number, a bucket, a
//! sum, ...). Later the line costs one store, and one comparison with the successor of the previous line. At the
//! end of the page the values become points in the order of the page.
//!
//! A page counts as a whole or not at all, as in Prometheus. If [`ScrapeDecoder::page`] fails, nothing of the page
//! is kept, and the caller calls [`ScrapeDecoder::end`] to end the target's series.
//!
//! A series that is missing from the page ends with a point without a value. Missing lines are forgotten.

mod family;
mod line;
mod resolve;
mod resource;
mod series;
mod settings;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use tidegate_engine::{AttributesBuilder, Point, Resource, UnixNanos};
use tidegate_exposition::{Event, ExposedSample, Format, Histogram, Labels, Parser};

use crate::model;

use family::Families;
use line::{Lines, What};
use resource::Resources;
use series::{LineRole, Slots, Stamp};
pub use settings::{Counts, Failed, Failure, Settings, Target};

/// The most that a sample's time may exceed the scrape's time, as in Prometheus. In nanoseconds.
const MAX_AHEAD: UnixNanos = 10 * 60 * 1_000_000_000;

/// Decodes the pages of one target, and keeps the target's lines and series between them.
pub struct ScrapeDecoder {
    settings: Settings,
    target: Box<dyn Target>,
    /// The format of the last page.
    format: Option<Format>,
    lines: Lines,
    slots: Slots,
    families: Families,
    resources: Resources,
    /// The number of pages. Parts of the current page have its number.
    page: u32,
    /// The labels of a new line, and attributes made of them.
    labels: Labels,
    builder: AttributesBuilder,
}

impl std::fmt::Debug for ScrapeDecoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScrapeDecoder")
            .field("lines", &self.lines.len())
            .finish_non_exhaustive()
    }
}

impl ScrapeDecoder {
    /// A decoder without any state.
    pub fn new(settings: Settings, target: Box<dyn Target>) -> Self {
        Self {
            settings,
            target,
            format: None,
            lines: Lines::default(),
            slots: Slots::default(),
            families: Families::default(),
            resources: Resources::default(),
            page: 0,
            labels: Labels::default(),
            builder: AttributesBuilder::default(),
        }
    }

    /// The number of known lines.
    pub fn known_lines(&self) -> usize {
        self.lines.len()
    }

    /// The approximate size of its state in bytes.
    pub fn bytes(&self) -> usize {
        self.lines.bytes() + self.slots.bytes(self.lines.text_bytes())
    }

    /// Drops its state. Call it after [`Self::end`].
    pub fn forget(&mut self) {
        self.lines = Lines::default();
        self.slots = Slots::default();
        self.families = Families::default();
        self.resources = Resources::default();
    }

    /// The resource of a job and instance, with what `target_info` said of it, if a sound page had it.
    pub fn resource(&self, job: &str, instance: &str) -> Option<Arc<Resource>> {
        self.resources.known(job, instance)
    }

    /// Decodes a page that was scraped at `time`. Appends its points to `points`, and a point without a value
    /// for each series that is missing. It appends none if the page fails. An empty page is valid and ends
    /// everything.
    ///
    /// # Errors
    /// The page can't be parsed, exceeds a limit, or has labels or names that are not allowed.
    pub fn page(
        &mut self,
        format: Format,
        page: &[u8],
        time: UnixNanos,
        points: &mut Vec<Point>,
    ) -> Result<Counts, Failed> {
        self.page = self.page.wrapping_add(1);
        let is_other = self.format.replace(format) != Some(format);
        if is_other {
            // A valid line of one format may be invalid in another.
            self.lines = Lines::default();
        }
        self.lines.begin();
        self.slots.begin();
        self.resources.begin();
        let mut counts = Counts::default();
        // An empty page has no format, and can't miss its end.
        let outcome = if page.is_empty() {
            Ok(())
        } else {
            self.read(format, page, time, &mut counts)
        };
        let outcome = outcome.and_then(|()| self.settings.check(&counts));
        self.families.end_page();
        let result = match outcome {
            Ok(()) => {
                self.emit(time, points, &mut counts);
                Ok(counts)
            }
            Err(failure) => Err(Failed { failure, counts }),
        };
        if is_other || self.lines.is_crowded() {
            self.sweep();
        }
        result
    }

    /// Ends all that the last sound page had: the target is gone, or its page failed.
    pub fn end(&mut self, time: UnixNanos, points: &mut Vec<Point>) {
        self.slots.end_all(time, points);
    }

    fn read(
        &mut self,
        format: Format,
        page: &[u8],
        time: UnixNanos,
        counts: &mut Counts,
    ) -> Result<(), Failure> {
        let mut parser = Parser::new(format, page, self.settings.parser);
        while let Some(event) = parser.next(self.lines.expected())? {
            match event {
                Event::Sample(sample) => self.sample(&sample, time, counts)?,
                Event::Histogram(histogram) => self.histogram(&histogram, time, counts)?,
                Event::Type { family, kind } => self.families.set_type(family, kind),
                Event::Help { family, help } => self.families.set_help(family, help),
                Event::Unit { family, unit } => self.families.set_unit(family, unit),
            }
        }
        Ok(())
    }

    #[inline]
    fn sample(
        &mut self,
        sample: &ExposedSample<'_>,
        time: UnixNanos,
        counts: &mut Counts,
    ) -> Result<(), Failure> {
        let Some((slot, role, stamp)) =
            self.resolve_sample(&sample.series, None, sample.timestamp, time, counts)?
        else {
            return Ok(());
        };
        let stamp = Stamp {
            created: sample.created,
            ..stamp
        };
        if !self.slots.write(slot, role, sample.value, stamp, counts) {
            return Ok(());
        }
        let exemplar = sample.exemplar.as_ref();
        if let Some(exemplar) = exemplar.filter(|exemplar| exemplar.label_bytes() <= model::MAX_TEXT_BYTES) {
            exemplar.labels(&mut self.labels);
            let time = exemplar.timestamp.and_then(model::nanos).unwrap_or(stamp.time);
            let exemplar = model::exemplar(self.labels.iter(), exemplar.value, time, &mut self.builder);
            self.slots.exemplar(slot, exemplar);
        }
        Ok(())
    }

    fn histogram(
        &mut self,
        histogram: &Histogram<'_>,
        time: UnixNanos,
        counts: &mut Counts,
    ) -> Result<(), Failure> {
        let limit = self.settings.native_histogram_bucket_limit;
        let resolution = model::Resolution {
            buckets: limit,
            schema: self.settings.native_histogram_max_schema,
        };
        let converted = model::native_within(histogram.value, resolution);
        let converted = converted.map_err(|_| Failure::BucketLimit(limit))?;
        let data = converted.as_ref().map(|(_, data)| *data);
        let native = Some(data);
        let placed = self.resolve_sample(&histogram.series, native, histogram.timestamp, time, counts)?;
        let (Some((slot, _, stamp)), Some((value, _))) = (placed, converted) else {
            return Ok(());
        };
        let stamp = Stamp {
            created: histogram.created,
            ..stamp
        };
        if !self.slots.write_native(slot, value, stamp, counts) {
            return Ok(());
        }
        let exemplars = histogram.exemplars.iter();
        for exemplar in exemplars.filter(|exemplar| exemplar.label_bytes() <= model::MAX_TEXT_BYTES) {
            exemplar.labels(&mut self.labels);
            let time = exemplar.timestamp.and_then(model::nanos).unwrap_or(stamp.time);
            let exemplar = model::exemplar(self.labels.iter(), exemplar.value, time, &mut self.builder);
            self.slots.exemplar(slot, exemplar);
        }
        Ok(())
    }

    /// The position and time of a sample; `None`: it is dropped and counted.
    ///
    /// `native` is the kind of data of a native histogram, if it is one.
    #[inline]
    fn resolve_sample(
        &mut self,
        series: &tidegate_exposition::ExposedSeries<'_>,
        native: Option<Option<tidegate_engine::Data>>,
        timestamp: Option<i64>,
        time: UnixNanos,
        counts: &mut Counts,
    ) -> Result<Option<(u32, LineRole, Stamp)>, Failure> {
        if self.settings.check(counts).is_err() {
            return self.count(series, counts).map(|()| None);
        }
        let at = match self.lines.find(series.raw()) {
            Some(at) if self.families.is_current(self.lines.family(at)) => at,
            _ => self.resolve(series, native, counts)?,
        };
        counts.samples += 1;
        let timestamp = timestamp.filter(|_| self.settings.honor_timestamps);
        let is_again = self.lines.mark_seen(at, self.page);
        let what = self.lines.what(at);
        if let What::Dropped = what {
            return Ok(None);
        }
        counts.kept += 1;
        if is_again && timestamp.is_none() {
            counts.duplicates += 1;
            return Ok(None);
        }
        counts.stored += 1;
        let Some(stamp) = self.stamp(timestamp, time) else {
            counts.out_of_bounds += 1;
            return Ok(None);
        };
        match what {
            What::Part { slot, role } => Ok(Some((slot, role, stamp))),
            What::Info { info } => {
                self.resources.note_info(info);
                Ok(None)
            }
            What::Unusable | What::Dropped => {
                counts.unusable += 1;
                Ok(None)
            }
        }
    }

    /// Counts a sample of a page that has too many: nothing of it is kept.
    #[cold]
    fn count(
        &mut self,
        series: &tidegate_exposition::ExposedSeries<'_>,
        counts: &mut Counts,
    ) -> Result<(), Failure> {
        let is_kept = match self.lines.find(series.raw()) {
            Some(at) => self.lines.what(at) != What::Dropped,
            None => self.labelled(series)?.is_some(),
        };
        counts.samples += 1;
        counts.kept += usize::from(is_kept);
        Ok(())
    }

    #[inline]
    fn stamp(&self, timestamp: Option<i64>, time: UnixNanos) -> Option<Stamp> {
        let Some(millis) = timestamp else {
            return Some(Stamp {
                time,
                page: self.page,
                created: None,
                is_tracked: true,
            });
        };
        let own = model::nanos(millis).filter(|own| *own <= time.saturating_add(MAX_AHEAD))?;
        Some(Stamp {
            time: own,
            page: self.page,
            created: None,
            is_tracked: self.settings.track_timestamps_staleness,
        })
    }

    fn emit(&mut self, time: UnixNanos, points: &mut Vec<Point>, counts: &mut Counts) {
        self.resources.update(&*self.target);
        self.slots.end_missing(self.page, time, points);
        self.slots.emit(&self.resources, time, points, counts);
    }

    /// Forgets what has not been seen for a while.
    fn sweep(&mut self) {
        self.lines.sweep(self.page, |slot| self.slots.is_crowded(slot));
        self.slots.sweep(self.lines.slots());
        self.resources.sweep(self.lines.infos(), self.slots.resources());
        self.families.sweep();
    }
}
