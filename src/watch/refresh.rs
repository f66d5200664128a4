//! Expressions are computed for those who read them. The query locks what other queries need, so that it can take long:
//! it runs on a thread of the background, never on one of the runtime.

use std::sync::Arc;
use std::time::Duration;

use super::Watched;
use crate::component::unix_now;
use crate::component::worker::in_background;

/// How long a reader waits for expressions, their turns included. Then it reads their last values.
const PATIENCE: Duration = Duration::from_secs(10);

impl Watched {
    /// Has an expression computed, where that is due. Waits 10 s at most.
    pub async fn refresh(&self) {
        let _ = tokio::time::timeout(PATIENCE, self.compute()).await;
    }

    async fn compute(&self) {
        if !self.composite.is_due(unix_now()) {
            return;
        }
        // Never closed. Held until the work is done, even when nobody waits for it any more.
        let turn = self.turn.clone().acquire_owned().await;
        // Another reader may have had it computed meanwhile.
        if self.composite.is_due(unix_now()) {
            let composite = self.composite.clone();
            // A panic has been printed; the last value stays.
            let _ = in_background(move || {
                let _turn = turn;
                composite.compute(unix_now());
            })
            .await;
        }
    }
}

/// Has the expressions among these computed that are due, one after the other. Waits 10 s at most.
pub async fn refresh(all: &[Arc<Watched>]) {
    let computed = async {
        for watched in all {
            watched.compute().await;
        }
    };
    let _ = tokio::time::timeout(PATIENCE, computed).await;
}
