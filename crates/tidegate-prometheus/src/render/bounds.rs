// SPDX-License-Identifier: Apache-2.0

//! Bounds of buckets and quantiles as text.

use std::sync::Arc;

use crate::number::{TextSink, push_f64};

/// The texts of bounds, which most histograms of a family share.
#[derive(Default)]
pub(super) struct Bounds {
    of: Option<Arc<[f64]>>,
    text: String,
    ends: Vec<usize>,
}

impl Bounds {
    /// Makes them the texts of these bounds.
    pub(super) fn set(&mut self, bounds: &Arc<[f64]>, is_openmetrics: bool) {
        if self
            .of
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, bounds) || known == bounds)
        {
            return;
        }
        self.of = Some(bounds.clone());
        self.ends.clear();
        let mut text = Vec::new();
        for bound in bounds.iter() {
            push_bound(&mut text, *bound, is_openmetrics);
            self.ends.push(text.len());
        }
        self.text = String::from_utf8(text).unwrap_or_default();
    }

    /// The text of the bound at `at`; `+Inf` beyond the last.
    pub(super) fn get(&self, at: usize) -> &str {
        let Some(end) = self.ends.get(at) else {
            return "+Inf";
        };
        let start = at.checked_sub(1).and_then(|before| self.ends.get(before));
        self.text
            .get(start.copied().unwrap_or(0)..*end)
            .unwrap_or_default()
    }
}

/// OpenMetrics writes bounds as floats (`1.0`), text 0.0.4 commonly does not.
pub(super) fn push_bound(text: &mut Vec<u8>, bound: f64, is_openmetrics: bool) {
    let start = text.len();
    push_f64(text, bound);
    let is_whole = |written: &[u8]| written.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-');
    if is_openmetrics && text.get(start..).is_some_and(is_whole) {
        text.put(".0");
    }
}
