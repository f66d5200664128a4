//! `histogram_quantile` over classic buckets and native histograms.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::eval::Vector;
use super::{FloatHistogram, Labels, SampleValue, native};

const LE: &str = "le";

/// The quantile of every histogram in a vector of buckets and native histograms. Where both kinds have the same labels
/// there is no telling which is meant: none.
pub(super) fn histogram_quantile(q: f64, vector: Vector) -> Vector {
    let mut classic: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
    let mut natives: Vec<(Labels, Arc<FloatHistogram>)> = Vec::new();
    for (labels, value) in vector {
        match value {
            SampleValue::Histogram(histogram) => natives.push((labels.nameless(), histogram)),
            SampleValue::Float(count) => {
                let Ok(bound) = labels.get(LE).parse::<f64>() else {
                    continue;
                };
                let of = labels.nameless().filter(|name| name != LE);
                classic.entry(of).or_default().push((bound, count));
            }
        }
    }
    let mut all = Vec::with_capacity(natives.len());
    for (labels, histogram) in natives {
        if classic.remove(&labels).is_none() {
            all.push((labels, SampleValue::Float(native::quantile(q, &histogram))));
        }
    }
    let of_buckets = |(labels, buckets)| (labels, SampleValue::Float(quantile(q, buckets)));
    all.extend(classic.into_iter().map(of_buckets));
    all
}

fn quantile(q: f64, mut buckets: Vec<(f64, f64)>) -> f64 {
    if q.is_nan() {
        return f64::NAN;
    }
    if !(0.0..=1.0).contains(&q) {
        return if q < 0.0 { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    if buckets.last().is_none_or(|(bound, _)| *bound != f64::INFINITY) {
        return f64::NAN;
    }
    // Two spellings of one bound are one bucket.
    buckets.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        kept.1 += if same { next.1 } else { 0.0 };
        same
    });
    // Counts are running totals: what falls was scraped in between.
    let mut highest = f64::NEG_INFINITY;
    for (_, count) in &mut buckets {
        highest = highest.max(*count);
        *count = highest;
    }
    let all = buckets.last().map_or(0.0, |(_, count)| *count);
    if buckets.len() < 2 || all == 0.0 || all.is_nan() {
        return f64::NAN;
    }
    let rank = q * all;
    let at = buckets[..buckets.len() - 1].partition_point(|(_, count)| *count < rank);
    let (bound, count) = buckets[at];
    if at == buckets.len() - 1 {
        return buckets[at - 1].0;
    }
    if at == 0 {
        return if bound <= 0.0 {
            bound
        } else {
            bound * (rank / count)
        };
    }
    let (below, before) = buckets[at - 1];
    below + (bound - below) * ((rank - before) / (count - before))
}
