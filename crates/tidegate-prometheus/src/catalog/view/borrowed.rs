// SPDX-License-Identifier: Apache-2.0

//! The history that replicas of a cluster give each other: that of series which all of them have.
//!
//! A page holds the samples of some series, as a request of remote write 1.0. The state is locked for copies of some
//! compressed samples only, and for one series at a time when samples are put before its own.

use std::sync::{Arc, Weak};

use tidegate_engine::{Composite, ExponentialHistogram, Table, Value};
use tidegate_promql::{HistoryLimits, Labels, Millis, NAME, PastCopy, Patience, QueryError, Selection};

use super::entry::{Key, Number, Past, common, owned};
use super::state::{SourceContent, ViewSource, ViewState};
use super::{SLICE, View};
use crate::model::is_stale;
use crate::remote::histogram::Native;
use crate::remote::read::{Metadata, ReadError, SeriesIn, Visitor, read};
use crate::remote::series::{Family, Identity, Sample, Series};
use crate::remote::{Version, write};

/// A page ends behind the series that makes it this long, in bytes.
const PAGE_BYTES: usize = 1 << 20;

/// Native histograms of a series beyond these bytes are omitted, the oldest first.
const HISTOGRAM_BYTES: usize = 1 << 20;

/// The most samples of a series in a page.
pub const LOAN_SAMPLES: usize = 50_000;

/// The most samples of all series of a histogram in a page. They all are in one page.
const ENTRY_SAMPLES: usize = 400_000;

/// Compressed samples that are copied under one lock, in bytes.
const COPY_BYTES: usize = 64 << 10;

/// Tables that all replicas of a cluster have, and their composites.
#[derive(Clone, Debug, Default)]
pub struct MergedTables {
    tables: Vec<Weak<Table>>,
    composites: Vec<Weak<Composite>>,
}

impl MergedTables {
    /// These tables.
    pub fn of(tables: &[Arc<Table>]) -> Self {
        let composites = tables.iter().flat_map(|table| table.attached());
        Self {
            composites: composites.map(|composite| Arc::downgrade(&composite)).collect(),
            tables: tables.iter().map(Arc::downgrade).collect(),
        }
    }

    fn has(&self, source: &ViewSource) -> bool {
        match &source.of {
            SourceContent::Table { table, .. } => self.tables.iter().any(|known| known.ptr_eq(table)),
            SourceContent::Composite { composite, .. } => {
                self.composites.iter().any(|known| known.ptr_eq(composite))
            }
            SourceContent::Targets(_) => false,
        }
    }
}

/// Where a page begins: the place of a series in the view of the gateway that makes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeriesPosition(Key);

impl std::fmt::Display for SeriesPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0.0, self.0.1)
    }
}

impl std::str::FromStr for SeriesPosition {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text.split_once('.');
        let key = numbers.and_then(|(source, at)| Some((source.parse().ok()?, at.parse().ok()?)));
        key.map(Self).ok_or("not two numbers with a dot between them")
    }
}

/// The samples of some series.
#[derive(Clone, Debug, Default)]
pub struct HistoryPage {
    /// A request of remote write 1.0, not compressed.
    pub request: Vec<u8>,
    /// Where the next page begins; `None`: it is the last one.
    pub next: Option<SeriesPosition>,
    /// The earliest time of which the gateway may have samples; `None`: it has none.
    pub begins: Option<Millis>,
}

/// The samples that a gateway has taken from another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Borrowed {
    /// Series with samples from the other one.
    pub series: u64,
    /// Samples that were taken.
    pub samples: u64,
    /// Series that are not here, or have no history here.
    pub omitted_series: u64,
    /// Samples without room in the history.
    pub omitted_samples: u64,
}

impl std::ops::AddAssign for Borrowed {
    fn add_assign(&mut self, other: Self) {
        self.series += other.series;
        self.samples += other.samples;
        self.omitted_series += other.omitted_series;
        self.omitted_samples += other.omitted_samples;
    }
}

impl View {
    /// The samples from a time on of some series, for another replica.
    ///
    /// # Errors
    /// The reader no longer waits, its time is over, or memory is short.
    pub fn lend(
        &self,
        merged: &MergedTables,
        from: Millis,
        at: SeriesPosition,
        patience: &Patience,
    ) -> Result<HistoryPage, QueryError> {
        let mut page = HistoryPage {
            next: Some(at),
            ..HistoryPage::default()
        };
        let family = Arc::new(Family {
            name: "".into(),
            kind: Default::default(),
            help: "".into(),
            unit: "".into(),
        });
        while let Some(place) = page.next.filter(|_| page.request.len() < PAGE_BYTES) {
            patience.check()?;
            let copies = {
                let state = self.state();
                page.begins = state.earliest();
                let (copies, next) = state.copies(merged, from, place.0);
                page.next = next.map(SeriesPosition);
                copies
            };
            for copy in copies {
                let series = copy.lent(from, &family);
                let request = write::encode(Version::One, std::iter::once(&series), false);
                page.request.extend_from_slice(&request);
            }
        }
        Ok(page)
    }

    /// Puts the samples of a page before those of the series that are here. It takes none of the last `lag_ms` and one interval
    /// before the first sample of a series, so that a counter does not fall. The other replica may have been ahead by `lag_ms`. A
    /// sample has the time of its tick, and its value may be up to one interval younger.
    ///
    /// # Errors
    /// The request is not one, or a part of it is wrong. The series before that part have their samples.
    pub fn borrow_page(
        &self,
        merged: &MergedTables,
        now: Millis,
        lag_ms: Millis,
        request: &[u8],
    ) -> Result<Borrowed, ReadError> {
        let mut borrower = Borrower {
            view: self,
            merged,
            now,
            lag_ms,
            borrowed: Borrowed::default(),
        };
        read(Version::One, request, &mut borrower)?;
        Ok(borrower.borrowed)
    }

    /// From now on, the history of these tables begins at `since`.
    pub fn extend_history(&self, merged: MergedTables, since: Millis) {
        self.state().borrowed = Some((merged, since));
    }
}

impl ViewState {
    /// The past is recorded as of `now`. If the wall clock was set back so far that no sample stays, those of another replica have
    /// gone too.
    pub(super) fn follow(&mut self, now: Millis) {
        self.shared.follow(now);
        if self.shared.history_begins().is_none() {
            self.borrowed = None;
        }
    }

    /// The earliest time of which there may be a sample of any series.
    fn earliest(&self) -> Option<Millis> {
        let own = self.shared.history_begins()?;
        let borrowed = self.borrowed.as_ref().map(|(_, since)| *since);
        Some(borrowed.map_or(own, |since| own.min(since.max(self.shared.history_ends()))))
    }

    /// The earliest time of which there may be a sample of the series of a selection, if it asks for one that is not its own.
    pub(super) fn history_begins(&self, selection: &Selection) -> Option<Millis> {
        let own = self.shared.history_begins()?;
        if selection.since() >= own {
            return Some(own);
        }
        let (Some((merged, _)), Some(name)) = (&self.borrowed, selection.name()) else {
            return Some(own);
        };
        let mut keys = self.keys(name, selection).peekable();
        let source = |key: Key| self.sources.get(key.0 as usize)?.as_ref();
        let is_merged = |key| source(key).is_some_and(|source| merged.has(source));
        if keys.peek().is_some() && keys.all(is_merged) {
            self.earliest()
        } else {
            Some(own)
        }
    }

    /// Copies the past of some series from a place on. Gives the next place, too.
    fn copies(
        &self,
        merged: &MergedTables,
        from: Millis,
        (number, at): Key,
    ) -> (Vec<SeriesCopy>, Option<Key>) {
        let mut copies = Vec::new();
        let Some(source) = self.sources.get(number as usize) else {
            return (copies, None);
        };
        let behind = Some((number.saturating_add(1), 0));
        let Some(source) = source.as_ref().filter(|source| merged.has(source)) else {
            return (copies, behind);
        };
        let (mut next, mut bytes, mut samples) = (at as usize, 0, 0);
        let end = source.entries.len().min(next.saturating_add(SLICE));
        while next < end && bytes < COPY_BYTES && samples < LOAN_SAMPLES {
            let entry = source.entries.get(next).and_then(Option::as_ref);
            let numbers = entry.map_or(&[][..], |entry| &entry.numbers);
            let most = LOAN_SAMPLES.min(ENTRY_SAMPLES / numbers.len().max(1));
            for number in numbers {
                if let Past::Kept(past) = number.past
                    && let Some(past) = self.shared.history.copy(past, from)
                {
                    bytes += past.bytes();
                    samples += past.samples_held();
                    let labels = number.labels.clone();
                    copies.push(SeriesCopy { labels, past, most });
                }
            }
            next += 1;
        }
        let is_whole = next >= source.entries.len();
        let next = Some((number, u32::try_from(next).unwrap_or(u32::MAX)));
        (copies, if is_whole { behind } else { next })
    }

    /// The number with these labels in one of the tables.
    fn merged_number(
        &mut self,
        merged: &MergedTables,
        labels: &Labels,
        is_native: bool,
    ) -> Option<(&mut Number, &mut super::shared::SharedState)> {
        let owner = |own: Option<&str>| {
            let name = owned(common(labels, own), labels.get(NAME));
            self.shared.owners.get(&name).copied()
        };
        let (source, at) = owner(None)
            .or_else(|| owner(Some("le")))
            .or_else(|| owner(Some("quantile")))?;
        let source = self.sources.get_mut(source as usize)?.as_mut()?;
        if !merged.has(source) {
            return None;
        }
        let entry = source.entries.get_mut(at as usize)?.as_mut()?;
        let mut numbers = entry.numbers.iter_mut();
        let number = numbers.find(|number| number.is_native == is_native && number.labels == *labels)?;
        Some((number, &mut self.shared))
    }
}

/// A series with a copy of its past.
struct SeriesCopy {
    labels: Labels,
    past: PastCopy,
    /// The most samples that another replica gets.
    most: usize,
}

impl SeriesCopy {
    /// The samples, as another replica reads them.
    fn lent(&self, from: Millis, family: &Arc<Family>) -> Series {
        let pairs = self
            .labels
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()));
        let mut series = Series::new(Arc::new(Identity::new(pairs)), family.clone());
        let samples = self.past.samples(self.most).filter(|(time, _)| *time >= from);
        series.samples = samples
            .map(|(time, value)| Sample {
                time,
                start: 0,
                value,
                point: 0,
            })
            .collect();
        for group in self.past.histogram_groups() {
            if series.bytes() >= HISTOGRAM_BYTES {
                break;
            }
            let within = group.filter(|(time, _)| *time >= from);
            let natives = within.filter_map(|(time, histogram)| {
                let timestamp = time;
                let native = Native::of_exponential(&histogram).ok()?;
                Some((Native { timestamp, ..native }, 0))
            });
            let natives: Vec<_> = natives.collect();
            series.histograms.splice(..0, natives);
        }
        series
    }
}

/// Takes the series of a page.
struct Borrower<'a> {
    view: &'a View,
    merged: &'a MergedTables,
    now: Millis,
    lag_ms: Millis,
    borrowed: Borrowed,
}

impl<'r> Visitor<'r> for Borrower<'_> {
    fn metadata(&mut self, _: Metadata<'r>) {}

    fn absurd(&mut self, _: &SeriesIn<'r>) {
        self.borrowed.omitted_series += 1;
    }

    fn series(&mut self, series: &mut SeriesIn<'r>) {
        let is_native = !series.histograms.is_empty();
        let labels: Labels = series.labels.iter().copied().collect();
        let histograms: Vec<_> = series.histograms.iter_mut().filter_map(histogram).collect();
        let mut state = self.view.state();
        let found = state.merged_number(self.merged, &labels, is_native);
        let Some((number, shared)) = found else {
            self.borrowed.omitted_series += 1;
            return;
        };
        let history = &mut shared.history;
        if matches!(number.past, Past::Young) {
            number.past = history.add().map_or(Past::Refused, Past::Kept);
        }
        let Past::Kept(id) = number.past else {
            self.borrowed.omitted_series += 1;
            return;
        };
        let HistoryLimits {
            interval_ms, span_ms, ..
        } = history.limits();
        let first = history.first(id).unwrap_or(self.now);
        let end = first.saturating_sub(self.lag_ms).saturating_sub(interval_ms);
        let begin = self.now.saturating_sub(span_ms);
        let is_wanted = |time: Millis| time < end && time > begin;
        let (offered, taken) = if is_native {
            let wanted = histograms.into_iter().filter(|(time, _)| is_wanted(*time));
            let wanted: Vec<_> = wanted.collect();
            let offered = wanted.len();
            (
                offered,
                history.prepend_histograms(id, self.now, wanted.into_iter()),
            )
        } else {
            let samples = series.samples.iter().map(|sample| (sample.time, sample.value));
            let wanted = samples.filter(|(time, _)| is_wanted(*time));
            let offered = wanted.clone().count();
            (offered, history.prepend(id, self.now, wanted))
        };
        drop(state);
        self.borrowed.series += u64::from(taken > 0);
        self.borrowed.samples += taken as u64;
        self.borrowed.omitted_samples += offered.saturating_sub(taken) as u64;
    }
}

/// `None`: it is not an exponential histogram, or the mark of an end.
fn histogram(native: &mut Native) -> Option<(Millis, ExponentialHistogram)> {
    if is_stale(native.sum) {
        return None;
    }
    match native.read() {
        Ok((Value::ExponentialHistogram(histogram), _)) => Some((native.timestamp, *histogram)),
        _ => None,
    }
}
