// SPDX-License-Identifier: Apache-2.0

//! The access of exporters to the tables of processors.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tidegate_engine::Table;

/// The access of a reader to the table of another component. Clones share the state.
///
/// The graph builder hands it to the readers. The service opens it when the owner of the table has started. Before
/// that, the table may hold only a part of the restored state, and its counters would seem to fall.
#[derive(Clone)]
pub struct TableHandle {
    owner: Arc<str>,
    /// Weak: a table is dropped with its owner.
    table: Weak<Table>,
    is_open: Arc<AtomicBool>,
}

impl TableHandle {
    /// Creates a closed handle.
    pub fn new(table: &Arc<Table>) -> Self {
        Self {
            owner: table.owner().clone(),
            table: Arc::downgrade(table),
            is_open: Arc::default(),
        }
    }

    /// The path of the component that owns the table.
    pub fn owner(&self) -> &Arc<str> {
        &self.owner
    }

    /// Lets the readers see the table.
    pub fn open(&self) {
        self.is_open.store(true, Ordering::Release);
    }

    /// Hides the table from readers: another instance shows it, or it goes.
    pub fn close(&self) {
        self.is_open.store(false, Ordering::Release);
    }

    /// Whether the table was dropped.
    pub fn is_gone(&self) -> bool {
        self.table.strong_count() == 0
    }

    /// The table; `None` if it is not open yet or was dropped.
    pub fn table(&self) -> Option<Arc<Table>> {
        let is_open = self.is_open.load(Ordering::Acquire);
        is_open.then(|| self.table.upgrade()).flatten()
    }

    /// Whether both are handles of one table.
    pub fn has_table_of(&self, other: &Self) -> bool {
        self.table.ptr_eq(&other.table)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_engine::{Limits, Rule};

    use super::*;

    #[test]
    fn a_handle_shows_its_table_from_its_opening_until_the_drop() {
        let table = Arc::new(Table::new("test", vec![Rule::newest()], Limits::default()));
        let handle = TableHandle::new(&table);
        let of_reader = handle.clone();
        assert!(of_reader.table().is_none() && !of_reader.is_gone());
        handle.open();
        assert!(of_reader.table().is_some_and(|shown| Arc::ptr_eq(&shown, &table)));
        drop(table);
        assert!(of_reader.table().is_none() && of_reader.is_gone());
        assert_eq!(&**of_reader.owner(), "test");
    }
}
