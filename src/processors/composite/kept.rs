// SPDX-License-Identifier: Apache-2.0

//! Composites that go on in the processor that replaces theirs in a reload: those whose declarations are equal.
//!
//! Both processors have the same objects, with their windows, sources and watchers. The old one has stopped when the new one
//! starts, so each batch counts once. A reload that fails builds a third one, which finds the objects of the first.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tidegate_engine::{Composite, CompositeSet, Declaration, Table, Threshold};

use crate::component::Shared;
use crate::watch::Watched;

/// The composites of a processor, for the next one of its name.
pub(super) struct CompositesState {
    /// The table of the processor, by which its successor finds the state.
    table: Arc<Table>,
    set: Arc<CompositeSet>,
    watched: Vec<Arc<Watched>>,
    has_started: AtomicBool,
}

/// The states of all processors of a gateway. A state ends with its processor.
#[derive(Default)]
struct AllStates(Mutex<Vec<Weak<CompositesState>>>);

impl CompositesState {
    /// The state of a new processor. Its successors find it.
    pub(super) fn of(
        shared: &Shared,
        table: Arc<Table>,
        set: Arc<CompositeSet>,
        watched: Vec<Arc<Watched>>,
    ) -> Arc<Self> {
        let state = Arc::new(Self {
            table,
            set,
            watched,
            has_started: AtomicBool::new(false),
        });
        let all = shared.parts.get(AllStates::default);
        let mut all = all.0.lock();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&state));
        state
    }

    pub(super) fn set(&self) -> &CompositeSet {
        &self.set
    }

    pub(super) fn watched(&self) -> &[Arc<Watched>] {
        &self.watched
    }

    /// Notes that the composites have their windows. Before, a successor has to restore those on disk.
    pub(super) fn note_start(&self) {
        self.has_started.store(true, Release);
    }
}

/// The states of the processors with these tables that have started, in this order.
pub(super) fn replaced(shared: &Shared, tables: &[Arc<Table>]) -> Vec<Arc<CompositesState>> {
    let all = shared.parts.get(AllStates::default);
    let known: Vec<_> = all.0.lock().iter().filter_map(Weak::upgrade).collect();
    let state_of = |table: &Arc<Table>| {
        let mut known = known.iter();
        let state = known.find(|state| Arc::ptr_eq(&state.table, table));
        state.filter(|state| state.has_started.load(Acquire)).cloned()
    };
    tables.iter().filter_map(state_of).collect()
}

/// The composite with this declaration in the newest state that has it.
pub(super) fn kept_of(before: &[Arc<CompositesState>], declaration: &Declaration) -> Option<Arc<Watched>> {
    let mut all = before.iter().flat_map(|state| &state.watched);
    all.find(|watched| watched.declaration() == declaration).cloned()
}

/// The watches of this composite with these thresholds, in the newest state that has them.
pub(super) fn watched_of(
    before: &[Arc<CompositesState>],
    composite: &Arc<Composite>,
    thresholds: &[Threshold],
) -> Option<Arc<Watched>> {
    let mut all = before.iter().flat_map(|state| &state.watched);
    let is_same =
        |one: &&Arc<Watched>| Arc::ptr_eq(one.composite(), composite) && one.thresholds() == thresholds;
    all.find(is_same).cloned()
}
