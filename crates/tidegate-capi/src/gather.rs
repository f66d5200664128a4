// SPDX-License-Identifier: Apache-2.0

//! The registered metrics and their values: names, kinds, units, descriptions, labels, values.

#![allow(unsafe_code)]

use std::ffi::c_char;

use tidegate_metrics::{FamilyValues, MetricsRegistry, SeriesValues, Value};

use crate::answers::Arena;
use crate::any::tg_any;
use crate::arguments::{borrow, give, output, release, retain, tg_label};
use crate::family::tg_kind;
use crate::registry::tg_registry;
use crate::status::{Failure, guard, tg_status};

/// Metrics with their values at one instant.
pub struct tg_metrics {
    metrics: Vec<tg_metric>,
    _arena: Arena,
}

/// A metric, as long as the tg_metrics it is of.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tg_metric {
    /// Its name with all prefixes.
    pub name: *const c_char,
    /// Its description.
    pub help: *const c_char,
    /// Its UCUM unit.
    pub unit: *const c_char,
    /// A tg_kind.
    pub kind: u32,
    /// Its series.
    pub series: *const tg_series,
    /// How many series.
    pub series_count: usize,
}

/// A series, as long as the tg_metrics it is of.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tg_series {
    /// Its labels.
    pub labels: *const tg_label,
    /// How many labels.
    pub label_count: usize,
    /// Its value as a number; of histograms the sum of the values.
    pub value: f64,
    /// The value of a counter, exact; of an up-down counter its two's complement; of histograms the number of values.
    pub count: u64,
    /// Of a histogram with fixed buckets: how many values each holds, one more than bounds.
    pub counts: *const u64,
    /// Its upper bounds, rising.
    pub bounds: *const f64,
    /// How many bounds.
    pub bound_count: usize,
    /// Of an exponential histogram; else NULL.
    pub exponential: *const tg_exponential,
}

/// Buckets of an exponential histogram. Bucket i of a side holds sizes in (base^(offset+i), base^(offset+i+1)].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tg_exponential {
    /// The base is 2^(2^-scale).
    pub scale: i32,
    /// How many values are too near to zero for a bucket.
    pub zero_count: u64,
    /// Index of the first bucket of positive values.
    pub positive_offset: i32,
    /// How many values each of these buckets holds.
    pub positive: *const u64,
    /// How many of these buckets.
    pub positive_count: usize,
    /// Index of the first bucket of negative values.
    pub negative_offset: i32,
    /// How many values each of these buckets holds.
    pub negative: *const u64,
    /// How many of these buckets.
    pub negative_count: usize,
}

impl tg_metrics {
    pub(crate) fn of(families: &[FamilyValues]) -> Self {
        let mut arena = Arena::default();
        let metrics = families.iter().map(|family| metric(family, &mut arena));
        Self {
            metrics: metrics.collect(),
            _arena: arena,
        }
    }
}

fn metric(family: &FamilyValues, arena: &mut Arena) -> tg_metric {
    let series = family.series.iter().map(|one| series(one, arena)).collect();
    let (series, series_count) = arena.array(series);
    tg_metric {
        name: arena.text(&family.name),
        help: arena.text(&family.help),
        unit: arena.text(&family.unit),
        kind: tg_kind::of(&family.kind),
        series,
        series_count,
    }
}

fn series(one: &SeriesValues, arena: &mut Arena) -> tg_series {
    let (labels, label_count) = arena.labels(&one.labels);
    let mut series = tg_series {
        labels,
        label_count,
        value: one.value.as_f64(),
        count: 0,
        counts: std::ptr::null(),
        bounds: std::ptr::null(),
        bound_count: 0,
        exponential: std::ptr::null(),
    };
    if let Some((count, sum)) = one.value.count_and_sum() {
        (series.count, series.value) = (count, sum);
    }
    match &one.value {
        Value::Counter(count) => series.count = *count,
        Value::UpDownCounter(value) => series.count = *value as u64,
        Value::Histogram(histogram) => {
            series.counts = arena.array(histogram.counts.clone()).0;
            (series.bounds, series.bound_count) = arena.array(histogram.bounds.to_vec());
        }
        Value::Exponential(histogram) => {
            let (positive, positive_count) = arena.array(histogram.positive.counts.clone());
            let (negative, negative_count) = arena.array(histogram.negative.counts.clone());
            let exponential = tg_exponential {
                scale: histogram.scale,
                zero_count: histogram.zero_count,
                positive_offset: histogram.positive.offset,
                positive,
                positive_count,
                negative_offset: histogram.negative.offset,
                negative,
                negative_count,
            };
            series.exponential = arena.array(vec![exponential]).0;
        }
        _ => {}
    }
    series
}

/// Everything that a registry has, with its values, as a reader of it sees them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_registry_gather(
    registry: *const tg_registry,
    metrics: *mut *mut tg_metrics,
) -> tg_status {
    let make = || {
        // SAFETY: the contract of the header.
        let registry = unsafe { borrow(registry, "registry") }?;
        Ok(tg_metrics::of(&registry.scope().gather()))
    };
    // SAFETY: the contract of the header.
    guard(|| unsafe { give(metrics, make) })
}

/// Gives the description and the value of one instrument, as a metric with one series; of a family all its series.
/// TG_NONE: its registry keeps nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_describe(of: tg_any, metrics: *mut *mut tg_metrics) -> tg_status {
    // SAFETY: the contract of the header.
    guard(|| unsafe { give(metrics, || Ok(tg_metrics::of(&[of.borrow()?.describe()?]))) })
}

/// How many metrics there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_metrics_count(metrics: *const tg_metrics, count: *mut usize) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header, here and below.
        let count = unsafe { output(count, 0, "count") }?;
        *count = unsafe { borrow(metrics, "metrics") }?.metrics.len();
        Ok(())
    })
}

/// One of the metrics, from 0 on. TG_NONE: the index is beyond the last.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_metrics_at(
    metrics: *const tg_metrics,
    at: usize,
    metric: *mut *const tg_metric,
) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header, here and below.
        let metric = unsafe { output(metric, std::ptr::null(), "metric") }?;
        let found = unsafe { borrow(metrics, "metrics") }?.metrics.get(at);
        *metric = found.ok_or_else(|| Failure::none("the index exceeds the number of metrics"))?;
        Ok(())
    })
}

/// One owner more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_metrics_retain(metrics: *const tg_metrics) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { retain(metrics) }
}

/// One owner less.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_metrics_release(metrics: *const tg_metrics) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { release(metrics) }
}
