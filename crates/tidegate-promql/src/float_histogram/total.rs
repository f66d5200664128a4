// SPDX-License-Identifier: Apache-2.0

//! Sums and means of many histograms.

use super::{FilledBuckets, FloatHistogram, merged};

/// A sum of histograms that loses no small addends (Neumaier).
pub(crate) struct Total {
    whole: FloatHistogram,
    /// The rounding errors of the additions, in the same layout.
    lost: FloatHistogram,
    added: usize,
}

impl Total {
    /// `None`: there are no histograms.
    pub(crate) fn of<'a>(histograms: impl IntoIterator<Item = &'a FloatHistogram>) -> Option<Self> {
        let mut histograms = histograms.into_iter();
        let whole = histograms.next()?.clone();
        let lost = FloatHistogram {
            schema: whole.schema,
            zero_threshold: whole.zero_threshold,
            ..FloatHistogram::default()
        };
        let mut total = Self {
            whole,
            lost,
            added: 1,
        };
        histograms.for_each(|histogram| total.add(histogram));
        Some(total)
    }

    fn add(&mut self, histogram: &FloatHistogram) {
        let other = self.whole.aligned(histogram);
        self.follow();
        let (whole, lost) = (&mut self.whole, &mut self.lost);
        whole.zero_count = plus(whole.zero_count, other.zero_count, &mut lost.zero_count);
        whole.count = plus(whole.count, other.count, &mut lost.count);
        whole.sum = plus(whole.sum, other.sum, &mut lost.sum);
        whole.positive = compensated(&whole.positive, &other.positive, &mut lost.positive);
        whole.negative = compensated(&whole.negative, &other.negative, &mut lost.negative);
        whole.fit();
        self.follow();
        self.added += 1;
    }

    /// Converts the rounding errors to the layout of the whole.
    fn follow(&mut self) {
        self.lost.coarsen(self.whole.schema);
        let threshold = self.whole.zero_threshold;
        if self.lost.zero_threshold != threshold {
            let (count, _) = self.lost.zero_within(threshold);
            (self.lost.zero_count, self.lost.zero_threshold) = (count, threshold);
            self.lost.drop_within(threshold);
        }
    }

    pub(crate) fn whole(mut self) -> FloatHistogram {
        self.whole.combine(&self.lost, 1.0);
        self.whole
    }

    /// The mean of these histograms, which the total is of: finite where the sum is not, too.
    pub(crate) fn mean<'a>(self, histograms: impl IntoIterator<Item = &'a FloatHistogram>) -> FloatHistogram {
        let count = self.added as f64;
        let whole = self.whole();
        if whole.is_finite() {
            return whole.over(count);
        }
        let parts: Vec<FloatHistogram> = histograms
            .into_iter()
            .map(|histogram| histogram.clone().over(count))
            .collect();
        Self::of(&parts).map_or_else(|| whole.over(count), Self::whole)
    }
}

/// The sum of two numbers; the rounding error goes to `lost`.
fn plus(a: f64, b: f64, lost: &mut f64) -> f64 {
    let sum = a + b;
    if sum.is_infinite() {
        *lost = 0.0;
    } else if a.abs() >= b.abs() {
        *lost += (a - sum) + b;
    } else {
        *lost += (b - sum) + a;
    }
    sum
}

/// The counts of both sides; the rounding errors go to `lost`.
fn compensated(a: &FilledBuckets, b: &FilledBuckets, lost: &mut FilledBuckets) -> FilledBuckets {
    let whole = merged(a, b, 1.0);
    let count = |side: &FilledBuckets, index: i64| {
        let at = side.binary_search_by_key(&index, |(index, _)| *index);
        at.map_or(0.0, |at| side[at].1)
    };
    let lose = |(index, _): &(i64, f64)| {
        let mut gone = 0.0;
        plus(count(a, *index), count(b, *index), &mut gone);
        (gone != 0.0).then_some((*index, gone))
    };
    let gone: FilledBuckets = b.iter().filter_map(lose).collect();
    if !gone.is_empty() {
        *lost = merged(lost, &gone, 1.0);
    }
    whole
}
