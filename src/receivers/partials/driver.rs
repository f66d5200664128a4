// SPDX-License-Identifier: Apache-2.0

//! The tasks of a replica: one carries events and calls between it and the store, one pushes the merged series on.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_cluster::{StoreEvent, StoreSession};
use tidegate_engine::Table;
use tokio::sync::mpsc::Receiver;
use tokio::time::{MissedTickBehavior, interval};

use super::replica::{Replica, ReplicaCalls, ReplicaInput};
use crate::batch::snapshot;
use crate::component::worker::in_background;
use crate::component::{Entry, unix_now};

/// Interval at which a replica looks at the time: the merged series are shown this late at most.
const TICK: Duration = Duration::from_millis(100);

/// The most events that a replica takes at once.
const EVENTS_AT_ONCE: usize = 256;

/// Carries events and calls. Each machine has a session of its own.
pub(super) struct ReplicaDriver {
    /// Locked by one thread at a time: the task waits while the background thread works.
    pub(super) replica: Arc<Mutex<Replica>>,
    pub(super) reader: StoreSession,
    pub(super) leader: StoreSession,
}

impl ReplicaDriver {
    /// Runs until the engine ends.
    pub(super) async fn run(mut self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let input = tokio::select! {
                events = next_events(&mut self.reader.events) => events.map(ReplicaInput::Read),
                events = next_events(&mut self.leader.events) => events.map(ReplicaInput::Lead),
                _ = ticks.tick() => Some(ReplicaInput::Tick),
            };
            let Some(input) = input else { break };
            let replica = self.replica.clone();
            let stepped = in_background(move || replica.lock().step(input));
            // A panic is in the log. The next event continues.
            let ReplicaCalls { reader, leader } = stepped.await.unwrap_or_default();
            for (id, call) in reader {
                self.reader.store.start(id, call);
            }
            for (id, call) in leader {
                self.leader.store.start(id, call);
            }
        }
        tracing::error!("the engine of the cluster has ended");
    }
}

/// The events that wait, at least one. `None`: the engine has ended.
async fn next_events(events: &mut Receiver<StoreEvent>) -> Option<Vec<StoreEvent>> {
    let mut all = Vec::new();
    let count = events.recv_many(&mut all, EVENTS_AT_ONCE).await;
    (count > 0).then_some(all)
}

/// Pushes the contents of the table at each interval while the replica is ready.
pub(super) async fn push(replica: Arc<Mutex<Replica>>, table: Arc<Table>, entry: Entry, every: Duration) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    // The first tick of an interval is immediate.
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let (replica, table, entry) = (replica.clone(), table.clone(), entry.clone());
        let pushed = in_background(move || {
            if !replica.lock().is_ready() {
                return;
            }
            for batch in snapshot(&table, unix_now()) {
                // A refused batch is not lost, because the next snapshot has its series.
                let _ = entry.push(batch);
            }
        });
        // A panic is in the log. The next round continues.
        let _ = pushed.await;
    }
}
