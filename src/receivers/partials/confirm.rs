// SPDX-License-Identifier: Apache-2.0

//! Linearizable reads: before an answer, the replica reads all that the store has at this moment.
//!
//! A value that another replica has shown was in the store before. So a reader that moves to another replica sees no
//! counter fall.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tidegate_cluster::ClusterEngine;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::component::Confirm;

/// A question without an answer is asked again after this time (500 ms): a read that begins again forgets it, and one that
/// is slow may have missed a value.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// Asks the store for its newest messages, and waits until the replica shows them.
pub(super) struct StoreReads {
    pub(super) receiver: String,
    pub(super) engine: Arc<dyn ClusterEngine>,
    /// The last question whose answer the replica shows.
    pub(super) shown: watch::Receiver<u64>,
    /// The longest wait.
    pub(super) patience: Duration,
}

impl StoreReads {
    /// `false`: the replica has ended.
    async fn wait(&self) -> bool {
        let Some(questions) = self.engine.questions() else {
            return false;
        };
        let number = questions.ask();
        let mut shown = self.shown.clone();
        loop {
            match timeout(ASK_AGAIN, shown.wait_for(|shown| *shown >= number)).await {
                Ok(found) => return found.is_ok(),
                Err(_) => drop(questions.ask()),
            }
        }
    }
}

#[async_trait]
impl Confirm for StoreReads {
    async fn confirm(&self) -> bool {
        let is_confirmed = timeout(self.patience, self.wait()).await.unwrap_or(false);
        let result = if is_confirmed { "confirmed" } else { "failed" };
        let labels = [("receiver", self.receiver.clone()), ("result", result.to_owned())];
        metrics::counter!("tidegate_cluster_linearizable_reads_total", &labels).increment(1);
        is_confirmed
    }
}

impl Debug for StoreReads {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreReads")
            .field("receiver", &self.receiver)
            .finish_non_exhaustive()
    }
}
