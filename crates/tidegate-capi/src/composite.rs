// SPDX-License-Identifier: Apache-2.0

//! Composites: what instruments say over a window, asked for at any instant.

#![allow(unsafe_code)]

use std::ffi::c_char;

use tidegate_metrics::{Across, Composite, Function, Snapshot, State, composite};

use crate::answers::{Arena, or_nan, to_nanos};
use crate::any::tg_any;
use crate::arguments::{
    Growing, array, borrow, give, growing, labels, nanos, output, release, retain, text, texts, tg_label,
};
use crate::local::Local;
use crate::status::{Failure, guard, tg_status};
use crate::watch::tg_watcher;

/// A value derived from instruments over a window. Several threads may use one at once.
pub struct tg_composite(Local<Composite>);

impl tg_composite {
    pub(crate) fn inner(&self) -> &Composite {
        &self.0
    }
}

/// The statistic that a composite computes. Zero is the default of every field; TG_COMPOSITE() makes one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tg_composite_options {
    /// sizeof(tg_composite_options).
    pub size: usize,
    /// Over this time; 0: ten seconds.
    pub window_ns: u64,
    /// One group for each combination of values of these labels; none: one for everything.
    pub by: *const *const c_char,
    /// How many labels.
    pub by_count: usize,
    /// The function that gives its value: a tg_function.
    pub function: u32,
    /// With TG_QUANTILE: which, 0 to 1.
    pub rank: f64,
    /// Ranks, 0 to 1, to report beside the value.
    pub quantiles: *const f64,
    /// How many ranks.
    pub quantile_count: usize,
    /// How the series of a group become one value: a tg_across.
    pub across: u32,
    /// With TG_ACROSS_QUANTILE: which, 0 to 1.
    pub across_rank: f64,
}

// SAFETY: it begins with its size, and all fields may be zero.
unsafe impl Growing for tg_composite_options {}

/// The function that gives the value of a composite.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum tg_function {
    /// The mean; of counters the rate.
    TG_FUNCTION_DEFAULT = 0,
    /// The smallest value.
    TG_FUNCTION_MIN = 1,
    /// The mean of all values; of gauges over time.
    TG_FUNCTION_AVG = 2,
    /// The largest value.
    TG_FUNCTION_MAX = 3,
    /// The sum of all values; of counters their increase.
    TG_FUNCTION_SUM = 4,
    /// How many values.
    TG_FUNCTION_COUNT = 5,
    /// The sum of all values, per second.
    TG_FUNCTION_RATE = 6,
    /// The newest value.
    TG_FUNCTION_LAST = 7,
    /// The value of a rank.
    TG_FUNCTION_QUANTILE = 8,
}

/// How the series of a group become one value, after the function has reduced each series over the window.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum tg_across {
    /// Observed values are pooled. A group with several gauges has no value.
    TG_ACROSS_DEFAULT = 0,
    /// Their sum.
    TG_ACROSS_SUM = 1,
    /// Their mean.
    TG_ACROSS_AVG = 2,
    /// The smallest.
    TG_ACROSS_MIN = 3,
    /// The largest.
    TG_ACROSS_MAX = 4,
    /// How many series have a value.
    TG_ACROSS_COUNT = 5,
    /// The value of a rank among them.
    TG_ACROSS_QUANTILE = 6,
    /// The function sees the values of all series in one window; not of gauges.
    TG_ACROSS_POOL = 7,
}

/// How far what a composite says can be trusted.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum tg_state {
    /// Every source is alive. Without observations in the window the value is 0 (sum, count, rate) or NaN; gauges keep
    /// their level.
    TG_FRESH = 1,
    /// Only of events: every source is alive, and no observation is in the window.
    TG_IDLE = 2,
    /// No source is alive.
    TG_STALE = 3,
    /// A source is not alive, a loss is known within the window, or a rate does not cover its window yet. The value is
    /// that of what is there.
    TG_PARTIAL = 4,
    /// Never seen, or every source has left.
    TG_ABSENT = 5,
}

/// The value of a rank.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tg_quantile {
    /// The rank, 0 to 1.
    pub rank: f64,
    /// Its value.
    pub value: f64,
}

/// The state of one group of a composite at an instant. A missing number is NaN.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tg_snapshot {
    /// The labels that make the group.
    pub labels: *const tg_label,
    /// How many labels.
    pub label_count: usize,
    /// The value of the composite.
    pub value: f64,
    /// Smallest value in the window. Of counters: no extremes, no mean.
    pub min: f64,
    /// Mean of the values in the window.
    pub avg: f64,
    /// Largest value in the window.
    pub max: f64,
    /// Sum of the values in the window; of counters their increase.
    pub sum: f64,
    /// How many values the window holds; of gauges how often one was looked at.
    pub count: f64,
    /// Newest value in the window.
    pub last: f64,
    /// The ranks that were asked for, with their values.
    pub quantiles: *const tg_quantile,
    /// How many ranks.
    pub quantile_count: usize,
    /// How long the window is.
    pub window_ns: u64,
    /// The time since the newest value; UINT64_MAX if there never was one.
    pub age_ns: u64,
    /// How far it can be trusted: a tg_state.
    pub state: u32,
    /// Why the composite has no value: its declaration does not suit its instruments. NULL: it suits them.
    pub error: *const c_char,
}

impl tg_snapshot {
    pub(crate) fn of(snapshot: &Snapshot, arena: &mut Arena) -> Self {
        let (labels, label_count) = arena.labels(&snapshot.labels);
        let quantile = |(rank, value): &(f64, f64)| tg_quantile {
            rank: *rank,
            value: *value,
        };
        let (quantiles, quantile_count) = arena.array(snapshot.quantiles.iter().map(quantile).collect());
        Self {
            labels,
            label_count,
            value: or_nan(snapshot.value),
            min: or_nan(snapshot.min),
            avg: or_nan(snapshot.avg),
            max: or_nan(snapshot.max),
            sum: snapshot.sum,
            count: snapshot.count,
            last: or_nan(snapshot.last),
            quantiles,
            quantile_count,
            window_ns: to_nanos(snapshot.window),
            age_ns: snapshot.age.map_or(u64::MAX, to_nanos),
            state: state(snapshot.state) as u32,
            error: snapshot
                .error
                .as_deref()
                .map_or(std::ptr::null(), |error| arena.text(error)),
        }
    }
}

fn state(state: State) -> tg_state {
    match state {
        State::Fresh => tg_state::TG_FRESH,
        State::Idle => tg_state::TG_IDLE,
        State::Stale => tg_state::TG_STALE,
        State::Partial => tg_state::TG_PARTIAL,
        State::Absent => tg_state::TG_ABSENT,
    }
}

/// Snapshots of the groups of a composite.
pub struct tg_snapshots {
    snapshots: Vec<tg_snapshot>,
    _arena: Arena,
}

impl tg_snapshots {
    pub(crate) fn of(snapshots: &[Snapshot]) -> Self {
        let mut arena = Arena::default();
        let own = snapshots.iter().map(|one| tg_snapshot::of(one, &mut arena));
        Self {
            snapshots: own.collect(),
            _arena: arena,
        }
    }
}

/// # Safety
/// As of [`tg_composite_new`].
unsafe fn build(
    name: *const c_char,
    of: *const tg_any,
    of_count: usize,
    options: *const tg_composite_options,
) -> Result<tg_composite, Failure> {
    // SAFETY: the caller's promise, here and below.
    let (name, of, options) = unsafe {
        (
            text(name, "name")?,
            array(of, of_count, "of")?,
            growing(options, "options")?,
        )
    };
    let by = unsafe { texts(options.by, options.by_count, "by") }?;
    let quantiles = unsafe { array(options.quantiles, options.quantile_count, "quantiles") }?;
    let mut builder = composite(name).by(by).quantiles(quantiles.iter().copied());
    if options.window_ns > 0 {
        builder = builder.window(nanos(options.window_ns));
    }
    let function = match options.function {
        0 => None,
        1 => Some(Function::Min),
        2 => Some(Function::Avg),
        3 => Some(Function::Max),
        4 => Some(Function::Sum),
        5 => Some(Function::Count),
        6 => Some(Function::Rate),
        7 => Some(Function::Last),
        8 => Some(Function::Quantile(options.rank)),
        other => return Err(Failure::invalid(format!("`function`: {other} is none"))),
    };
    if let Some(function) = function {
        builder = builder.function(function);
    }
    let across = match options.across {
        0 => None,
        1 => Some(Across::Sum),
        2 => Some(Across::Avg),
        3 => Some(Across::Min),
        4 => Some(Across::Max),
        5 => Some(Across::Count),
        6 => Some(Across::Quantile(options.across_rank)),
        7 => Some(Across::Pool),
        other => return Err(Failure::invalid(format!("`across`: {other} is none"))),
    };
    if let Some(across) = across {
        builder = builder.across(across);
    }
    for source in of {
        builder = unsafe { source.borrow() }?.add_to(builder)?;
    }
    Ok(tg_composite(Local::new(builder.build()?)))
}

/// A composite of these instruments and families, which sees what is recorded from now on. `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_composite_new(
    name: *const c_char,
    of: *const tg_any,
    of_count: usize,
    options: *const tg_composite_options,
    composite: *mut *mut tg_composite,
) -> tg_status {
    // SAFETY: the contract of the header.
    guard(|| unsafe { give(composite, || build(name, of, of_count, options)) })
}

/// The current state of the group with these labels; without labels, of the first group.
///
/// # Safety
/// As of [`tg_composite_get`].
unsafe fn group(
    composite: *const tg_composite,
    given: *const tg_label,
    label_count: usize,
) -> Result<Snapshot, Failure> {
    // SAFETY: the caller's promise, here and below.
    let composite = &unsafe { borrow(composite, "composite") }?.0;
    let labels = unsafe { labels(given, label_count, "labels") }?;
    if labels.is_empty() {
        return Ok(composite.get());
    }
    let found = composite.get_for(&labels);
    found.ok_or_else(|| Failure::none("no group has these labels"))
}

/// The value of the group with these labels, now, of everything that was recorded before this call; without labels, of
/// the first group. TG_NONE: no group has these labels, or no value in its window.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_composite_value(
    composite: *const tg_composite,
    labels: *const tg_label,
    label_count: usize,
    value: *mut f64,
) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header, here and below.
        let value = unsafe { output(value, f64::NAN, "value") }?;
        let found = unsafe { group(composite, labels, label_count) }?.value;
        *value = found.ok_or_else(|| Failure::none("there is no value in the window"))?;
        Ok(())
    })
}

/// Gives the current state of the group with these labels; without labels, of the first group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_composite_get(
    composite: *const tg_composite,
    labels: *const tg_label,
    label_count: usize,
    snapshots: *mut *mut tg_snapshots,
) -> tg_status {
    // SAFETY: the contract of the header, here and below.
    let make = || {
        Ok(tg_snapshots::of(&[unsafe {
            group(composite, labels, label_count)
        }?]))
    };
    guard(|| unsafe { give(snapshots, make) })
}

/// Gives the current state of every group. If there are no groups yet, it gives one snapshot that says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_composite_all(
    composite: *const tg_composite,
    snapshots: *mut *mut tg_snapshots,
) -> tg_status {
    // SAFETY: the contract of the header, here and below.
    let make = || {
        Ok(tg_snapshots::of(
            &unsafe { borrow(composite, "composite") }?.0.all(),
        ))
    };
    guard(|| unsafe { give(snapshots, make) })
}

/// Makes a watcher that waits for the next answers of the composite, until it is released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_composite_watch(
    composite: *const tg_composite,
    watcher: *mut *mut tg_watcher,
) -> tg_status {
    // SAFETY: the contract of the header, here and below.
    let make = || {
        Ok(tg_watcher::new(
            unsafe { borrow(composite, "composite") }?.0.watch(),
        ))
    };
    guard(|| unsafe { give(watcher, make) })
}

/// One owner more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_composite_retain(composite: *const tg_composite) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { retain(composite) }
}

/// One owner less. Subscriptions and watchers keep it at work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_composite_release(composite: *const tg_composite) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { release(composite) }
}

/// How many snapshots there are: at least one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_snapshots_count(snapshots: *const tg_snapshots, count: *mut usize) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header, here and below.
        let count = unsafe { output(count, 0, "count") }?;
        *count = unsafe { borrow(snapshots, "snapshots") }?.snapshots.len();
        Ok(())
    })
}

/// One of the snapshots, from 0 on; it lives as long as they. TG_NONE: the index is beyond the last.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_snapshots_at(
    snapshots: *const tg_snapshots,
    at: usize,
    snapshot: *mut *const tg_snapshot,
) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header, here and below.
        let snapshot = unsafe { output(snapshot, std::ptr::null(), "snapshot") }?;
        let found = unsafe { borrow(snapshots, "snapshots") }?.snapshots.get(at);
        *snapshot = found.ok_or_else(|| Failure::none("the index exceeds the number of snapshots"))?;
        Ok(())
    })
}

/// One owner more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_snapshots_retain(snapshots: *const tg_snapshots) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { retain(snapshots) }
}

/// One owner less.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_snapshots_release(snapshots: *const tg_snapshots) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { release(snapshots) }
}
