// SPDX-License-Identifier: Apache-2.0

//! A sketch of a distribution, which gives any quantile within a known error.
//!
//! Single values count in powers of a base: an exponential histogram without empty buckets. The base is 2^(1/32), so
//! that a quantile is at most 1.1 % off the value of its rank. If values fill more than [`MAX_ENTRIES`] buckets, the
//! base is squared, which doubles the error.
//!
//! Buckets of histograms stay as they are. Their observations count as evenly spread over the bucket, as in PromQL's
//! `histogram_quantile`.

#[cfg(feature = "tables")]
mod exponential;

use crate::{ExponentialHistogram, Histogram};

const SCALE: i32 = 5;

/// Filled buckets of one sign.
const MAX_ENTRIES: usize = 1024;

/// Buckets of histograms that are kept; values of further ones count at the middle of theirs.
const MAX_SPANS: usize = 128;

/// Counts of positive or negative values: bucket and count, by bucket.
type Entries = Vec<(i32, f64)>;

/// Observations between two values, or at one value if both are equal.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ValueRange {
    lower: f64,
    upper: f64,
    count: f64,
}

impl ValueRange {
    fn at(value: f64, count: f64) -> Self {
        Self {
            lower: value,
            upper: value,
            count,
        }
    }

    fn order(&self, other: &Self) -> std::cmp::Ordering {
        let lower = self.lower.total_cmp(&other.lower);
        lower.then(self.upper.total_cmp(&other.upper))
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sketch {
    scale: i32,
    zero: f64,
    positive: Entries,
    negative: Entries,
    /// Buckets of histograms, in order.
    spans: Vec<ValueRange>,
}

impl Default for Sketch {
    fn default() -> Self {
        Self {
            scale: SCALE,
            zero: 0.0,
            positive: Entries::new(),
            negative: Entries::new(),
            spans: Vec::new(),
        }
    }
}

impl Sketch {
    /// The bytes that it has allocated.
    pub(super) fn bytes(&self) -> usize {
        let entries = self.positive.capacity() + self.negative.capacity();
        entries * size_of::<(i32, f64)>() + self.spans.capacity() * size_of::<ValueRange>()
    }
}

/// The bucket (base^index, base^(index+1)] of a positive number.
fn bucket(scale: i32, value: f64) -> i32 {
    (value.log2() * f64::from(scale).exp2()).ceil() as i32 - 1
}

/// The middle of a bucket, as far from its lower edge as from its upper in proportion.
fn middle(scale: i32, bucket: i32) -> f64 {
    ((f64::from(bucket) + 0.5) * (-f64::from(scale)).exp2()).exp2()
}

impl Sketch {
    pub(super) fn clear(&mut self) {
        self.scale = SCALE;
        self.zero = 0.0;
        self.positive.clear();
        self.negative.clear();
        self.spans.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.zero == 0.0 && self.positive.is_empty() && self.negative.is_empty() && self.spans.is_empty()
    }

    /// Adds a value that counts `weight` times. NaN is ignored.
    pub(super) fn add(&mut self, value: f64, weight: f64) {
        if value.is_nan() || weight <= 0.0 || weight.is_nan() {
            return;
        }
        let size = value.abs().min(f64::MAX);
        if size < f64::MIN_POSITIVE {
            self.zero += weight;
            return;
        }
        let at = bucket(self.scale, size);
        let entries = if value > 0.0 {
            &mut self.positive
        } else {
            &mut self.negative
        };
        put(entries, at, weight);
        self.shrink();
    }

    /// Adds the counts of a histogram, bucket by bucket. The outermost buckets end at its smallest and largest
    /// observations, if it has these. Otherwise the lowest bucket begins at 0 if its bound is positive, and the highest
    /// counts at its bound.
    pub(super) fn add_explicit(&mut self, increase: &Histogram) {
        for (at, count) in increase
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
        {
            let bound = |at: Option<usize>| at.and_then(|at| increase.bounds.get(at)).copied();
            let count = *count as f64;
            let span = match (bound(at.checked_sub(1)), bound(Some(at))) {
                (Some(lower), Some(upper)) => ValueRange { lower, upper, count },
                (None, Some(upper)) => {
                    let said = increase.min.filter(|min| min.is_finite());
                    let floor = said.or((upper > 0.0).then_some(0.0));
                    let lower = floor.filter(|floor| *floor < upper).unwrap_or(upper);
                    ValueRange { lower, upper, count }
                }
                (Some(lower), None) => {
                    let upper = increase.max.filter(|max| *max > lower).unwrap_or(lower);
                    ValueRange { lower, upper, count }
                }
                (None, None) => {
                    ValueRange::at(increase.sum.unwrap_or(f64::NAN) / increase.count as f64, count)
                }
            };
            self.add_span(span);
        }
    }

    fn add_span(&mut self, span: ValueRange) {
        if !(span.lower.is_finite() && span.upper.is_finite()) {
            let ends = [span.lower, span.upper];
            let known = ends.iter().find(|end| end.is_finite()).unwrap_or(&span.lower);
            return self.add(*known, span.count);
        }
        match self.spans.binary_search_by(|known| known.order(&span)) {
            Ok(found) => self.spans[found].count += span.count,
            Err(place) if self.spans.len() < MAX_SPANS => self.spans.insert(place, span),
            Err(_) => self.add(f64::midpoint(span.lower, span.upper), span.count),
        }
    }

    /// Adds the counts of an exponential histogram.
    pub(super) fn add_exponential(&mut self, increase: &ExponentialHistogram) {
        self.zero += increase.zero_count as f64;
        for (side, sign) in [(&increase.positive, 1.0), (&increase.negative, -1.0)] {
            for (at, count) in side.filled() {
                let at = i32::try_from(at).unwrap_or(if at > 0 { i32::MAX } else { i32::MIN });
                self.add(sign * middle(increase.scale, at), count as f64);
            }
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.zero += other.zero;
        let scale = self.scale.min(other.scale);
        let halvings = |scale_of: i32| (scale_of - scale) as u32;
        coarsen(&mut self.positive, halvings(self.scale));
        coarsen(&mut self.negative, halvings(self.scale));
        self.scale = scale;
        let shift = halvings(other.scale);
        for (mine, theirs) in [
            (&mut self.positive, &other.positive),
            (&mut self.negative, &other.negative),
        ] {
            theirs
                .iter()
                .for_each(|(at, count)| put(mine, at >> shift, *count));
        }
        self.shrink();
        other.spans.iter().for_each(|span| self.add_span(*span));
    }

    fn shrink(&mut self) {
        while self.positive.len().max(self.negative.len()) > MAX_ENTRIES {
            coarsen(&mut self.positive, 1);
            coarsen(&mut self.negative, 1);
            self.scale -= 1;
        }
    }

    /// The value of rank `quantile` (0 to 1); `None`: there are no values.
    pub(super) fn quantile(&self, quantile: f64) -> Option<f64> {
        self.spread().quantile(quantile)
    }

    /// The sketched distribution, for several ranks.
    pub(super) fn spread(&self) -> Spread {
        let below = self
            .negative
            .iter()
            .map(|(at, n)| ValueRange::at(-middle(self.scale, *at), *n));
        let zero = (self.zero > 0.0).then(|| ValueRange::at(0.0, self.zero));
        let above = self
            .positive
            .iter()
            .map(|(at, n)| ValueRange::at(middle(self.scale, *at), *n));
        let spans: Vec<ValueRange> = below
            .chain(zero)
            .chain(above)
            .chain(self.spans.iter().copied())
            .collect();
        let mut edges: Vec<f64> = spans.iter().flat_map(|span| [span.lower, span.upper]).collect();
        edges.sort_unstable_by(f64::total_cmp);
        edges.dedup();
        Spread { spans, edges }
    }
}

/// Observations over the values that they may have.
pub(super) struct Spread {
    spans: Vec<ValueRange>,
    /// The bounds of spans, ascending. Between two of them observations are evenly spread.
    edges: Vec<f64>,
}

impl Spread {
    /// Observations up to `value`; those exactly at it count if `with_value`. A passed span counts whole, so that no
    /// sum of parts decides where a bucket ends.
    fn up_to(&self, value: f64, with_value: bool) -> f64 {
        let part = |span: &ValueRange| match span {
            ValueRange { lower, upper, .. } if lower == upper && value == *upper => {
                f64::from(u8::from(with_value))
            }
            ValueRange { upper, .. } if value >= *upper => 1.0,
            ValueRange { lower, .. } if value <= *lower => 0.0,
            ValueRange { lower, upper, .. } => (value - lower) / (upper - lower),
        };
        self.spans.iter().map(|span| span.count * part(span)).sum()
    }

    /// See [`Sketch::quantile`].
    pub(super) fn quantile(&self, quantile: f64) -> Option<f64> {
        let last = *self.edges.last()?;
        let total = self.up_to(last, true);
        let rank = quantile.clamp(0.0, 1.0) * total;
        let reached = self.edges.partition_point(|edge| self.up_to(*edge, true) < rank);
        let Some(upper) = self.edges.get(reached).copied() else {
            return Some(last);
        };
        let Some(lower) = reached
            .checked_sub(1)
            .and_then(|before| self.edges.get(before))
            .copied()
        else {
            return Some(upper);
        };
        let (before, until) = (self.up_to(lower, true), self.up_to(upper, false));
        // At a single value, ranks are reached at once.
        let value = if until > before && rank <= until {
            lower + (rank - before) / (until - before) * (upper - lower)
        } else {
            upper
        };
        Some(value.clamp(lower, upper))
    }
}

fn put(entries: &mut Entries, at: i32, count: f64) {
    match entries.binary_search_by_key(&at, |(bucket, _)| *bucket) {
        Ok(found) => entries[found].1 += count,
        Err(place) => entries.insert(place, (at, count)),
    }
}

/// Squares the base `times` times.
fn coarsen(entries: &mut Entries, times: u32) {
    if times > 0 {
        entries.iter_mut().for_each(|(at, _)| *at >>= times.min(31));
        entries.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 += next.1;
            }
            same
        });
    }
}

#[cfg(test)]
mod tests;
