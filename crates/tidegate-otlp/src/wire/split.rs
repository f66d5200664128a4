// SPDX-License-Identifier: Apache-2.0

//! Cutting a request in two, at any repeated level: messages above the cut (resources, scopes, metrics) are copied to
//! both sides, messages beside it go with their items.

use super::edit::Editor;
use super::walk::{Item, Visitor, edit};
use crate::{Encoded, Part, Signal};

/// The first `at` items and the others; `None` where that would lose items, because the request holds some that
/// vanish when its unusual encoding is made usual.
pub(crate) fn split_part(signal: Signal, part: &Part, at: usize) -> Option<(Part, Part)> {
    let left = keep(signal, part, 0, at)?;
    let right = keep(signal, part, at, part.items)?;
    Some((left, right))
}

/// The items from number `from` up to `to`.
fn keep(signal: Signal, part: &Part, from: usize, to: usize) -> Option<Part> {
    let whole = Encoded::one(signal, part.bytes.clone(), part.items);
    let is_last = to == part.items;
    let mut window = ItemWindow {
        from,
        to,
        is_last,
        next: 0,
    };
    let kept = edit(&whole, &mut window).ok()?.parts.pop()?;
    (kept.items == to - from && window.next == part.items).then_some(kept)
}

struct ItemWindow {
    from: usize,
    to: usize,
    /// Whether no other side follows.
    is_last: bool,
    next: usize,
}

impl Visitor for ItemWindow {
    /// It goes with the item behind it.
    fn empty_metric(&mut self, _: &[u8]) -> bool {
        self.next >= self.from && (self.next < self.to || self.is_last)
    }

    fn item(&mut self, _: &Item<'_>, _: &mut Editor<'_>) -> bool {
        let keep = (self.from..self.to).contains(&self.next);
        self.next += 1;
        keep
    }
}
