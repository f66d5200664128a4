// SPDX-License-Identifier: Apache-2.0

//! Groups of the instance before that have no successor here. They end at the first evaluation. If the instance stops
//! before it, because a reload has failed, they go on in the next instance.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_promql::Millis;

use super::engine::RuleEngine;
use super::group::LeftGroup;
use crate::component::unix_now;

/// A group without a successor.
struct Orphan {
    left: LeftGroup,
    /// Its alerts as they are kept. `None`: there is no storage.
    kept: Option<Arc<[u8]>>,
}

/// All groups without successors.
#[derive(Default)]
pub(super) struct Orphans(Mutex<Vec<Orphan>>);

impl Orphans {
    pub(super) fn add(&self, left: LeftGroup) {
        self.0.lock().push(Orphan { left, kept: None });
    }

    /// Keeps their alerts as they are: until they end, the storage has those.
    pub(super) fn keep(&self, at: Millis) {
        for orphan in &mut *self.0.lock() {
            orphan.kept = orphan.left.kept(at);
        }
    }

    /// Their alerts as they are kept.
    pub(super) fn kept(&self) -> Vec<Arc<[u8]>> {
        let all = self.0.lock();
        all.iter().filter_map(|orphan| orphan.kept.clone()).collect()
    }

    /// Leaves them to the next instance.
    pub(super) fn leave(&self) -> Vec<LeftGroup> {
        let all = std::mem::take(&mut *self.0.lock());
        all.into_iter().map(|orphan| orphan.left).collect()
    }

    /// Ends those whose last evaluation is over, and their series at `at`. The others wait for the next call.
    pub(super) fn end(&self, engine: &RuleEngine, at: Millis) {
        let ended = {
            let mut all = self.0.lock();
            let orphans = std::mem::take(&mut *all).into_iter();
            let (busy, ended): (Vec<_>, Vec<_>) = orphans.partition(|orphan| orphan.left.is_busy());
            *all = busy;
            ended
        };
        for orphan in ended {
            let (evaluated, unsent) = orphan.left.wait();
            engine.send_unsent(unsent);
            if let Some(mut evaluated) = evaluated {
                engine.record(&evaluated.state.end(at), unix_now());
            }
        }
    }
}
