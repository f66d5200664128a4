// SPDX-License-Identifier: Apache-2.0

//! The recent past of series for range queries, at a fixed interval and in bounded memory.
//!
//! Earlier series have priority. When the memory is used up, new series get no past, and are counted. Older series then
//! keep less of theirs.

mod chunk;
mod earlier;
mod histograms;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use chunk::Chunk;
pub use earlier::PastCopy;
use histograms::Histograms;
use tidegate_engine::ExponentialHistogram;

use crate::{FloatHistogram, HistogramSample, Millis, Need, Sample};

/// The extent of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimits {
    /// Between two samples of a series.
    pub interval_ms: Millis,
    /// The time for which a sample stays, in milliseconds.
    pub span_ms: Millis,
    /// Bytes that all series together may take.
    pub max_bytes: usize,
}

/// Bytes for a sample of a counter, all included. A test measures fewer.
const SAMPLE_BYTES: usize = 4;

impl HistoryLimits {
    /// The bytes of some counters that have a sample at each interval of a time in milliseconds.
    pub fn bytes_of(&self, series: usize, span_ms: Millis) -> usize {
        let samples = usize::try_from(span_ms / self.interval_ms.max(1)).unwrap_or(usize::MAX);
        samples.saturating_mul(SAMPLE_BYTES).saturating_mul(series)
    }
}

/// A series of a history; not reused while the history lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesId(u32);

/// Samples of many series.
#[derive(Debug)]
pub struct History {
    limits: HistoryLimits,
    /// The tick that ticks are counted from: a span before the first sample, so that there is room for earlier ones.
    base: Option<Millis>,
    /// The tick of the first sample that was appended.
    first: Option<Millis>,
    series: Vec<Option<Past>>,
    free: Vec<u32>,
    bytes: usize,
    /// Bytes that others take of the same bound.
    others: usize,
    refused: u64,
}

#[derive(Debug, Default)]
struct Past {
    chunks: VecDeque<Chunk>,
    /// Set for a series of native histograms.
    histograms: Option<Box<Histograms>>,
}

impl Past {
    /// Bytes besides its own fields.
    fn bytes(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(Chunk::bytes).sum();
        chunks
            + self
                .histograms
                .as_ref()
                .map_or(0, |histograms| histograms.bytes())
    }
}

/// The bytes of a series before its first sample.
const SERIES_BYTES: usize = size_of::<Option<Past>>();

impl History {
    /// An empty history. Its interval is at least 1 ms.
    pub fn new(limits: HistoryLimits) -> Self {
        Self {
            limits: HistoryLimits {
                interval_ms: limits.interval_ms.max(1),
                ..limits
            },
            base: None,
            first: None,
            series: Vec::new(),
            free: Vec::new(),
            bytes: 0,
            others: 0,
            refused: 0,
        }
    }

    /// Sets the bound of all samples together, in bytes.
    pub fn bound(&mut self, max_bytes: usize) {
        self.limits.max_bytes = max_bytes;
    }

    /// Sets the bytes that others take of the same bound. Samples make room for them.
    pub fn share(&mut self, others: usize) {
        self.others = others;
    }

    /// Sets the time for which a sample stays, in milliseconds. A series drops samples that are too old when it gets the next
    /// one. `now`: the time of the newest samples. A longer history does not bring back what has gone by then.
    pub fn keep_for(&mut self, span_ms: Millis, now: Millis) {
        if span_ms > self.limits.span_ms {
            let oldest = now.saturating_sub(self.limits.span_ms);
            let oldest = oldest.div_euclid(self.limits.interval_ms);
            self.first = self.first.map(|first| first.max(oldest));
        }
        self.limits.span_ms = span_ms;
    }

    /// The extent of the history.
    pub fn limits(&self) -> HistoryLimits {
        self.limits
    }

    /// Bytes that are used, with those of others.
    pub fn bytes(&self) -> usize {
        self.bytes + self.others
    }

    fn is_full(&self) -> bool {
        self.bytes() > self.limits.max_bytes
    }

    /// Series that have a past.
    pub fn len(&self) -> usize {
        self.series.len() - self.free.len()
    }

    /// Whether none has.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of series that were refused because of a lack of memory.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// A place for a series; `None`: the memory is used up.
    pub fn add(&mut self) -> Option<SeriesId> {
        if self.bytes() + SERIES_BYTES > self.limits.max_bytes {
            self.refused += 1;
            return None;
        }
        self.bytes += SERIES_BYTES;
        let id = match self.free.pop() {
            Some(id) => id,
            None => {
                self.series.push(None);
                self.series.len() as u32 - 1
            }
        };
        if let Some(place) = self.series.get_mut(id as usize) {
            *place = Some(Past::default());
        }
        Some(SeriesId(id))
    }

    /// Lets a series go.
    pub fn remove(&mut self, id: SeriesId) {
        let gone = self.series.get_mut(id.0 as usize).and_then(Option::take);
        if let Some(past) = gone {
            self.bytes -= past.bytes() + SERIES_BYTES;
            self.free.push(id.0);
        }
    }

    /// The tick of `time`, and the oldest tick that is then kept.
    fn ticks(&mut self, time: Millis) -> Option<(u32, u32)> {
        /// At most half of all ticks lie before the first sample.
        const MOST_BEFORE: u32 = u32::MAX / 2;
        let tick = time.div_euclid(self.limits.interval_ms);
        let kept = u32::try_from(self.limits.span_ms / self.limits.interval_ms).unwrap_or(u32::MAX);
        let base = tick.saturating_sub(kept.min(MOST_BEFORE).into());
        let base = *self.base.get_or_insert(base);
        let tick = u32::try_from(tick.saturating_sub(base)).ok()?;
        Some((tick, tick.saturating_sub(kept)))
    }

    /// The same for a sample that is appended.
    fn ticks_of_next(&mut self, time: Millis) -> Option<(u32, u32)> {
        let ticks = self.ticks(time)?;
        let tick = time.div_euclid(self.limits.interval_ms);
        self.first = Some(self.first.map_or(tick, |first| first.min(tick)));
        Some(ticks)
    }

    /// Appends a native histogram to a series of these, at the tick that `time` is in; one a tick, the first.
    pub fn append_histogram(&mut self, id: SeriesId, time: Millis, value: &ExponentialHistogram) {
        let is_full = self.is_full();
        let Some((tick, oldest)) = self.ticks_of_next(time) else {
            return;
        };
        let Some(Some(past)) = self.series.get_mut(id.0 as usize) else {
            return;
        };
        let before = past.bytes();
        let histograms = past.histograms.get_or_insert_default();
        histograms.drop_before(oldest);
        histograms.push(tick, value);
        if is_full {
            histograms.drop_oldest();
        }
        self.bytes = self.bytes - before + past.bytes();
    }

    /// The earliest time of which it may have a sample at `now`, in milliseconds; `None`: it has had none.
    pub fn begins(&self, now: Millis) -> Option<Millis> {
        let first = self.first?.saturating_mul(self.limits.interval_ms);
        Some(first.max(now.saturating_sub(self.limits.span_ms)))
    }

    /// Drops the samples after `time`, for a clock that was set back. A chunk with a sample after `time` goes as a whole.
    pub fn forget_after(&mut self, time: Millis) {
        let tick = time.div_euclid(self.limits.interval_ms);
        let ticks = match self.first {
            Some(first) if first <= tick => self.ticks(time),
            _ => None,
        };
        if ticks.is_none() {
            (self.base, self.first) = (None, None);
        }
        let is_after = |last: u32| ticks.is_none_or(|(until, _)| last > until);
        for past in self.series.iter_mut().flatten() {
            let before = past.bytes();
            while past.chunks.pop_back_if(|newest| is_after(newest.last)).is_some() {}
            past.histograms = past
                .histograms
                .take()
                .filter(|histograms| !is_after(histograms.last()));
            self.bytes = self.bytes - before + past.bytes();
        }
    }

    /// Appends a sample, at the tick that `time` is in; one a tick, the first.
    pub fn append(&mut self, id: SeriesId, time: Millis, value: f64) {
        let is_full = self.is_full();
        let Some((tick, oldest)) = self.ticks_of_next(time) else {
            return;
        };
        let Some(Some(past)) = self.series.get_mut(id.0 as usize) else {
            return;
        };
        let mut change = 0isize;
        while let Some(gone) = past
            .chunks
            .pop_front_if(|oldest_chunk| oldest_chunk.last < oldest)
        {
            change -= gone.bytes() as isize;
        }
        if past.chunks.back().is_none_or(|newest| newest.last < tick) {
            let mut pushed = false;
            if let Some(newest) = past.chunks.back_mut() {
                let before = newest.bytes() as isize;
                pushed = newest.push(tick, value);
                if !pushed {
                    newest.close();
                }
                change += newest.bytes() as isize - before;
            }
            if !pushed {
                let chunk = Chunk::new(tick, value);
                change += chunk.bytes() as isize;
                past.chunks.push_back(chunk);
            }
        }
        if is_full && past.chunks.len() > 1 {
            let gone = past.chunks.pop_front();
            change -= gone.map_or(0, |gone| gone.bytes() as isize);
        }
        self.bytes = self.bytes.saturating_add_signed(change);
    }

    /// The newest of the samples that [`Self::read`] gives.
    pub fn newest(&self, id: SeriesId, from: Millis, to: Millis) -> Option<Sample> {
        let past = self.series.get(id.0 as usize)?.as_ref()?;
        let chunk = past
            .chunks
            .iter()
            .rev()
            .find(|chunk| self.time(chunk.first) <= to)?;
        let samples = chunk.samples().map(|(tick, value)| Sample {
            time: self.time(tick),
            value,
        });
        let newest = samples.take_while(|sample| sample.time <= to).last()?;
        (newest.time > from).then_some(newest)
    }

    fn time(&self, tick: u32) -> Millis {
        (self.base.unwrap_or_default() + Millis::from(tick)) * self.limits.interval_ms
    }

    /// The samples of a series later than `from` and not later than `to`.
    pub fn read(&self, id: SeriesId, from: Millis, to: Millis) -> Vec<Sample> {
        let mut samples = Vec::new();
        self.read_into(id, (from, to), Need::All, &mut samples);
        samples
    }

    /// Appends those that are needed of what [`Self::read`] gives.
    pub fn read_into(
        &self,
        id: SeriesId,
        (from, to): (Millis, Millis),
        need: Need,
        samples: &mut Vec<Sample>,
    ) {
        let Some(Some(past)) = self.series.get(id.0 as usize) else {
            return;
        };
        let next = past.chunks.iter().skip(1).map(Some).chain([None]);
        // All that a chunk holds can be replaced by the first sample of the next one, where nothing sees it.
        let is_passed = |chunk: &Chunk, next: Option<&Chunk>| {
            let next = next.map(|next| self.time(next.first));
            next.is_some_and(|next| next <= to && next <= need.until(self.time(chunk.first)))
        };
        let overlaps = |(chunk, next): &(&Chunk, Option<&Chunk>)| {
            let is_within = self.time(chunk.last) > from && self.time(chunk.first) <= to;
            is_within && !is_passed(chunk, *next)
        };
        let chunks = past.chunks.iter().zip(next).filter(overlaps);
        let chunks = chunks.map(|(chunk, _)| chunk);
        let held: usize = chunks.clone().map(Chunk::len).sum();
        // And one for the present.
        samples.reserve(held.min(self.most(from, to, need)) + 1);
        let all = chunks.flat_map(Chunk::samples).map(|(tick, value)| Sample {
            time: self.time(tick),
            value,
        });
        let within = all
            .skip_while(|sample| sample.time <= from)
            .take_while(|sample| sample.time <= to);
        need.keep(within, samples, |sample| sample.time);
    }

    /// The most samples of a series that a query can need.
    fn most(&self, from: Millis, to: Millis, need: Need) -> usize {
        let ticks = to.saturating_sub(from) / self.limits.interval_ms;
        let ticks = usize::try_from(ticks.saturating_add(1)).unwrap_or(usize::MAX);
        match need {
            Need::Newest => 1,
            Need::Steps(steps) => ticks.min(steps.count),
            Need::All => ticks,
        }
    }

    /// The needed native histograms of a series, later than `from` and not later than `to`.
    pub fn read_histograms(
        &self,
        id: SeriesId,
        (from, to): (Millis, Millis),
        need: Need,
    ) -> Vec<HistogramSample> {
        let Some((histograms, from, to)) = self.histograms(id, from, to) else {
            return Vec::new();
        };
        let samples = histograms.samples((from, to), need, &|tick| self.time(tick));
        samples.map(|sample| self.histogram_sample(sample)).collect()
    }

    /// The newest of the samples that [`Self::read_histograms`] gives.
    pub fn newest_histogram(&self, id: SeriesId, from: Millis, to: Millis) -> Option<HistogramSample> {
        let (histograms, from, to) = self.histograms(id, from, to)?;
        Some(self.histogram_sample(histograms.newest(from, to)?))
    }

    /// The native histograms of a series, and the first and the last tick of these times.
    fn histograms(&self, id: SeriesId, from: Millis, to: Millis) -> Option<(&Histograms, u32, u32)> {
        let past = self.series.get(id.0 as usize)?.as_ref()?;
        let tick = |time: Millis| {
            let tick = time.div_euclid(self.limits.interval_ms);
            tick.saturating_sub(self.base.unwrap_or_default())
        };
        let clamped = |tick: Millis| u32::try_from(tick.max(0)).unwrap_or(u32::MAX);
        let (from, to) = (tick(from).saturating_add(1), tick(to));
        (from <= to && to >= 0).then_some((past.histograms.as_ref()?, clamped(from), clamped(to)))
    }

    fn histogram_sample(&self, (tick, value): (u32, FloatHistogram)) -> HistogramSample {
        HistogramSample {
            time: self.time(tick),
            value: Arc::new(value),
        }
    }
}
