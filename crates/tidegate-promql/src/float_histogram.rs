// SPDX-License-Identifier: Apache-2.0

//! Native histograms in queries, and their arithmetic. They have filled buckets only, and counts may be fractions.
//!
//! Bucket `i` of a side holds (base^(i-1), base^i] with base = 2^(2^-schema), as in Prometheus. Its index is one more
//! than that in OpenTelemetry.

mod total;

use tidegate_engine::ExponentialHistogram;

pub(super) use self::total::Total;
use super::notes::go_shortest;

/// The finest resolution that Prometheus knows.
const MAX_SCHEMA: i32 = 8;

/// Buckets of a side; a sum that would have more is kept at a lower resolution, so that work and memory are bounded.
const MAX_BUCKETS: usize = 4096;

/// Filled buckets of a side, their indices rising.
pub(super) type FilledBuckets = Vec<(i64, f64)>;

/// A native histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FloatHistogram {
    /// Resolution: base = 2^(2^-schema).
    pub schema: i32,
    /// Half the width of the zero bucket.
    pub zero_threshold: f64,
    /// Observations in the zero bucket.
    pub zero_count: f64,
    /// All observations.
    pub count: f64,
    /// The sum of all observations; NaN: it is not known.
    pub sum: f64,
    /// Buckets above zero.
    pub positive: FilledBuckets,
    /// Buckets below zero, by the distance from it.
    pub negative: FilledBuckets,
}

/// A bucket with its bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// The bounds that belong to it.
    pub rule: Boundary,
    /// Lower bound.
    pub lower: f64,
    /// Upper bound.
    pub upper: f64,
    /// Observations.
    pub count: f64,
}

/// The bounds that belong to a bucket, as a code of Prometheus's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// The upper one: buckets above zero.
    OpenLeft = 0,
    /// The lower one: buckets below zero.
    OpenRight = 1,
    /// Both: the zero bucket.
    Closed = 3,
}

impl From<&ExponentialHistogram> for FloatHistogram {
    fn from(of: &ExponentialHistogram) -> Self {
        let side = |buckets: &tidegate_engine::Buckets| -> FilledBuckets {
            let filled = buckets.filled();
            filled.map(|(index, count)| (index + 1, count as f64)).collect()
        };
        let counts = of.positive.counts.iter().chain(&of.negative.counts);
        let total = counts.fold(of.zero_count, |sum, count| sum.saturating_add(*count));
        let mut made = Self {
            schema: of.scale,
            zero_threshold: of.zero_threshold.max(0.0),
            zero_count: of.zero_count as f64,
            // If the counts of the buckets differ from the total, the buckets decide.
            count: if total > 0 { total } else { of.count } as f64,
            sum: of.sum.unwrap_or(f64::NAN),
            positive: side(&of.positive),
            negative: side(&of.negative),
        };
        made.coarsen(MAX_SCHEMA);
        made.fit();
        made
    }
}

impl FloatHistogram {
    /// The upper bound of a bucket above zero.
    fn bound(&self, index: i64) -> f64 {
        match index as f64 * (-f64::from(self.schema)).exp2() {
            // One more bucket holds infinite values.
            1024.0 => f64::MAX,
            exponent => exponent.exp2(),
        }
    }

    /// The number of filled buckets.
    pub fn len(&self) -> usize {
        self.positive.len() + self.negative.len() + usize::from(self.zero_count != 0.0)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it has observations of NaN, which are in no bucket.
    pub(super) fn has_nan(&self) -> bool {
        let counts = self
            .positive
            .iter()
            .chain(&self.negative)
            .map(|(_, count)| *count);
        self.sum.is_nan() && counts.sum::<f64>() + self.zero_count < self.count
    }

    /// The filled buckets from the lowest to the highest.
    pub fn buckets(&self) -> Vec<Bucket> {
        let zero = self.zero_threshold;
        let far = |(index, count): &(i64, f64)| {
            let (near, far) = (self.bound(index - 1), self.bound(*index));
            // The zero bucket may reach into it.
            let near = if near < zero && far > zero { zero } else { near };
            (near, far, *count)
        };
        let negative = self.negative.iter().rev().map(far);
        let negative = negative.map(|(near, far, count)| Bucket {
            rule: Boundary::OpenRight,
            lower: -far,
            upper: -near,
            count,
        });
        let middle = (self.zero_count > 0.0).then_some(Bucket {
            rule: Boundary::Closed,
            lower: -zero,
            upper: zero,
            count: self.zero_count,
        });
        let positive = self.positive.iter().map(far);
        let positive = positive.map(|(near, far, count)| Bucket {
            rule: Boundary::OpenLeft,
            lower: near,
            upper: far,
            count,
        });
        negative.chain(middle).chain(positive).collect()
    }

    /// The filled buckets, the zero bucket ending at zero where all others are on the other side of it.
    pub(super) fn one_sided(&self) -> Vec<Bucket> {
        let mut buckets = self.buckets();
        for bucket in buckets
            .iter_mut()
            .filter(|bucket| bucket.rule == Boundary::Closed)
        {
            match (self.negative.is_empty(), self.positive.is_empty()) {
                (true, false) => bucket.lower = 0.0,
                (false, true) => bucket.upper = 0.0,
                _ => {}
            }
        }
        buckets
    }

    /// Whether it is the very same, bit by bit.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let numbers = |of: &Self| [of.zero_threshold, of.zero_count, of.count, of.sum].map(f64::to_bits);
        let sides = |a: &FilledBuckets, b: &FilledBuckets| {
            a.len() == b.len()
                && a.iter()
                    .zip(b)
                    .all(|(a, b)| a.0 == b.0 && a.1.to_bits() == b.1.to_bits())
        };
        self.schema == other.schema
            && numbers(self) == numbers(other)
            && sides(&self.positive, &other.positive)
            && sides(&self.negative, &other.negative)
    }

    /// Every count and the sum by a function that takes nothing to nothing.
    fn each(&mut self, change: impl Fn(f64) -> f64) {
        for number in [&mut self.zero_count, &mut self.count, &mut self.sum] {
            *number = change(*number);
        }
        for side in [&mut self.positive, &mut self.negative] {
            side.iter_mut().for_each(|(_, count)| *count = change(*count));
            side.retain(|(_, count)| *count != 0.0);
        }
    }

    pub(super) fn times(mut self, factor: f64) -> Self {
        self.each(|number| number * factor);
        self
    }

    pub(super) fn over(mut self, divisor: f64) -> Self {
        if divisor == 0.0 {
            // The position of so large a count is unknown.
            self.positive.clear();
            self.negative.clear();
        }
        self.each(|number| number / divisor);
        self
    }

    fn is_finite(&self) -> bool {
        let counts = self
            .positive
            .iter()
            .chain(&self.negative)
            .map(|(_, count)| *count);
        let mut all = counts.chain([self.zero_count, self.count, self.sum]);
        all.all(|number| !number.is_infinite())
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.combine(other, 1.0);
    }

    pub(super) fn subtract(&mut self, other: &Self) {
        self.combine(other, -1.0);
    }

    fn combine(&mut self, other: &Self, sign: f64) {
        let other = self.aligned(other);
        self.zero_count += sign * other.zero_count;
        self.count += sign * other.count;
        self.sum += sign * other.sum;
        self.positive = merged(&self.positive, &other.positive, sign);
        self.negative = merged(&self.negative, &other.negative, sign);
        self.fit();
    }

    /// The other in the layout of this one, which is changed so that there is one.
    fn aligned<'a>(&mut self, other: &'a Self) -> std::borrow::Cow<'a, Self> {
        let mut other = std::borrow::Cow::Borrowed(other);
        // Widening one zero bucket to the end of a filled bucket may widen it beyond the other's.
        while self.zero_threshold != other.zero_threshold {
            if self.zero_threshold < other.zero_threshold {
                self.widen_zero(other.zero_threshold);
            } else {
                other.to_mut().widen_zero(self.zero_threshold);
            }
        }
        let schema = self.schema.min(other.schema);
        self.coarsen(schema);
        if other.schema > schema {
            other.to_mut().coarsen(schema);
        }
        other
    }

    /// Lowers the resolution until there are not too many buckets.
    fn fit(&mut self) {
        while self.positive.len().max(self.negative.len()) > MAX_BUCKETS {
            self.coarsen(self.schema - 1);
        }
    }

    /// Lowers the resolution to that of `schema`, if it is higher.
    fn coarsen(&mut self, schema: i32) {
        let shift = u32::try_from(i64::from(self.schema) - i64::from(schema)).unwrap_or(0);
        if shift == 0 {
            return;
        }
        for side in [&mut self.positive, &mut self.negative] {
            side.iter_mut()
                .for_each(|(index, _)| *index = ((*index - 1) >> shift.min(63)) + 1);
            side.dedup_by(|next, kept| {
                let same = next.0 == kept.0;
                kept.1 += if same { next.1 } else { 0.0 };
                same
            });
        }
        self.schema = schema;
    }

    /// The count of a zero bucket of at least this width, and its end. It ends where a filled bucket ends.
    fn zero_within(&self, threshold: f64) -> (f64, f64) {
        let mut threshold = threshold;
        loop {
            let before = threshold;
            let mut count = self.zero_count;
            for (index, of_bucket) in self.positive.iter().chain(&self.negative) {
                if self.bound(index - 1) < threshold {
                    count += of_bucket;
                    threshold = threshold.max(self.bound(*index));
                }
            }
            if threshold == before {
                return (count, threshold);
            }
        }
    }

    fn widen_zero(&mut self, threshold: f64) {
        let (count, threshold) = self.zero_within(threshold);
        (self.zero_count, self.zero_threshold) = (count, threshold);
        self.drop_within(threshold);
    }

    /// Takes the buckets away that the zero bucket covers.
    fn drop_within(&mut self, threshold: f64) {
        let bounds = Self {
            schema: self.schema,
            ..Self::default()
        };
        for side in [&mut self.positive, &mut self.negative] {
            side.retain(|(index, _)| bounds.bound(*index) > threshold);
        }
    }

    /// Whether the counter restarted between `before` and this.
    pub(super) fn is_reset(&self, before: &Self) -> bool {
        if self.count < before.count
            || self.schema > before.schema
            || self.zero_threshold < before.zero_threshold
        {
            return true;
        }
        let mut before = std::borrow::Cow::Borrowed(before);
        if before.zero_threshold < self.zero_threshold {
            before.to_mut().widen_zero(self.zero_threshold);
        }
        if before.zero_threshold != self.zero_threshold || self.zero_count < before.zero_count {
            return true;
        }
        if before.schema > self.schema {
            before.to_mut().coarsen(self.schema);
        }
        fell(&before.positive, &self.positive) || fell(&before.negative, &self.negative)
    }
}

impl std::fmt::Display for FloatHistogram {
    /// Writes the histogram as Prometheus does: count, sum, and the filled buckets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (count, sum) = (go_shortest(self.count), go_shortest(self.sum));
        write!(f, "{{count:{count}, sum:{sum}")?;
        for bucket in self.buckets() {
            let (open, close) = match bucket.rule {
                Boundary::OpenLeft => ('(', ']'),
                Boundary::OpenRight => ('[', ')'),
                Boundary::Closed => ('[', ']'),
            };
            let (lower, upper) = (go_shortest(bucket.lower), go_shortest(bucket.upper));
            write!(f, ", {open}{lower},{upper}{close}:{}", go_shortest(bucket.count))?;
        }
        f.write_str("}")
    }
}

/// Both sides' counts, those of `b` by a factor.
fn merged(a: &FilledBuckets, b: &FilledBuckets, factor: f64) -> FilledBuckets {
    let mut all = FilledBuckets::with_capacity(a.len().max(b.len()));
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    loop {
        let (left, right) = (
            a.peek().map(|(index, _)| *index),
            b.peek().map(|(index, _)| *index),
        );
        let index = match (left, right) {
            (None, None) => return all,
            (Some(left), Some(right)) => left.min(right),
            (one, other) => one.or(other).unwrap_or_default(),
        };
        let mut count = a
            .next_if(|bucket| bucket.0 == index)
            .map_or(0.0, |bucket| bucket.1);
        if let Some((_, more)) = b.next_if(|bucket| bucket.0 == index) {
            count += factor * more;
        }
        if count != 0.0 {
            all.push((index, count));
        }
    }
}

/// Whether some bucket holds less than before.
fn fell(before: &FilledBuckets, now: &FilledBuckets) -> bool {
    let mut now = now.iter().peekable();
    before.iter().any(|(index, count)| {
        while now.next_if(|bucket| bucket.0 < *index).is_some() {}
        let held = now
            .peek()
            .filter(|bucket| bucket.0 == *index)
            .map_or(0.0, |bucket| bucket.1);
        held < *count
    })
}
