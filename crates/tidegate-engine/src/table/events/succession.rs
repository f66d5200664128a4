// SPDX-License-Identifier: Apache-2.0

//! Sources of events that a table takes over with the series that they feed.

use super::{SourceState, lock};
use crate::Number;
use crate::rule::Op;
use crate::table::Table;
use crate::table::cell::CellRef;
use crate::table::succession::TakenCells;
use crate::table::targets::CellTarget;

impl Table {
    /// Takes over the sources of `old`, whose folds are flushed.
    pub(in crate::table) fn take_sources(&self, old: &Self, cells: &TakenCells) {
        let sources: Vec<_> = old.sources().values().cloned().collect();
        for source in sources {
            self.take_source(&lock(&source), cells);
        }
    }

    fn take_source(&self, old: &SourceState, cells: &TakenCells) {
        if old.gone {
            return;
        }
        let moved = |was: &CellTarget| Some((cells.get(&was.cell.to_bits())?.cell, *was));
        let Some(shared) = self.source(&old.source) else {
            let lost = old.each_target().filter_map(moved);
            lost.for_each(|(cell, was)| self.take_back(cell, &was, old));
            return;
        };
        let state = &mut *lock(&shared);
        self.plan(state, &old.schema, old.seen);
        // A newer table may have had events of it since.
        if old.seen >= state.seen {
            (state.seen, state.is_ahead) = (old.seen, old.is_ahead);
        }
        for (kind, targets) in old.targets.iter().enumerate() {
            let planned = state.targets.get(kind).map_or(0, |targets| targets.len());
            let mut free: Vec<usize> = (0..planned).collect();
            for (cell, was) in targets.iter().filter_map(moved) {
                let is_same = |at: &usize| {
                    let target = state.targets.get(kind).and_then(|targets| targets.get(*at));
                    target.is_some_and(|is| is.cell == cell && is.op == was.op)
                };
                let place = free.iter().position(is_same);
                match place.map(|place| free.remove(place)) {
                    Some(at) => self.continue_target(state, (kind, at), &was, old),
                    None => self.take_back(cell, &was, old),
                }
            }
        }
    }

    /// Continues a target of a new source, by kind and place, where that of the old one ended.
    fn continue_target(
        &self,
        state: &mut SourceState,
        (kind, at): (usize, usize),
        was: &CellTarget,
        old: &SourceState,
    ) {
        let Some(is) = state
            .targets
            .get_mut(kind)
            .and_then(|targets| targets.get_mut(at))
        else {
            return;
        };
        match was.op {
            Op::UpDown => {
                if let Some(given) = state.given.get_mut(is.member as usize) {
                    *given = old.given(was);
                }
            }
            Op::Member => {
                if let Some(group) = self.cells.cursor().get(is.cell) {
                    group.state.leave(is.member);
                    is.member = was.member;
                }
            }
            _ => {}
        }
    }

    /// Takes a source's amount out of a cell that it feeds no more.
    fn take_back(&self, cell: CellRef, was: &CellTarget, old: &SourceState) {
        let mut cursor = self.cells.cursor();
        let Some(cell) = cursor.get(cell) else { return };
        match was.op {
            Op::UpDown => cell
                .state
                .add(Number::ZERO.minus(old.given(was)), cell.state.time),
            Op::Member => cell.state.leave(was.member),
            _ => {}
        }
    }
}
