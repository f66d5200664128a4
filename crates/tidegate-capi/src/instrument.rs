// SPDX-License-Identifier: Apache-2.0

//! Instruments: what a program records with.
//!
//! Recording costs what it costs in Rust, a call and a look at the pointer: see `benches/record.rs`.

#![allow(unsafe_code)]

use tidegate_metrics::{Counter, FloatCounter, Gauge, Histogram, UpDownCounter};

use crate::arguments::{borrow, give, output, release, retain, tg_label};
use crate::family::{single, tg_description};
use crate::registry::tg_registry;
use crate::status::{Failure, guard, tg_status};
use crate::trace::{span_of, tg_trace_context};

/// A whole number that only grows. Several threads may use one at once, as all instruments.
pub struct tg_counter(pub(crate) Counter);

/// A number that only grows.
pub struct tg_float_counter(pub(crate) FloatCounter);

/// A whole number that grows and falls by what is added.
pub struct tg_up_down_counter(pub(crate) UpDownCounter);

/// A number that is set.
pub struct tg_gauge(pub(crate) Gauge);

/// Values counted by buckets.
pub struct tg_histogram(pub(crate) Histogram);

/// Records with an instrument.
///
/// # Safety
/// `handle` is NULL or one of `T` that has an owner.
#[inline(always)]
unsafe fn record<T>(handle: *const T, act: impl FnOnce(&T)) -> tg_status {
    guard(|| {
        // SAFETY: the caller's promise.
        act(unsafe { handle.as_ref() }.ok_or_else(|| Failure::null("the instrument"))?);
        Ok(())
    })
}

/// A counter with these constant labels. To register the same again gives the same counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_counter_new(
    registry: *const tg_registry,
    description: *const tg_description,
    labels: *const tg_label,
    label_count: usize,
    counter: *mut *mut tg_counter,
) -> tg_status {
    // SAFETY: the contract of the header, here and below.
    let make = || unsafe { single(registry, description, labels, label_count, false) }.map(tg_counter);
    guard(|| unsafe { give(counter, make) })
}

/// Adds one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_counter_inc(counter: *const tg_counter) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { record(counter, |counter| counter.0.inc()) }
}

/// Adds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_counter_add(counter: *const tg_counter, amount: u64) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { record(counter, |counter| counter.0.add(amount)) }
}

/// Adds, and remembers that it happened in this span, where the description said `exemplars`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_counter_add_in(
    counter: *const tg_counter,
    amount: u64,
    span: *const tg_trace_context,
) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header, here and below.
        let span = unsafe { span_of(span) }?;
        unsafe { borrow(counter, "counter") }?.0.add_in(amount, span);
        Ok(())
    })
}

/// The total; 0 of a registry that keeps nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_counter_get(counter: *const tg_counter, value: *mut u64) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header, here and below.
        let value = unsafe { output(value, Default::default(), "value") }?;
        *value = unsafe { borrow(counter, "counter") }?.0.get();
        Ok(())
    })
}

/// One owner more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_counter_retain(counter: *const tg_counter) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { retain(counter) }
}

/// One owner less. The series stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_counter_release(counter: *const tg_counter) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { release(counter) }
}

/// A fractional counter with these constant labels.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_float_counter_new(
    registry: *const tg_registry,
    description: *const tg_description,
    labels: *const tg_label,
    label_count: usize,
    counter: *mut *mut tg_float_counter,
) -> tg_status {
    // SAFETY: the contract of the header, here and below.
    let make = || unsafe { single(registry, description, labels, label_count, false) }.map(tg_float_counter);
    guard(|| unsafe { give(counter, make) })
}

/// Adds an amount. It does not add a negative or non-finite number; tg_misused() counts it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_float_counter_add(counter: *const tg_float_counter, amount: f64) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { record(counter, |counter| counter.0.add(amount)) }
}

/// The total; 0 of a registry that keeps nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_float_counter_get(
    counter: *const tg_float_counter,
    value: *mut f64,
) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header, here and below.
        let value = unsafe { output(value, Default::default(), "value") }?;
        *value = unsafe { borrow(counter, "counter") }?.0.get();
        Ok(())
    })
}

/// One owner more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_float_counter_retain(counter: *const tg_float_counter) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { retain(counter) }
}

/// One owner less. The series stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_float_counter_release(counter: *const tg_float_counter) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { release(counter) }
}

/// An up-down counter with these constant labels.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_up_down_counter_new(
    registry: *const tg_registry,
    description: *const tg_description,
    labels: *const tg_label,
    label_count: usize,
    counter: *mut *mut tg_up_down_counter,
) -> tg_status {
    // SAFETY: the contract of the header, here and below.
    let make =
        || unsafe { single(registry, description, labels, label_count, false) }.map(tg_up_down_counter);
    guard(|| unsafe { give(counter, make) })
}

/// Adds; less than nothing takes away.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_up_down_counter_add(
    counter: *const tg_up_down_counter,
    amount: i64,
) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { record(counter, |counter| counter.0.add(amount)) }
}

/// The value; 0 of a registry that keeps nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_up_down_counter_get(
    counter: *const tg_up_down_counter,
    value: *mut i64,
) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header, here and below.
        let value = unsafe { output(value, Default::default(), "value") }?;
        *value = unsafe { borrow(counter, "counter") }?.0.get();
        Ok(())
    })
}

/// One owner more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_up_down_counter_retain(counter: *const tg_up_down_counter) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { retain(counter) }
}

/// One owner less. The series stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_up_down_counter_release(counter: *const tg_up_down_counter) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { release(counter) }
}

/// A gauge with these constant labels.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_gauge_new(
    registry: *const tg_registry,
    description: *const tg_description,
    labels: *const tg_label,
    label_count: usize,
    gauge: *mut *mut tg_gauge,
) -> tg_status {
    // SAFETY: the contract of the header, here and below.
    let make = || unsafe { single(registry, description, labels, label_count, false) }.map(tg_gauge);
    guard(|| unsafe { give(gauge, make) })
}

/// Sets. NaN says that the value is not known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_gauge_set(gauge: *const tg_gauge, value: f64) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { record(gauge, |gauge| gauge.0.set(value)) }
}

/// Adds; less than nothing takes away. NaN is not added, and counted by tg_misused().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_gauge_add(gauge: *const tg_gauge, amount: f64) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { record(gauge, |gauge| gauge.0.add(amount)) }
}

/// The value; 0 of a registry that keeps nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_gauge_get(gauge: *const tg_gauge, value: *mut f64) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header, here and below.
        let value = unsafe { output(value, Default::default(), "value") }?;
        *value = unsafe { borrow(gauge, "gauge") }?.0.get();
        Ok(())
    })
}

/// One owner more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_gauge_retain(gauge: *const tg_gauge) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { retain(gauge) }
}

/// One owner less. The series stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_gauge_release(gauge: *const tg_gauge) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { release(gauge) }
}

/// A histogram with fixed buckets and these constant labels.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_histogram_new(
    registry: *const tg_registry,
    description: *const tg_description,
    labels: *const tg_label,
    label_count: usize,
    histogram: *mut *mut tg_histogram,
) -> tg_status {
    // SAFETY: the contract of the header, here and below.
    let make = || unsafe { single(registry, description, labels, label_count, false) }.map(tg_histogram);
    guard(|| unsafe { give(histogram, make) })
}

/// A histogram with exponential buckets and these constant labels.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_exponential_histogram_new(
    registry: *const tg_registry,
    description: *const tg_description,
    labels: *const tg_label,
    label_count: usize,
    histogram: *mut *mut tg_histogram,
) -> tg_status {
    // SAFETY: the contract of the header, here and below.
    let make = || unsafe { single(registry, description, labels, label_count, true) }.map(tg_histogram);
    guard(|| unsafe { give(histogram, make) })
}

/// Counts a value. It does not count a non-finite number; tg_misused() counts it instead.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_histogram_observe(histogram: *const tg_histogram, value: f64) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { record(histogram, |histogram| histogram.0.observe(value)) }
}

/// Counts a value, and remembers that it was made in this span, where the description said `exemplars`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_histogram_observe_in(
    histogram: *const tg_histogram,
    value: f64,
    span: *const tg_trace_context,
) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header, here and below.
        let span = unsafe { span_of(span) }?;
        unsafe { borrow(histogram, "histogram") }?
            .0
            .observe_in(value, span);
        Ok(())
    })
}

/// How many values, and their sum; 0 of a registry that keeps nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_histogram_get(
    histogram: *const tg_histogram,
    count: *mut u64,
    sum: *mut f64,
) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header, here and below.
        let (count, sum) = unsafe { (output(count, 0, "count")?, output(sum, 0.0, "sum")?) };
        (*count, *sum) = unsafe { borrow(histogram, "histogram") }?.0.count_and_sum();
        Ok(())
    })
}

/// One owner more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_histogram_retain(histogram: *const tg_histogram) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { retain(histogram) }
}

/// One owner less. The series stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_histogram_release(histogram: *const tg_histogram) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { release(histogram) }
}
