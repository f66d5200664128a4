// SPDX-License-Identifier: Apache-2.0

//! Samples of another gateway before the own ones, and copies for it.

use std::collections::VecDeque;

use tidegate_engine::ExponentialHistogram;

use super::chunk::Chunk;
use super::{History, SeriesId, histograms};
use crate::Millis;

/// Of the memory of all samples, earlier ones leave a quarter: series that come later need a place.
const fn room(max_bytes: usize) -> usize {
    max_bytes / 4 * 3
}

/// The past of a series, copied so that it can be read without the history.
#[derive(Clone, Debug)]
pub struct PastCopy {
    base: Millis,
    interval_ms: Millis,
    chunks: Vec<Chunk>,
    histograms: Vec<histograms::Chunk>,
}

impl PastCopy {
    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        let floats = self.chunks.iter().map(Chunk::bytes);
        let histograms = self.histograms.iter().map(histograms::Chunk::bytes);
        floats.chain(histograms).sum()
    }

    /// The number of its samples, without native histograms.
    pub fn samples_held(&self) -> usize {
        self.chunks.iter().map(Chunk::len).sum()
    }

    fn time(&self, tick: u32) -> Millis {
        (self.base + Millis::from(tick)) * self.interval_ms
    }

    /// The newest `most` samples, the oldest first.
    pub fn samples(&self, most: usize) -> impl Iterator<Item = (Millis, f64)> {
        let samples = self.chunks.iter().flat_map(Chunk::samples);
        let newest = samples.skip(self.samples_held().saturating_sub(most));
        newest.map(|(tick, value)| (self.time(tick), value))
    }

    /// Groups of native histograms in their order; the newest group comes first.
    pub fn histogram_groups(
        &self,
    ) -> impl Iterator<Item = impl Iterator<Item = (Millis, ExponentialHistogram)>> {
        let groups = self.histograms.iter().rev();
        groups.map(|group| {
            let histograms = group.histograms();
            histograms.map(|(tick, histogram)| (self.time(tick), histogram))
        })
    }
}

impl History {
    /// A copy of the samples of a series from a time on, and some before; `None`: there are none.
    pub fn copy(&self, id: SeriesId, from: Millis) -> Option<PastCopy> {
        let past = self.series.get(id.0 as usize)?.as_ref()?;
        let histograms = past.histograms.iter().flat_map(|all| all.chunks());
        let copy = PastCopy {
            base: self.base?,
            interval_ms: self.limits.interval_ms,
            chunks: past
                .chunks
                .iter()
                .filter(|chunk| self.time(chunk.last) >= from)
                .cloned()
                .collect(),
            histograms: histograms
                .filter(|chunk| self.time(chunk.last) >= from)
                .cloned()
                .collect(),
        };
        (copy.bytes() > 0).then_some(copy)
    }

    /// The time of the oldest sample of a series.
    pub fn first(&self, id: SeriesId) -> Option<Millis> {
        let past = self.series.get(id.0 as usize)?.as_ref()?;
        let floats = past.chunks.front().map(|chunk| chunk.first);
        let histograms = past.histograms.as_ref().and_then(|histograms| histograms.first());
        let first = floats.into_iter().chain(histograms).min()?;
        Some(self.time(first))
    }

    /// Puts earlier samples, in their order, before those of a series: one a tick, the newest that are kept at `now` and fit.
    /// Returns their number.
    pub fn prepend(
        &mut self,
        id: SeriesId,
        now: Millis,
        samples: impl Iterator<Item = (Millis, f64)>,
    ) -> usize {
        let Some(earlier) = self.earlier(id, now) else {
            return 0;
        };
        let mut chunks: VecDeque<Chunk> = VecDeque::new();
        for (time, value) in samples {
            let Some(tick) = earlier.tick(time) else { continue };
            let newest = chunks.back_mut();
            let is_done = newest.is_some_and(|newest| newest.last >= tick || newest.push(tick, value));
            if !is_done {
                chunks.push_back(Chunk::new(tick, value));
            }
        }
        let Some(Some(past)) = self.series.get_mut(id.0 as usize) else {
            return 0;
        };
        let mut taken = 0;
        while let Some(mut chunk) = chunks.pop_back() {
            chunk.close();
            if self.bytes + self.others + chunk.bytes() > room(self.limits.max_bytes) {
                break;
            }
            self.bytes += chunk.bytes();
            taken += chunk.len();
            past.chunks.push_front(chunk);
        }
        taken
    }

    /// The same for a series of native histograms.
    pub fn prepend_histograms(
        &mut self,
        id: SeriesId,
        now: Millis,
        samples: impl Iterator<Item = (Millis, ExponentialHistogram)>,
    ) -> usize {
        let Some(earlier) = self.earlier(id, now) else {
            return 0;
        };
        let Some(Some(past)) = self.series.get_mut(id.0 as usize) else {
            return 0;
        };
        let own = size_of::<histograms::Histograms>();
        if past.histograms.is_none() && self.bytes + self.others + own > room(self.limits.max_bytes) {
            return 0;
        }
        let before = past.bytes();
        let samples = samples.filter_map(|(time, histogram)| Some((earlier.tick(time)?, histogram)));
        past.histograms.get_or_insert_default();
        let used = self.bytes + self.others - before + past.bytes();
        let room = room(self.limits.max_bytes).saturating_sub(used);
        let taken = past
            .histograms
            .as_mut()
            .map_or(0, |histograms| histograms.prepend(samples, room));
        self.bytes = self.bytes - before + past.bytes();
        taken
    }

    /// The ticks of samples that may come before those of a series.
    fn earlier(&mut self, id: SeriesId, now: Millis) -> Option<Earlier> {
        let (tick, oldest) = self.ticks(now)?;
        let (base, interval_ms) = (self.base?, self.limits.interval_ms);
        let first = self.first(id);
        let until = first.map_or(Millis::from(tick), |first| first.div_euclid(interval_ms) - base);
        Some(Earlier {
            base,
            interval_ms,
            ticks: (oldest, u32::try_from(until).ok()?),
        })
    }
}

/// The ticks from the first of `ticks` until before the second one.
struct Earlier {
    base: Millis,
    interval_ms: Millis,
    ticks: (u32, u32),
}

impl Earlier {
    fn tick(&self, time: Millis) -> Option<u32> {
        let tick = time.div_euclid(self.interval_ms).saturating_sub(self.base);
        let (oldest, until) = self.ticks;
        u32::try_from(tick)
            .ok()
            .filter(|tick| (oldest..until).contains(tick))
    }
}
