//! Expressions are computed for those who read them. The query locks what other queries need, so that it can take long:
//! it runs on a thread of the background, never on one of the runtime.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::Watched;
use crate::component::unix_now;
use crate::component::worker::in_background;

/// How long a reader waits for expressions, their turns included. Then it reads their last values.
const PATIENCE: Duration = Duration::from_secs(10);

/// Threads that one reader of many expressions takes at once.
const AT_ONCE: usize = 4;

impl Watched {
    /// Has an expression computed, where that is due. Waits 10 s at most.
    pub async fn refresh(&self) {
        let places = Semaphore::new(1);
        let _ = tokio::time::timeout(PATIENCE, self.compute(&places)).await;
    }

    async fn compute(&self, places: &Semaphore) {
        if !self.composite.is_due(unix_now()) {
            return;
        }
        // Never closed. Held until the work is done, even when nobody waits for it any more.
        let turn = self.turn.clone().acquire_owned().await;
        // After the turn: a reader that waits for a turn takes no place from others.
        let _place = places.acquire().await;
        // Another reader may have had it computed meanwhile.
        if self.composite.is_due(unix_now()) {
            let composite = self.composite.clone();
            // A panic has been printed; the last value stays.
            let _ = in_background(move || {
                let _turn = turn;
                composite.compute_if_due(unix_now());
            })
            .await;
        }
    }
}

/// Has the expressions among these computed that are due, side by side: none waits for one that takes long. Waits 10 s
/// at most.
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
