// SPDX-License-Identifier: Apache-2.0

//! The values of one group in one sub-window, as other processes read them.

use super::sketch::Sketch;
use super::window::Moments;
use crate::{ExponentialHistogram, UnixNanos};

/// The values of a group in one sub-window. Its borders are multiples of its length by the wall clock, so that the
/// sub-windows of several processes have the same ones.
#[derive(Clone, Debug, PartialEq)]
pub struct SubWindow {
    /// Where it begins.
    pub start: UnixNanos,
    /// Where it ends; of the current one, the time until which it has its values.
    pub end: UnixNanos,
    /// The number of values. Values may have weights, so it is not always whole.
    pub count: f64,
    /// Their sum.
    pub sum: f64,
    /// The smallest. It may be there without a value: extremes come in late.
    pub min: Option<f64>,
    /// The largest.
    pub max: Option<f64>,
    /// The newest, if the sender says it.
    pub last: Option<f64>,
    /// Their distribution, where quantiles are asked for. Its counts are rounded.
    pub distribution: Option<ExponentialHistogram>,
}

impl SubWindow {
    pub(super) fn new(start: UnixNanos, end: UnixNanos, moments: &Moments, sketch: Option<&Sketch>) -> Self {
        let min = (moments.min < f64::INFINITY).then_some(moments.min);
        let max = (moments.max > f64::NEG_INFINITY).then_some(moments.max);
        Self {
            start,
            end,
            count: moments.count,
            sum: moments.sum,
            min,
            max,
            last: (moments.count > 0.0).then_some(moments.last),
            distribution: sketch.map(|sketch| ExponentialHistogram {
                sum: Some(moments.sum),
                min,
                max,
                ..sketch.to_histogram()
            }),
        }
    }

    /// Whether nothing came in.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0.0 && self.min.is_none() && self.max.is_none()
    }

    /// Whether its numbers can be added up.
    pub(super) fn is_sound(&self) -> bool {
        !self.sum.is_nan() && self.is_countable()
    }

    /// Whether they can, except that the sum may be unknown (NaN).
    pub(super) fn is_countable(&self) -> bool {
        let distribution = self.distribution.as_ref();
        self.count.is_finite()
            && self.count >= 0.0
            && self.start <= self.end
            && distribution.is_none_or(ExponentialHistogram::is_sound)
    }

    /// Without a newest value, `last` is NaN.
    pub(super) fn moments(&self) -> Moments {
        Moments {
            count: self.count,
            sum: self.sum,
            min: self.min.unwrap_or(f64::INFINITY),
            max: self.max.unwrap_or(f64::NEG_INFINITY),
            last: self.last.unwrap_or(f64::NAN),
        }
    }

    pub(super) fn sketch(&self) -> Option<Sketch> {
        self.distribution.as_ref().map(Sketch::of_histogram)
    }
}
