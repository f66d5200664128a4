// SPDX-License-Identifier: Apache-2.0

//! Native histograms, as protobuf pages and remote writes have them.

/// Buckets next to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketSpan {
    /// Index of the first bucket; from the second span on, how many buckets lie between it and the one before.
    pub offset: i32,
    /// How many buckets.
    pub length: u32,
}

/// The counts of a histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counts {
    /// Whole: `deltas` counts.
    #[default]
    Integer,
    /// Floating point: `floats` counts.
    Float,
}

/// One side (positive or negative) of a native histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Side {
    /// Where buckets are.
    pub spans: Vec<BucketSpan>,
    /// Whole counts, each as the difference to the one before.
    pub deltas: Vec<i64>,
    /// Floating point counts.
    pub floats: Vec<f64>,
}

/// A native histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NativeHistogram {
    /// Resolution: -4 to 8, or [`NativeHistogram::CUSTOM`]. Others may come to be.
    pub schema: i32,
    /// Which counts are meant.
    pub counts: Counts,
    /// Whether it may fall.
    pub is_gauge: bool,
    /// Observations, of whole counts.
    pub count: u64,
    /// Observations, of floating point counts.
    pub count_float: f64,
    /// Sum of observations.
    pub sum: f64,
    /// Width of the zero bucket.
    pub zero_threshold: f64,
    /// Observations in the zero bucket, of whole counts.
    pub zero_count: u64,
    /// Observations in the zero bucket, of floating point counts.
    pub zero_count_float: f64,
    /// Buckets above zero; with custom buckets all of them.
    pub positive: Side,
    /// Buckets below zero.
    pub negative: Side,
    /// Bounds of custom buckets, without +Inf.
    pub custom_values: Vec<f64>,
}

/// Why a native histogram can't be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHistogram {
    /// Spans overlap.
    #[error("a span begins before the previous span ends")]
    SpanOffset,
    /// Spans and counts differ in number.
    #[error("its spans hold {0} buckets and it has {1}")]
    SpanLength(u64, u64),
    /// A count below zero, or beyond what there is.
    #[error("a bucket's count is negative or too large")]
    BucketCount,
    /// The sum of all buckets is not the count.
    #[error("the counts of its buckets differ from its count of observations")]
    Count,
    /// Bounds that don't rise.
    #[error("its custom bounds do not rise")]
    CustomBounds,
    /// Something that custom buckets don't have, or exponential ones.
    #[error("it has fields that its schema does not allow")]
    Parts,
}

impl NativeHistogram {
    /// The schema of buckets with bounds of their own.
    pub const CUSTOM: i32 = -53;

    /// Empties it; it keeps its room.
    pub(crate) fn clear(&mut self) {
        let lists = [&mut self.positive, &mut self.negative];
        let [positive, negative] = lists.map(std::mem::take).map(|mut side| {
            side.spans.clear();
            side.deltas.clear();
            side.floats.clear();
            side
        });
        let mut custom_values = std::mem::take(&mut self.custom_values);
        custom_values.clear();
        *self = Self {
            positive,
            negative,
            custom_values,
            ..Self::default()
        };
    }

    /// Whether Prometheus would store it.
    ///
    /// # Errors
    /// Its spans, counts, custom bounds or fields are invalid; the variant names the first problem.
    pub fn check(&self) -> Result<(), BadHistogram> {
        match self.schema {
            Self::CUSTOM => self.check_custom()?,
            _ if self.custom_values.is_empty() => {}
            _ => return Err(BadHistogram::Parts),
        }
        match self.counts {
            Counts::Integer => self.check_whole(),
            Counts::Float => self.check_floats(),
        }
    }

    fn check_custom(&self) -> Result<(), BadHistogram> {
        let pairs = self.custom_values.iter().zip(self.custom_values.iter().skip(1));
        let rises = pairs.clone().all(|(a, b)| a < b);
        if !rises
            || self
                .custom_values
                .iter()
                .any(|bound| bound.is_nan() || *bound == f64::INFINITY)
        {
            return Err(BadHistogram::CustomBounds);
        }
        let mut reach = 0i64;
        for span in &self.positive.spans {
            reach = reach
                .saturating_add(i64::from(span.offset))
                .saturating_add(i64::from(span.length));
        }
        let fits = reach <= self.custom_values.len() as i64 + 1;
        let first = self.positive.spans.first().is_none_or(|span| span.offset >= 0);
        let bare = self.negative == Side::default()
            && self.zero_count == 0
            && self.zero_count_float == 0.0
            && self.zero_threshold == 0.0;
        if fits && first && bare {
            Ok(())
        } else {
            Err(BadHistogram::Parts)
        }
    }

    fn check_whole(&self) -> Result<(), BadHistogram> {
        let mut total = self.zero_count;
        for side in [&self.negative, &self.positive] {
            check_spans(&side.spans, side.deltas.len())?;
            let mut count = 0i64;
            for delta in &side.deltas {
                count = count.checked_add(*delta).ok_or(BadHistogram::BucketCount)?;
                let count = u64::try_from(count).map_err(|_| BadHistogram::BucketCount)?;
                total = total.checked_add(count).ok_or(BadHistogram::BucketCount)?;
            }
        }
        // Observations of NaN are in no bucket.
        let matches = if self.sum.is_nan() {
            total <= self.count
        } else {
            total == self.count
        };
        matches.then_some(()).ok_or(BadHistogram::Count)
    }

    fn check_floats(&self) -> Result<(), BadHistogram> {
        for side in [&self.negative, &self.positive] {
            check_spans(&side.spans, side.floats.len())?;
            if side.floats.iter().any(|count| *count < 0.0) {
                return Err(BadHistogram::BucketCount);
            }
        }
        Ok(())
    }
}

fn check_spans(spans: &[BucketSpan], buckets: usize) -> Result<(), BadHistogram> {
    if spans.iter().skip(1).any(|span| span.offset < 0) {
        return Err(BadHistogram::SpanOffset);
    }
    let length: u64 = spans.iter().map(|span| u64::from(span.length)).sum();
    if length == buckets as u64 {
        Ok(())
    } else {
        Err(BadHistogram::SpanLength(length, buckets as u64))
    }
}
