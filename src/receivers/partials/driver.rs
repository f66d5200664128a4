// SPDX-License-Identifier: Apache-2.0

//! The task that carries events and calls between a replica and its store.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_cluster::{StoreEvent, StoreSession};
use tokio::sync::mpsc::Receiver;
use tokio::time::{MissedTickBehavior, interval};

use super::replica::{Replica, ReplicaCalls, ReplicaInput};
use crate::component::worker::in_background;

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
            // A panic is in the log. It has lost no call and no event: the next step continues.
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
