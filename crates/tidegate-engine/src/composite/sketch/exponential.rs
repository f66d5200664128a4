// SPDX-License-Identifier: Apache-2.0

//! Sketches as exponential histograms, in which other processes can read them.

use super::{Entries, MAX_ENTRIES, SCALE, Sketch, bucket};
use crate::{Buckets, ExponentialHistogram};

/// Buckets of the sketch that a range of values is spread over: 10 octaves. Values below these count in the lowest one.
const MAX_PIECES: i32 = 320;

impl Sketch {
    /// Gives spare memory back: a merged sketch then takes no more than its terms together.
    pub(in crate::composite) fn fit(&mut self) {
        self.positive.shrink_to_fit();
        self.negative.shrink_to_fit();
        self.spans.shrink_to_fit();
    }

    /// The same distribution as an exponential histogram, which has whole counts. Each rank moves by less than one
    /// observation. A side reaches over at most [`MAX_ENTRIES`] buckets: the scale falls until it does.
    pub(in crate::composite) fn to_histogram(&self) -> ExponentialHistogram {
        let (mut positive, mut negative) = (self.positive.clone(), self.negative.clone());
        let mut zero = self.zero;
        for span in &self.spans {
            // Halves, because the width of a range need not be finite.
            let half = |lower: f64, upper: f64| upper / 2.0 - lower / 2.0;
            let share = |lower, upper| span.count * (half(lower, upper) / half(span.lower, span.upper));
            match (span.lower, span.upper) {
                (lower, upper) if lower == upper && upper.abs() < f64::MIN_POSITIVE => zero += span.count,
                (lower, upper) if lower >= 0.0 => spread(self.scale, lower, upper, span.count, &mut positive),
                (lower, upper) if upper <= 0.0 => {
                    spread(self.scale, -upper, -lower, span.count, &mut negative);
                }
                (lower, upper) => {
                    spread(self.scale, 0.0, upper, share(0.0, upper), &mut positive);
                    spread(self.scale, 0.0, -lower, share(lower, 0.0), &mut negative);
                }
            }
        }
        let shift = needed_shift(&positive).max(needed_shift(&negative));
        // Ascending by value, so that rounding moves no observation past another.
        let mut rounding = Rounding::default();
        let mut negative = dense(&negative, shift);
        for count in negative.1.iter_mut().rev() {
            *count = rounding.whole(*count) as f64;
        }
        let zero_count = rounding.whole(zero);
        let mut positive = dense(&positive, shift);
        for count in &mut positive.1 {
            *count = rounding.whole(*count) as f64;
        }
        let side = |(first, counts): (i32, Vec<f64>)| {
            Buckets::trimmed(first, counts.iter().map(|count| *count as u64).collect())
        };
        ExponentialHistogram {
            count: rounding.given,
            scale: self.scale - shift as i32,
            zero_count,
            positive: side(positive),
            negative: side(negative),
            ..ExponentialHistogram::default()
        }
    }

    /// The distribution of a histogram that passed [`ExponentialHistogram::is_sound`]. A scale below that of sketches
    /// stays, because finer buckets would pretend to know more.
    pub(in crate::composite) fn of_histogram(histogram: &ExponentialHistogram) -> Self {
        let scale = histogram.scale.min(SCALE);
        let shift = (histogram.scale - scale).unsigned_abs();
        let ends = [f64::MIN_POSITIVE, f64::MAX].map(|size| bucket(scale, size));
        let side = |buckets: &Buckets| {
            let filled = buckets.filled().map(|(at, count)| {
                let at = (at >> shift).clamp(i64::from(ends[0]), i64::from(ends[1]));
                (at as i32, count as f64)
            });
            let mut entries: Entries = Vec::new();
            for (at, count) in filled {
                match entries.last_mut() {
                    Some(last) if last.0 == at => last.1 += count,
                    _ => entries.push((at, count)),
                }
            }
            entries
        };
        let mut sketch = Self {
            scale,
            zero: histogram.zero_count as f64,
            positive: side(&histogram.positive),
            negative: side(&histogram.negative),
            spans: Vec::new(),
        };
        sketch.shrink();
        sketch.positive.shrink_to_fit();
        sketch.negative.shrink_to_fit();
        sketch
    }

    /// All that it holds as numbers: equal for equal sketches.
    pub(in crate::composite) fn bits(&self) -> impl Iterator<Item = u64> {
        let side = |entries: &'_ Entries| {
            let numbers = entries
                .iter()
                .flat_map(|(at, count)| [u64::from(at.cast_unsigned()), count.to_bits()]);
            numbers.collect::<Vec<_>>()
        };
        let (positive, negative) = (side(&self.positive), side(&self.negative));
        let spans = self.spans.iter();
        let spans = spans.flat_map(|span| [span.lower, span.upper, span.count].map(f64::to_bits));
        let head = [
            u64::from(self.scale.cast_unsigned()),
            self.zero.to_bits(),
            positive.len() as u64,
            negative.len() as u64,
        ];
        head.into_iter()
            .chain(positive)
            .chain(negative)
            .chain(spans.collect::<Vec<_>>())
    }
}

/// Whole numbers whose running total follows that of fractions.
#[derive(Default)]
struct Rounding {
    seen: f64,
    given: u64,
}

impl Rounding {
    fn whole(&mut self, count: f64) -> u64 {
        self.seen += count;
        let more = (self.seen.round() as u64).saturating_sub(self.given);
        self.given += more;
        more
    }
}

/// Spreads observations evenly over the values between two bounds that are not negative.
fn spread(scale: i32, lower: f64, upper: f64, count: f64, to: &mut Entries) {
    if upper < f64::MIN_POSITIVE {
        return;
    }
    let last = bucket(scale, upper);
    let lowest = last.saturating_sub(MAX_PIECES - 1);
    let first = if lower < f64::MIN_POSITIVE {
        lowest
    } else {
        bucket(scale, lower).clamp(lowest, last)
    };
    let (mut left, width) = (count, upper - lower);
    for at in (first + 1..=last).rev() {
        let floor = edge(scale, at).clamp(lower, upper);
        let ceiling = if at == last {
            upper
        } else {
            edge(scale, at + 1).min(upper)
        };
        let piece = (count * ((ceiling - floor) / width)).min(left);
        left -= piece;
        to.push((at, piece));
    }
    to.push((first, left));
}

/// base^`index`.
fn edge(scale: i32, index: i32) -> f64 {
    (f64::from(index) * (-f64::from(scale)).exp2()).exp2()
}

/// The halvings of the scale after which the entries reach over at most [`MAX_ENTRIES`] buckets.
fn needed_shift(entries: &Entries) -> u32 {
    let places = || entries.iter().map(|(at, _)| *at);
    let (Some(first), Some(last)) = (places().min(), places().max()) else {
        return 0;
    };
    let fits = |shift: &u32| i64::from(last >> shift) - i64::from(first >> shift) < MAX_ENTRIES as i64;
    (0..31).find(fits).unwrap_or(31)
}

/// The first bucket, and the counts from there on, in buckets 2^`shift` times as wide (in the exponent).
fn dense(entries: &Entries, shift: u32) -> (i32, Vec<f64>) {
    let places = || entries.iter().map(|(at, _)| at >> shift);
    let (Some(first), Some(last)) = (places().min(), places().max()) else {
        return (0, Vec::new());
    };
    let mut counts = vec![0.0; (last - first) as usize + 1];
    for (at, count) in entries {
        if let Some(place) = counts.get_mut(((at >> shift) - first) as usize) {
            *place += count;
        }
    }
    (first, counts)
}
