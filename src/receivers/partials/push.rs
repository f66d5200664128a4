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

/// The longest wait for the answer to a claim (5 s). Missed intervals are skipped.
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
    /// leader. Then the exporters of both have the same totals behind them.
    pub(super) async fn run(self) {
        let mut ticks = interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        // The first tick of an interval is immediate.
        ticks.tick().await;
        let (mut is_first, mut owes_follow) = (true, false);
        loop {
            let turn = if owes_follow {
                // No claim before exporters have let go of the increases of others.
                ticks.tick().await;
                Some(DeltaTurn::Follow)
            } else {
                self.next_turn(&mut ticks, is_first).await
            };
            let Some(turn) = turn else { continue };
            let pushed = self.push(turn).await;
            is_first &= !pushed;
            owes_follow = !pushed && turn == DeltaTurn::Follow;
        }
    }

    /// The turn of the next push; `None`: a claim of another replica is to be followed first.
    async fn next_turn(&self, ticks: &mut Interval, is_first: bool) -> Option<DeltaTurn> {
        if !self.cluster.has_deltas() {
            ticks.tick().await;
            return Some(DeltaTurn::Hold);
        }
        tokio::select! {
            () = self.claims.claim_of_another() => {
                ticks.reset();
                Some(DeltaTurn::Follow)
            }
            _ = ticks.tick() => match self.claim().await {
                Some(DeltaClaim::Won) => Some(DeltaTurn::Export),
                Some(DeltaClaim::Lost) => None,
                Some(DeltaClaim::Failed) => Some(DeltaTurn::Hold),
                // Exporters of a new replica learn the totals with its first push.
                None if is_first => Some(DeltaTurn::Follow),
                None => Some(DeltaTurn::Hold),
            },
        }
    }

    /// Claims the deltas of the interval. `None`: this replica does not lead.
    async fn claim(&self) -> Option<DeltaClaim> {
        if !self.cluster.is_leading() {
            return None;
        }
        Some(self.claims.claim(MAX_CLAIM).await)
    }

    /// `false`: the replica is not ready, or a push that follows was refused.
    async fn push(&self, turn: DeltaTurn) -> bool {
        let (replica, table, entry) = (self.replica.clone(), self.table.clone(), self.entry.clone());
        let cluster = self.cluster.clone();
        let pushed = in_background(move || {
            if !replica.lock().is_ready() {
                return false;
            }
            cluster.set_turn(turn);
            let mut is_whole = true;
            for batch in snapshot(&table, unix_now()) {
                // A refused batch is not lost, because the next snapshot has its series.
                is_whole &= entry.push(batch).is_ok();
            }
            is_whole || turn != DeltaTurn::Follow
        });
        // A panic is in the log. The next round continues.
        pushed.await.unwrap_or(false)
    }
}
