// SPDX-License-Identifier: Apache-2.0

//! Tables whose state goes on in another instance of their component, which a reload builds.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use parking_lot::Mutex;
use tidegate_engine::{Restored, Table};
use tokio::task::JoinError;

/// What the table of an instance takes over at its start, and when another table takes over its state.
#[derive(Default)]
pub struct TableSuccession {
    /// The tables of replaced instances, the newest first.
    predecessors: Mutex<Vec<Arc<Table>>>,
    has_stopped: AtomicBool,
}

impl TableSuccession {
    /// The start takes over the state of these tables, the newest first.
    pub fn of(predecessors: Vec<Arc<Table>>) -> Self {
        Self {
            predecessors: Mutex::new(predecessors),
            has_stopped: AtomicBool::new(false),
        }
    }

    /// Whether the start has state to take over.
    pub fn takes_over(&self) -> bool {
        !self.predecessors.lock().is_empty()
    }

    /// Takes over the state of the replaced instances into the table of this one. They have no pushes under way. `None`: there
    /// are none.
    ///
    /// # Errors
    /// A panic.
    pub async fn take_over(&self, table: &Arc<Table>) -> Result<Option<Restored>, JoinError> {
        // A reload that failed may have led its input elsewhere.
        table.resume();
        let predecessors = std::mem::take(&mut *self.predecessors.lock());
        if predecessors.is_empty() {
            return Ok(None);
        }
        let table = table.clone();
        let taking = tokio::task::spawn_blocking(move || {
            let tables: Vec<&Table> = predecessors.iter().map(|table| &**table).collect();
            table.succeed(&tables)
        });
        taking.await.map(Some)
    }

    /// Notes that the instance stops. Pushes that end later belong to its successor.
    pub fn note_stop(&self) {
        self.has_stopped.store(true, Release);
    }

    /// The table that takes data in for `table`, the one of this instance. `None`: it does so itself.
    pub fn successor(&self, table: &Table) -> Option<Arc<Table>> {
        let has_stopped = self.has_stopped.load(Acquire);
        has_stopped.then(|| table.successor()).flatten()
    }
}
