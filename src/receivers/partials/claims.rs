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
    /// The task wants a claim, and the replica has not begun it.
    is_wanted: bool,
    /// The replica has begun it, and it has no result.
    is_begun: bool,
    result: Option<DeltaClaim>,
    /// Another replica has made a claim that exporters have not followed.
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
        leads: bool,
        now: UnixNanos,
    ) {
        let mut state = self.state.lock();
        let is_followed = is_shown && leader.follow_deltas(reader, now);
        state.is_followed |= is_followed;
        if std::mem::take(&mut state.is_wanted) {
            if state.is_followed {
                // Another replica has claimed the same increases.
                state.result = Some(DeltaClaim::Lost);
            } else {
                leader.claim_deltas(leads);
                state.is_begun = true;
            }
        }
        if state.is_begun && leader.delta_claim().is_some() {
            (state.is_begun, state.result) = (false, leader.delta_claim());
        }
        if is_followed || state.result.is_some() {
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
            (state.is_wanted, state.is_begun, state.result) = (true, false, None);
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
        (state.is_wanted, state.is_begun, state.result) = (false, false, None);
        match answer.unwrap_or(DeltaClaim::Failed) {
            // The call began before that claim was known.
            DeltaClaim::Won if state.is_followed => DeltaClaim::Lost,
            claim => claim,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidegate_cluster::testing::Broker;
    use tidegate_cluster::{ClusterStore as _, LeaderConfig, ReaderConfig, StoreMessage, Subject};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A replica that leads. Its reader is client 0 of the broker, and its leader is client 1.
    struct Scene {
        now: UnixNanos,
        broker: Broker,
        reader: PageReader,
        leader: ClusterLeader,
        board: Arc<ClaimBoard>,
    }

    impl Scene {
        fn new() -> Self {
            let now = 1_700_000_000 * SECOND;
            let mut broker = Broker::new("c", 1);
            broker.advance(now);
            let mut scene = Self {
                now,
                broker,
                reader: PageReader::new(ReaderConfig::new("c"), Vec::new(), &Arc::default()).unwrap(),
                leader: ClusterLeader::new(LeaderConfig::new("c", "me")),
                board: Arc::default(),
            };
            scene.run(5, true);
            assert!(scene.leader.is_leading(scene.now));
            scene
        }

        fn run(&mut self, seconds: u64, is_shown: bool) {
            let Self {
                now,
                broker,
                reader,
                leader,
                board,
            } = self;
            for _ in 0..seconds {
                *now += SECOND;
                broker.advance(*now);
                for (client, event) in broker.due() {
                    match client {
                        0 => reader.event(event, *now),
                        _ => leader.event(event, reader, *now),
                    }
                }
                board.exchange(leader, reader, is_shown, leader.is_leading(*now), *now);
                while let Some((id, call)) = reader.poll() {
                    broker.client(0).start(id, call);
                }
                while let Some((id, call)) = leader.poll(reader, *now) {
                    broker.client(1).start(id, call);
                }
            }
        }

        /// Another replica claims.
        fn claim_by_another(&mut self) {
            self.broker.put(StoreMessage {
                subject: Subject::Deltas.text("c"),
                headers: Vec::new(),
                body: "another".into(),
            });
        }

        async fn claim(&mut self, is_shown: bool) -> DeltaClaim {
            let board = self.board.clone();
            let claim = tokio::spawn(async move { board.claim(Duration::from_mins(1)).await });
            while !claim.is_finished() {
                tokio::task::yield_now().await;
                self.run(1, is_shown);
            }
            claim.await.unwrap()
        }

        async fn is_followed(&self) -> bool {
            let claim = self.board.claim_of_another();
            tokio::time::timeout(Duration::from_millis(20), claim)
                .await
                .is_ok()
        }
    }

    #[tokio::test]
    async fn a_claim_of_another_is_followed_when_the_table_shows_it() {
        let mut scene = Scene::new();
        assert_eq!(scene.claim(true).await, DeltaClaim::Won);
        scene.claim_by_another();
        scene.run(3, false);
        assert!(!scene.is_followed().await);
        assert_eq!(
            scene.claim(false).await,
            DeltaClaim::Lost,
            "it is not followed yet"
        );
        scene.run(1, true);
        assert!(scene.is_followed().await && !scene.is_followed().await);
        assert_eq!(scene.claim(true).await, DeltaClaim::Won);
        assert!(!scene.is_followed().await, "its own claim");
    }

    #[tokio::test]
    async fn no_claim_is_won_while_that_of_another_waits() {
        let mut scene = Scene::new();
        scene.claim_by_another();
        scene.run(3, true);
        assert_eq!(scene.claim(true).await, DeltaClaim::Lost);
        assert!(scene.is_followed().await);
        assert_eq!(scene.claim(true).await, DeltaClaim::Won);
    }

    #[tokio::test]
    async fn a_claim_that_comes_with_the_wish_for_one_comes_first() {
        let mut scene = Scene::new();
        let board = scene.board.clone();
        let claim = tokio::spawn(async move { board.claim(Duration::from_mins(1)).await });
        tokio::task::yield_now().await;
        scene.claim_by_another();
        scene.run(4, true);
        assert_eq!(claim.await.unwrap(), DeltaClaim::Lost);
        assert!(scene.is_followed().await);
        assert_eq!(scene.leader.delta_stats().won, 0);
    }
}
