// SPDX-License-Identifier: Apache-2.0

//! Native histograms: exponential ones, and ones with custom bounds.

use tidegate_engine::{Buckets, Data, ExponentialHistogram, Histogram, Temporality, Value};
use tidegate_exposition::{Counts, NativeHistogram, Side};

use super::sample::is_stale;

/// A native histogram with more buckets than allowed, however wide they are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketLimit;

/// The most buckets that a side may span, so that a few distant ones don't take much memory. A wider histogram is
/// made coarser. At the widest schema all doubles fit.
fn max_span(filled: i64) -> i64 {
    256 + 16 * filled
}

/// Schemas of exponential buckets, the widest first.
const SCHEMAS: std::ops::RangeInclusive<i32> = -4..=8;

/// Whether native histograms may have a schema: one of exponential buckets, or that of custom buckets.
pub fn knows_schema(schema: i32) -> bool {
    schema == NativeHistogram::CUSTOM || SCHEMAS.contains(&schema)
}

/// The allowed resolution of a native histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// Buckets that may hold something; 0: any number of them.
    pub buckets: usize,
    /// The highest schema: how many times the buckets of a power of two are halved.
    pub schema: i32,
}

impl Resolution {
    /// The narrowest buckets that native histograms have.
    pub const MAX_SCHEMA: i32 = 8;

    /// The finest that there is.
    pub const FINEST: Self = Self {
        buckets: 0,
        schema: Self::MAX_SCHEMA,
    };

    /// The highest schema whose buckets grow by this factor at least; a factor of 1 or less, or NaN, sets no limit.
    pub fn schema_of_factor(factor: f64) -> i32 {
        if factor.is_nan() || factor <= 1.0 {
            return Self::MAX_SCHEMA;
        }
        let schema = -factor.log2().log2();
        let within = schema
            .floor()
            .clamp(f64::from(*SCHEMAS.start()), f64::from(Self::MAX_SCHEMA));
        #[expect(clippy::cast_possible_truncation, reason = "it is a small whole number")]
        {
            within as i32
        }
    }
}

/// Like [`native_within`], with `limit` as the most buckets.
///
/// # Errors
/// The histogram has more than `limit` buckets, however wide they are.
pub fn native(histogram: &NativeHistogram, limit: usize) -> Result<Option<(Value, Data)>, BucketLimit> {
    let resolution = Resolution {
        buckets: limit,
        ..Resolution::FINEST
    };
    native_within(histogram, resolution)
}

/// The value of a native histogram that has been checked, and its kind of data; nothing for one that may fall, that has
/// fractions of observations or a schema that is unknown: OpenTelemetry does not have these. Buckets are made wider as
/// the resolution demands.
///
/// # Errors
/// The histogram has more buckets than the resolution allows, however wide they are.
pub fn native_within(
    histogram: &NativeHistogram,
    resolution: Resolution,
) -> Result<Option<(Value, Data)>, BucketLimit> {
    let temporality = Temporality::Cumulative;
    let is_custom = histogram.schema == NativeHistogram::CUSTOM;
    if histogram.is_gauge || histogram.counts == Counts::Float || !knows_schema(histogram.schema) {
        return Ok(None);
    }
    let data = if is_custom {
        Data::Histogram { temporality }
    } else {
        Data::ExponentialHistogram { temporality }
    };
    if is_stale(histogram.sum) {
        return Ok(Some((Value::NoRecordedValue, data)));
    }
    let value = if is_custom {
        Value::Histogram(Box::new(custom(histogram, resolution.buckets)?))
    } else {
        Value::ExponentialHistogram(Box::new(exponential(histogram, resolution)?))
    };
    Ok(Some((value, data)))
}

/// Index and count of every bucket that holds something.
fn filled(side: &Side) -> impl Iterator<Item = (i64, u64)> + '_ {
    let mut next = 0i64;
    let indices = side.spans.iter().flat_map(move |span| {
        let first = next + i64::from(span.offset);
        next = first + i64::from(span.length);
        first..next
    });
    let mut count = 0i64;
    let counts = side.deltas.iter().map(move |delta| {
        count = count.saturating_add(*delta);
        u64::try_from(count).unwrap_or(0)
    });
    indices.zip(counts).filter(|(_, count)| *count > 0)
}

fn custom(histogram: &NativeHistogram, limit: usize) -> Result<Histogram, BucketLimit> {
    if limit > 0 && filled(&histogram.positive).count() > limit {
        return Err(BucketLimit);
    }
    let mut counts = vec![0; histogram.custom_values.len() + 1];
    for (index, count) in filled(&histogram.positive) {
        let place = usize::try_from(index).ok().and_then(|at| counts.get_mut(at));
        if let Some(place) = place {
            *place = count;
        }
    }
    Ok(Histogram {
        count: counts.iter().sum(),
        sum: Some(histogram.sum),
        bounds: histogram.custom_values.as_slice().into(),
        counts,
        ..Histogram::default()
    })
}

fn exponential(
    histogram: &NativeHistogram,
    resolution: Resolution,
) -> Result<ExponentialHistogram, BucketLimit> {
    let limit = resolution.buckets;
    let mut shift = (histogram.schema - resolution.schema).max(0);
    while !fits(histogram, shift, limit) {
        shift += 1;
        if limit > 0 && histogram.schema - shift < *SCHEMAS.start() {
            return Err(BucketLimit);
        }
    }
    let mut value = ExponentialHistogram {
        sum: Some(histogram.sum),
        scale: histogram.schema - shift,
        zero_count: histogram.zero_count,
        zero_threshold: histogram.zero_threshold,
        positive: buckets(histogram, &histogram.positive, shift),
        negative: buckets(histogram, &histogram.negative, shift),
        ..ExponentialHistogram::default()
    };
    let counts = value.positive.counts.iter().chain(&value.negative.counts);
    // Observations of infinity and NaN are in no bucket that OpenTelemetry has.
    value.count = counts.fold(value.zero_count, |sum, count| sum.saturating_add(*count));
    Ok(value)
}

/// The buckets of a side that hold doubles, with indices of OpenTelemetry: those are one lower.
fn doubles<'a>(histogram: &NativeHistogram, side: &'a Side) -> impl Iterator<Item = (i64, u64)> + 'a {
    /// Exponents of 2 that doubles have, subnormal ones included.
    const EXPONENTS: std::ops::RangeInclusive<i64> = -1075..=1024;
    let widen = move |exponent: i64| match histogram.schema {
        schema @ 0.. => exponent << schema,
        schema => exponent >> -schema,
    };
    let (first, last) = (widen(*EXPONENTS.start()), widen(*EXPONENTS.end()));
    let is_double = move |index: i64| (first..=last).contains(&index);
    let kept = filled(side).filter(move |(index, _)| is_double(*index));
    kept.map(|(index, count)| (index - 1, count))
}

fn fits(histogram: &NativeHistogram, shift: i32, limit: usize) -> bool {
    let mut all = 0;
    for side in [&histogram.positive, &histogram.negative] {
        let (mut first, mut last) = (None, None);
        let mut filled = 0;
        for (index, _) in doubles(histogram, side) {
            let index = index >> shift;
            filled += i64::from(last != Some(index));
            first = first.or(Some(index));
            last = Some(index);
        }
        let span = last.zip(first).map_or(0, |(last, first)| last - first + 1);
        if span > max_span(filled) {
            return false;
        }
        all += filled;
    }
    limit == 0 || usize::try_from(all).is_ok_and(|all| all <= limit)
}

fn buckets(histogram: &NativeHistogram, side: &Side, shift: i32) -> Buckets {
    let mut buckets = Buckets::default();
    let mut first = None;
    for (index, count) in doubles(histogram, side) {
        let index = index >> shift;
        let at = usize::try_from(index - *first.get_or_insert(index)).unwrap_or(0);
        if buckets.counts.len() <= at {
            buckets.counts.resize(at + 1, 0);
        }
        buckets.counts[at] = buckets.counts[at].saturating_add(count);
    }
    // An index of a double fits.
    buckets.offset = first.and_then(|first| i32::try_from(first).ok()).unwrap_or(0);
    buckets
}
