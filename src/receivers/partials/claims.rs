// SPDX-License-Identifier: Apache-2.0

//! Claims of deltas, between a replica and the task that pushes. The task does not wait for the lock of the replica.

use std::time::Duration;

use parking_lot::Mutex;
use tidegate_cluster::{ClusterLeader, DeltaClaim, PageReader};
use tidegate_engine::UnixNanos;
use tokio::sync::Notify;

/// The state that both sides share.
#[derive(Default)]
pub(super) struct ClaimBoard {
    state: Mutex<BoardState>,
    changed: Notify,
}

#[derive(Default)]
struct BoardState {
    is_wanted: bool,
    result: Option<DeltaClaim>,
    is_followed: bool,
}

impl ClaimBoard {
    /// Begins a claim that is wanted, and notes the claims of others that the table shows. Call it with each step of the
    /// replica, before the calls of the leader.
    pub(super) fn exchange(
        &self,
        leader: &mut ClusterLeader,
        reader: &mut PageReader,
        is_shown: bool,
        now: UnixNanos,
    ) {
        let mut state = self.state.lock();
        let is_followed = is_shown && leader.follow_deltas(reader);
        state.is_followed |= is_followed;
        let is_wanted = std::mem::take(&mut state.is_wanted);
        if is_wanted && state.is_followed {
            // Another replica has claimed the same increases.
            state.result = Some(DeltaClaim::Lost);
            self.changed.notify_one();
            return;
        }
        if is_wanted {
            leader.claim_deltas(now);
        }
        let result = leader.delta_claim();
        if is_followed || result != state.result {
            state.result = result;
            self.changed.notify_one();
        }
    }

    fn result(&self) -> Option<DeltaClaim> {
        self.state.lock().result
    }

    fn take_followed(&self) -> bool {
        std::mem::take(&mut self.state.lock().is_followed)
    }

    /// Waits for a claim of another replica.
    pub(super) async fn claim_of_another(&self) {
        while !self.take_followed() {
            self.changed.notified().await;
        }
    }

    /// Makes a claim. It is lost if the claim of another replica waits to be followed. Without an answer after `patience`, it
    /// has failed.
    pub(super) async fn claim(&self, patience: Duration) -> DeltaClaim {
        {
            let mut state = self.state.lock();
            if state.is_followed {
                return DeltaClaim::Lost;
            }
            (state.is_wanted, state.result) = (true, None);
        }
        let answer = async {
            loop {
                if let Some(claim) = self.result() {
                    break claim;
                }
                self.changed.notified().await;
            }
        };
        let answer = tokio::time::timeout(patience, answer).await;
        let mut state = self.state.lock();
        state.is_wanted = false;
        match answer.unwrap_or(DeltaClaim::Failed) {
            // The call began before that claim was known.
            DeltaClaim::Won if state.is_followed => DeltaClaim::Lost,
            claim => claim,
        }
    }
}
