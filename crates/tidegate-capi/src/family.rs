// SPDX-License-Identifier: Apache-2.0

//! Descriptions of instruments, and families of them.

#![allow(unsafe_code)]

use std::ffi::c_char;

use tidegate_metrics::{
    AnyFamily, Counter, Description, Family, FloatCounter, Gauge, GaugeMode, Histogram, Instrument, Kind,
    UpDownCounter, buckets, register,
};

use crate::arguments::{
    Growing, array, borrow, give, growing, labels, optional_text, release, retain, text, texts, tg_label,
};
use crate::instrument::{tg_counter, tg_float_counter, tg_gauge, tg_histogram, tg_up_down_counter};
use crate::registry::tg_registry;
use crate::status::{Failure, guard, tg_status};

/// The name and the meaning of an instrument. Zero is the default of every field but the name; TG_DESCRIPTION() makes
/// one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tg_description {
    /// sizeof(tg_description).
    pub size: usize,
    /// Name without unit and type: those are added where a reader wants them ("_seconds", "_total").
    pub name: *const c_char,
    /// One sentence for people.
    pub help: *const c_char,
    /// UCUM unit: "s", "By", "1", "{requests}".
    pub unit: *const c_char,
    /// Name of a histogram's buckets: "latency" (the default), "fast", "bytes", "tokens", "ratio".
    pub buckets: *const c_char,
    /// Upper bounds of a histogram's buckets, rising, instead of a name.
    pub bounds: *const f64,
    /// How many bounds.
    pub bound_count: usize,
    /// How the values of a gauge in several processes become one: a tg_gauge_mode.
    pub mode: u32,
    /// Whether observations remember the span that they were made in.
    pub exemplars: bool,
}

// SAFETY: it begins with its size, and all fields may be zero.
unsafe impl Growing for tg_description {}

/// How the values of a gauge in several processes become one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum tg_gauge_mode {
    /// TG_LIVE_SUM.
    TG_MODE_DEFAULT = 0,
    /// Each process keeps its own series, with a label pid.
    TG_ALL = 1,
    /// The same, of the processes that live.
    TG_LIVE_ALL = 2,
    /// The sum.
    TG_SUM = 3,
    /// The sum over the processes that live.
    TG_LIVE_SUM = 4,
    /// The largest.
    TG_MAX = 5,
    /// The largest of the processes that live.
    TG_LIVE_MAX = 6,
    /// The smallest.
    TG_MIN = 7,
    /// The smallest of the processes that live.
    TG_LIVE_MIN = 8,
    /// The one set last.
    TG_MOST_RECENT = 9,
    /// The one set last by a process that lives.
    TG_LIVE_MOST_RECENT = 10,
}

const MODES: [GaugeMode; 11] = [
    GaugeMode::LiveSum,
    GaugeMode::All,
    GaugeMode::LiveAll,
    GaugeMode::Sum,
    GaugeMode::LiveSum,
    GaugeMode::Max,
    GaugeMode::LiveMax,
    GaugeMode::Min,
    GaugeMode::LiveMin,
    GaugeMode::MostRecent,
    GaugeMode::LiveMostRecent,
];

/// Kinds of instruments.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tg_kind {
    /// Whole numbers that only grow.
    TG_COUNTER = 0,
    /// Numbers that only grow.
    TG_FLOAT_COUNTER = 1,
    /// A whole number that grows and falls by what is added.
    TG_UP_DOWN_COUNTER = 2,
    /// A number that is set.
    TG_GAUGE = 3,
    /// Values counted by fixed buckets.
    TG_HISTOGRAM = 4,
    /// Values counted by buckets whose bounds are powers of a base that fits the values.
    TG_EXPONENTIAL_HISTOGRAM = 5,
}

impl tg_kind {
    pub(crate) fn of(kind: &Kind) -> u32 {
        let kind = match kind {
            Kind::Counter => Self::TG_COUNTER,
            Kind::FloatCounter => Self::TG_FLOAT_COUNTER,
            Kind::UpDownCounter => Self::TG_UP_DOWN_COUNTER,
            Kind::Gauge(_) => Self::TG_GAUGE,
            Kind::ExponentialHistogram { .. } => Self::TG_EXPONENTIAL_HISTOGRAM,
            // The SDK shows a summary as a histogram without bounds.
            Kind::Histogram { .. } | Kind::Summary => Self::TG_HISTOGRAM,
        };
        kind as u32
    }
}

/// The instruments of one name, distinguished by the values of their labels. Several threads may use one at once.
pub struct tg_family(AnyFamily);

impl tg_family {
    pub(crate) fn any(&self) -> &AnyFamily {
        &self.0
    }
}

/// # Safety
/// `given` is NULL or as the header says.
pub(crate) unsafe fn description(given: *const tg_description) -> Result<Description, Failure> {
    if given.is_null() {
        return Err(Failure::null("description"));
    }
    // SAFETY: the caller's promise, here and below.
    let given = unsafe { growing(given, "description") }?;
    let (name, help, unit, named, bounds) = unsafe {
        (
            text(given.name, "name")?,
            optional_text(given.help, "help")?,
            optional_text(given.unit, "unit")?,
            optional_text(given.buckets, "buckets")?,
            array(given.bounds, given.bound_count, "bounds")?,
        )
    };
    let mode = MODES.get(given.mode as usize).copied();
    let mode = mode.ok_or_else(|| Failure::invalid(format!("`mode`: {} is none", given.mode)))?;
    let mut description = Description::new(name, help.unwrap_or_default());
    description = description.unit(unit.unwrap_or_default()).mode(mode);
    if let Some(named) = named {
        description = description.bounds(buckets::named(named)?);
    }
    if !bounds.is_empty() {
        description = description.bounds(bounds);
    }
    description.exemplars = given.exemplars;
    Ok(description)
}

/// A single instrument with these constant labels.
///
/// # Safety
/// As of the functions of the header that end here.
pub(crate) unsafe fn single<H: Instrument>(
    registry: *const tg_registry,
    given: *const tg_description,
    constant: *const tg_label,
    label_count: usize,
    is_exponential: bool,
) -> Result<H, Failure> {
    // SAFETY: the caller's promise, here and below.
    let registry = unsafe { borrow(registry, "registry") }?;
    let mut description = unsafe { description(given) }?;
    let constant = unsafe { labels(constant, label_count, "labels") }?;
    if is_exponential {
        description = description.exponential();
    }
    Ok(register::<H>(registry.scope(), &description, &constant, &[])?.with(&[]))
}

/// A family of instruments of this tg_kind with these constant labels, distinguished by the labels of these names. To
/// register the same again gives the same series.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_family_new(
    registry: *const tg_registry,
    kind: u32,
    description: *const tg_description,
    labels: *const tg_label,
    label_count: usize,
    names: *const *const c_char,
    name_count: usize,
    family: *mut *mut tg_family,
) -> tg_status {
    let make = || {
        // SAFETY: the contract of the header, here and below.
        let registry = unsafe { borrow(registry, "registry") }?.scope();
        let described = unsafe { crate::family::description(description) }?;
        let constant = unsafe { crate::arguments::labels(labels, label_count, "labels") }?;
        let by = unsafe { texts(names, name_count, "names") }?;
        let (constant, by) = (&constant[..], &by[..]);
        Ok(tg_family(match kind {
            0 => AnyFamily::Counter(register(registry, &described, constant, by)?),
            1 => AnyFamily::FloatCounter(register(registry, &described, constant, by)?),
            2 => AnyFamily::UpDownCounter(register(registry, &described, constant, by)?),
            3 => AnyFamily::Gauge(register(registry, &described, constant, by)?),
            4 => AnyFamily::Histogram(register(registry, &described, constant, by)?),
            5 => AnyFamily::Histogram(register(registry, &described.exponential(), constant, by)?),
            other => return Err(Failure::invalid(format!("`kind`: {other} is none"))),
        }))
    };
    // SAFETY: the contract of the header.
    guard(|| unsafe { give(family, make) })
}

/// The instrument of a family with these values of its labels.
///
/// # Safety
/// As of the functions of the header that end here.
unsafe fn with<H: Instrument>(
    family: *const tg_family,
    values: *const *const c_char,
    value_count: usize,
) -> Result<H, Failure> {
    // SAFETY: the caller's promise, here and below.
    let any = &unsafe { borrow(family, "family") }?.0;
    let values = unsafe { values_of(any, values, value_count) }?;
    let typed: Option<Family<H>> = H::family(any.clone());
    let wrong = || {
        let spec = any.spec();
        Failure::invalid(format!("`{}` is a family of {}s", spec.name, spec.kind.name()))
    };
    Ok(typed.ok_or_else(wrong)?.with(&values))
}

/// As many values as the family has labels.
///
/// # Safety
/// As of [`texts`].
unsafe fn values_of<'a>(
    family: &AnyFamily,
    values: *const *const c_char,
    count: usize,
) -> Result<Vec<&'a str>, Failure> {
    let expected = family.spec().labels.len();
    if count != expected {
        let name = &family.spec().name;
        return Err(Failure::invalid(format!(
            "`{name}` has {expected} labels, given are {count} values"
        )));
    }
    // SAFETY: the caller's promise.
    unsafe { texts(values, count, "values") }
}

/// The counter with these values of the family's labels, in the order of their names; made if it is not there. Keep it
/// where the values stay the same: the look-up costs far more than recording.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_family_counter(
    family: *const tg_family,
    values: *const *const c_char,
    value_count: usize,
    counter: *mut *mut tg_counter,
) -> tg_status {
    let make = || unsafe { with::<Counter>(family, values, value_count) }.map(tg_counter);
    // SAFETY: the contract of the header, here and above.
    guard(|| unsafe { give(counter, make) })
}

/// As tg_family_counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_family_float_counter(
    family: *const tg_family,
    values: *const *const c_char,
    value_count: usize,
    counter: *mut *mut tg_float_counter,
) -> tg_status {
    let make = || unsafe { with::<FloatCounter>(family, values, value_count) }.map(tg_float_counter);
    // SAFETY: the contract of the header, here and above.
    guard(|| unsafe { give(counter, make) })
}

/// As tg_family_counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_family_up_down_counter(
    family: *const tg_family,
    values: *const *const c_char,
    value_count: usize,
    counter: *mut *mut tg_up_down_counter,
) -> tg_status {
    let make = || unsafe { with::<UpDownCounter>(family, values, value_count) }.map(tg_up_down_counter);
    // SAFETY: the contract of the header, here and above.
    guard(|| unsafe { give(counter, make) })
}

/// As tg_family_counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_family_gauge(
    family: *const tg_family,
    values: *const *const c_char,
    value_count: usize,
    gauge: *mut *mut tg_gauge,
) -> tg_status {
    let make = || unsafe { with::<Gauge>(family, values, value_count) }.map(tg_gauge);
    // SAFETY: the contract of the header, here and above.
    guard(|| unsafe { give(gauge, make) })
}

/// As tg_family_counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_family_histogram(
    family: *const tg_family,
    values: *const *const c_char,
    value_count: usize,
    histogram: *mut *mut tg_histogram,
) -> tg_status {
    let make = || unsafe { with::<Histogram>(family, values, value_count) }.map(tg_histogram);
    // SAFETY: the contract of the header, here and above.
    guard(|| unsafe { give(histogram, make) })
}

/// Ends the series with these values: pages do not show it any more. TG_NONE: there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_family_remove(
    family: *const tg_family,
    values: *const *const c_char,
    value_count: usize,
) -> tg_status {
    guard(|| {
        // SAFETY: the contract of the header, here and below.
        let any = &unsafe { borrow(family, "family") }?.0;
        let values = unsafe { values_of(any, values, value_count) }?;
        let is_removed = match any {
            AnyFamily::Counter(family) => family.remove(&values),
            AnyFamily::FloatCounter(family) => family.remove(&values),
            AnyFamily::UpDownCounter(family) => family.remove(&values),
            AnyFamily::Gauge(family) => family.remove(&values),
            AnyFamily::Histogram(family) => family.remove(&values),
            _ => false,
        };
        if is_removed {
            Ok(())
        } else {
            Err(Failure::none("no series has these labels"))
        }
    })
}

/// One owner more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_family_retain(family: *const tg_family) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { retain(family) }
}

/// One owner less. Its series stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_family_release(family: *const tg_family) -> tg_status {
    // SAFETY: the contract of the header.
    unsafe { release(family) }
}
