// SPDX-License-Identifier: Apache-2.0

//! The cells that an input changes: for most inputs, one.

use std::ops::{Deref, DerefMut};
use std::slice;

use super::cell::CellRef;
use crate::rule::Op;

/// A cell that an input changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct CellTarget {
    pub(super) cell: CellRef,
    pub(super) op: Op,
    /// Its place among the values of a group of gauges.
    pub(super) member: u32,
}

/// Targets of one input, no larger than one.
#[derive(Debug, Default)]
pub(super) enum Targets {
    #[default]
    None,
    One(CellTarget),
    #[expect(
        clippy::box_collection,
        reason = "a thin pointer, which leaves room for the tag"
    )]
    Many(Box<Vec<CellTarget>>),
}

const _: () = assert!(size_of::<Targets>() == size_of::<CellTarget>());

impl Targets {
    pub(super) fn push(&mut self, target: CellTarget) {
        *self = match std::mem::take(self) {
            Self::None => Self::One(target),
            Self::One(first) => Self::Many(Box::new(vec![first, target])),
            Self::Many(mut all) => {
                all.push(target);
                Self::Many(all)
            }
        };
    }
}

impl Deref for Targets {
    type Target = [CellTarget];

    fn deref(&self) -> &[CellTarget] {
        match self {
            Self::None => &[],
            Self::One(target) => slice::from_ref(target),
            Self::Many(all) => all,
        }
    }
}

impl DerefMut for Targets {
    fn deref_mut(&mut self) -> &mut [CellTarget] {
        match self {
            Self::None => &mut [],
            Self::One(target) => slice::from_mut(target),
            Self::Many(all) => all,
        }
    }
}
