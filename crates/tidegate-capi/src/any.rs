// SPDX-License-Identifier: Apache-2.0

//! Any handle that has a value, for calls that take all kinds.

#![allow(unsafe_code)]

use std::ffi::c_void;

use tidegate_metrics::{
    AnyFamily, Change, Composite, CompositeBuilder, CompositeError, Counter, FamilyValues, FloatCounter,
    Gauge, Histogram, Instrument, SeriesValues, Subscription, Trigger, UpDownCounter,
};

use crate::arguments::borrow;
use crate::composite::tg_composite;
use crate::family::tg_family;
use crate::instrument::{tg_counter, tg_float_counter, tg_gauge, tg_histogram, tg_up_down_counter};
use crate::status::Failure;

/// The type of the handle that a tg_any holds.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum tg_type {
    /// tg_counter.
    TG_TYPE_COUNTER = 1,
    /// tg_float_counter.
    TG_TYPE_FLOAT_COUNTER = 2,
    /// tg_up_down_counter.
    TG_TYPE_UP_DOWN_COUNTER = 3,
    /// tg_gauge.
    TG_TYPE_GAUGE = 4,
    /// tg_histogram.
    TG_TYPE_HISTOGRAM = 5,
    /// tg_family.
    TG_TYPE_FAMILY = 6,
    /// tg_composite.
    TG_TYPE_COMPOSITE = 7,
}

/// Any handle that has a value. TG_ANY(handle) makes one with the right type.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tg_any {
    /// A tg_type.
    pub type_: u32,
    /// A handle of this type.
    pub handle: *const c_void,
}

/// The handle that a [`tg_any`] refers to.
pub(crate) enum Any<'a> {
    Counter(&'a Counter),
    FloatCounter(&'a FloatCounter),
    UpDownCounter(&'a UpDownCounter),
    Gauge(&'a Gauge),
    Histogram(&'a Histogram),
    Family(&'a AnyFamily),
    Composite(&'a Composite),
}

impl tg_any {
    /// The handle, borrowed.
    ///
    /// # Safety
    /// `handle` is NULL or a handle of the type that it says.
    pub(crate) unsafe fn borrow<'a>(self) -> Result<Any<'a>, Failure> {
        let what = "the handle";
        // SAFETY: the caller's promise.
        unsafe {
            Ok(match self.type_ {
                1 => Any::Counter(&borrow(self.handle.cast::<tg_counter>(), what)?.0),
                2 => Any::FloatCounter(&borrow(self.handle.cast::<tg_float_counter>(), what)?.0),
                3 => Any::UpDownCounter(&borrow(self.handle.cast::<tg_up_down_counter>(), what)?.0),
                4 => Any::Gauge(&borrow(self.handle.cast::<tg_gauge>(), what)?.0),
                5 => Any::Histogram(&borrow(self.handle.cast::<tg_histogram>(), what)?.0),
                6 => Any::Family(borrow(self.handle.cast::<tg_family>(), what)?.any()),
                7 => Any::Composite(borrow(self.handle.cast::<tg_composite>(), what)?.inner()),
                other => return Err(Failure::invalid(format!("`type`: {other} is none"))),
            })
        }
    }
}

/// An instrument as a family with one series.
fn alone(handle: &impl Instrument) -> Result<FamilyValues, Failure> {
    let nothing = || Failure::none("its registry keeps nothing");
    let info = handle.info().ok_or_else(nothing)?;
    let labels = info.labels().filter(|(_, value)| !value.is_empty());
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let family = info.family();
    Ok(FamilyValues {
        name: family.name.clone(),
        help: family.help.clone(),
        unit: family.unit.clone(),
        kind: family.kind.clone(),
        series: vec![SeriesValues {
            labels: labels.collect(),
            value: handle.read().ok_or_else(nothing)?,
            exemplars: Vec::new(),
        }],
    })
}

impl Any<'_> {
    /// Its description and its values.
    pub(crate) fn describe(&self) -> Result<FamilyValues, Failure> {
        match self {
            Self::Counter(handle) => alone(*handle),
            Self::FloatCounter(handle) => alone(*handle),
            Self::UpDownCounter(handle) => alone(*handle),
            Self::Gauge(handle) => alone(*handle),
            Self::Histogram(handle) => alone(*handle),
            Self::Family(family) => Ok(family.read()),
            Self::Composite(_) => Err(Failure::invalid("a composite is read by tg_composite_all()")),
        }
    }

    /// A composite of this and what it was of before.
    pub(crate) fn add_to(&self, builder: CompositeBuilder) -> Result<CompositeBuilder, Failure> {
        Ok(match self {
            Self::Counter(handle) => builder.of(*handle),
            Self::FloatCounter(handle) => builder.of(*handle),
            Self::UpDownCounter(handle) => builder.of(*handle),
            Self::Gauge(handle) => builder.of(*handle),
            Self::Histogram(handle) => builder.of(*handle),
            Self::Family(AnyFamily::Counter(family)) => builder.of(family),
            Self::Family(AnyFamily::FloatCounter(family)) => builder.of(family),
            Self::Family(AnyFamily::UpDownCounter(family)) => builder.of(family),
            Self::Family(AnyFamily::Gauge(family)) => builder.of(family),
            Self::Family(AnyFamily::Histogram(family)) => builder.of(family),
            _ => return Err(Failure::invalid("a composite is of instruments and families")),
        })
    }

    /// Calls back when the trigger is due.
    pub(crate) fn on_change(
        &self,
        trigger: Trigger,
        callback: impl Fn(&Change) + Send + Sync + 'static,
    ) -> Result<Subscription, Failure> {
        let made: Result<Subscription, CompositeError> = match self {
            Self::Counter(handle) => handle.on_change(trigger, callback),
            Self::FloatCounter(handle) => handle.on_change(trigger, callback),
            Self::UpDownCounter(handle) => handle.on_change(trigger, callback),
            Self::Gauge(handle) => handle.on_change(trigger, callback),
            Self::Composite(composite) => composite.on_change(trigger, callback),
            Self::Histogram(_) | Self::Family(_) => {
                let text = "histograms and families have no one value: make a composite of them";
                return Err(Failure::invalid(text));
            }
        };
        Ok(made?)
    }
}
