// SPDX-License-Identifier: Apache-2.0

//! The same interface as `watched.rs`, for programs without the feature `composites`: nothing is watched.

use std::sync::Arc;

use crate::side::Side;

/// A series without watchers.
#[derive(Debug, Default)]
pub(crate) struct SeriesWatch;

impl SeriesWatch {
    #[inline]
    pub(crate) fn observe(&self, _value: f64) {}

    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        false
    }
}

/// A family without watchers.
#[derive(Debug, Default)]
pub(crate) struct FamilyWatch;

impl FamilyWatch {
    pub(crate) fn note_new(&self, _side: Option<&Arc<Side>>) {}

    pub(crate) fn changed(&self) {}
}
