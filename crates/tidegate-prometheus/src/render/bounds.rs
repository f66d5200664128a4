// SPDX-License-Identifier: Apache-2.0

//! Bounds of buckets as text.

use std::sync::Arc;

use tidegate_exposition::lines::push_bound;

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
        self.text.clear();
        for bound in bounds.iter() {
            push_bound(&mut self.text, *bound, is_openmetrics);
            self.ends.push(self.text.len());
        }
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
