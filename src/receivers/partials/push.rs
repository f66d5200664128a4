// SPDX-License-Identifier: Apache-2.0

//! The task that pushes the merged series on, to exporters that can't read tables.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_cluster::DeltaClaim;
use tidegate_engine::Table;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::claims::ClaimBoard;
use super::replica::Replica;
use crate::batch::snapshot;
use crate::component::worker::in_background;
use crate::component::{Cluster, DeltaTurn, Entry, unix_now};

/// The longest wait for the answer to a claim (5 s). A shorter interval between two pushes bounds it too.
const MAX_CLAIM: Duration = Duration::from_secs(5);

/// Pushes the contents of the table while the replica is ready.
pub(super) struct Pusher {
    pub(super) replica: Arc<Mutex<Replica>>,
    pub(super) claims: Arc<ClaimBoard>,
    pub(super) cluster: Arc<Cluster>,
    pub(super) table: Arc<Table>,
    pub(super) entry: Entry,
    /// The time between two pushes.
    pub(super) every: Duration,
}

impl Pusher {
    /// Pushes at each interval. If an exporter wants deltas, a replica that does not lead pushes when it sees the claim of the
    /// leader: then the exporters of both have the same totals behind them.
    pub(super) async fn run(self) {
        let mut ticks = interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        // The first tick of an interval is immediate.
        ticks.tick().await;
        let mut is_first = true;
        loop {
            let turn = self.next_turn(&mut ticks, is_first).await;
            let pushed = self.push(turn).await;
            is_first &= !pushed;
        }
    }

    async fn next_turn(&self, ticks: &mut Interval, is_first: bool) -> DeltaTurn {
        if !self.cluster.has_deltas() {
            ticks.tick().await;
            return DeltaTurn::Hold;
        }
        tokio::select! {
            () = self.claims.claim_of_another() => {
                ticks.reset();
                DeltaTurn::Follow
            }
            _ = ticks.tick() => match self.claim().await {
                Some(DeltaClaim::Won) => DeltaTurn::Export,
                Some(DeltaClaim::Lost) => DeltaTurn::Follow,
                Some(DeltaClaim::Failed) => DeltaTurn::Hold,
                // Exporters of a new replica learn the totals with its first push.
                None if is_first => DeltaTurn::Follow,
                None => DeltaTurn::Hold,
            },
        }
    }

    /// Claims the deltas of the interval. `None`: this replica does not lead.
    async fn claim(&self) -> Option<DeltaClaim> {
        if !self.cluster.is_leading() {
            return None;
        }
        Some(self.claims.claim(MAX_CLAIM.min(self.every)).await)
    }

    /// `false`: the replica is not ready.
    async fn push(&self, turn: DeltaTurn) -> bool {
        let (replica, table, entry) = (self.replica.clone(), self.table.clone(), self.entry.clone());
        let cluster = self.cluster.clone();
        let pushed = in_background(move || {
            if !replica.lock().is_ready() {
                return false;
            }
            cluster.set_turn(turn);
            for batch in snapshot(&table, unix_now()) {
                // A refused batch is not lost, because the next snapshot has its series.
                let _ = entry.push(batch);
            }
            true
        });
        // A panic is in the log. The next round continues.
        pushed.await.unwrap_or(false)
    }
}
