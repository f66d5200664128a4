// SPDX-License-Identifier: Apache-2.0

//! Computes expressions for their readers. A query locks data that other queries need, so it can take long. It
//! runs on a background thread, never on one of the runtime.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::Watched;
use crate::component::unix_now;
use crate::component::worker::in_background;

/// The longest wait of a reader for expressions, including their turns. Then it reads the last values.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most threads that one reader of many expressions uses.
const AT_ONCE: usize = 4;

impl Watched {
    /// Computes an expression if it is due. Waits at most 10 s.
    pub async fn refresh(&self) {
        let places = Semaphore::new(1);
        let _ = tokio::time::timeout(PATIENCE, self.compute(&places)).await;
    }

    async fn compute(&self, places: &Semaphore) {
        if !self.composite.is_due(unix_now()) {
            return;
        }
        // Never closed. The permit is held until the work is done, even if its caller no longer waits.
        let turn = self.turn.clone().acquire_owned().await;
        // The place is taken after the turn, so that a waiting reader takes no place from others.
        let _place = places.acquire().await;
        // Another reader may have computed it meanwhile.
        if self.composite.is_due(unix_now()) {
            let composite = self.composite.clone();
            // A panic is in the log. The last value stays.
            let _ = in_background(move || {
                let _turn = turn;
                composite.compute_if_due(unix_now());
            })
            .await;
        }
    }
}

/// Computes the due expressions among these concurrently, so that none waits for a slow one. Waits at most 10 s.
pub async fn refresh(all: &[Arc<Watched>]) {
    let now = unix_now();
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut under_way = JoinSet::new();
    for watched in all.iter().filter(|watched| watched.composite.is_due(now)) {
        let (watched, places) = (watched.clone(), places.clone());
        under_way.spawn(async move { watched.compute(&places).await });
    }
    let _ = tokio::time::timeout(PATIENCE, under_way.join_all()).await;
}
