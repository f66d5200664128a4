// SPDX-License-Identifier: Apache-2.0

//! Streams that fall silent: the time for which a table knows them.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::{InputStream, Phase};
use crate::UnixNanos;
use crate::lease::nanos;
use crate::streams::{Sweep, lock};
use crate::table::Table;
use crate::table::folded::FoldedStream;

impl Table {
    /// The time for which the tracker of a departed counter stays, in nanoseconds, so that it does not count twice on
    /// return.
    fn memory_ns(&self) -> u64 {
        /// While those that left and those that live take less than this share of the room.
        const ROOMY: usize = 16;
        const LONG: Duration = Duration::from_hours(24);
        /// In expiry times, when there is less room.
        const SHORT: u64 = 4;
        let short = nanos(self.limits.expiry).saturating_mul(SHORT);
        if self.streams.len() < self.limits.streams / ROOMY {
            nanos(LONG).max(short)
        } else {
            short
        }
    }

    pub(in crate::table) fn sweep_streams(&self, now: UnixNanos) {
        let expiry = nanos(self.limits.expiry);
        let memory = self.memory_ns();
        self.streams.expire(now, |stream, seen, identity| {
            let swept = self.sweep_stream(stream, now.saturating_sub(seen), expiry, memory);
            if swept == Sweep::Forget {
                // One at a time: a thread that makes a stream known does not wait for all that have gone.
                lock(&self.registry).remove_stream(stream.source);
                if stream.phase == Phase::Left && stream.tracker.holds_total() {
                    let folded = FoldedStream {
                        start: stream.tracker.start,
                        time: stream.tracker.newest(),
                        overflow: stream.targets.first().copied(),
                    };
                    lock(&self.folded).add(identity, folded);
                }
            }
            swept
        });
        self.restored.retain(
            |act| self.streams.still(act),
            |(stream, seen)| {
                self.sweep_stream(stream, now.saturating_sub(*seen), expiry, memory) == Sweep::Keep
            },
        );
    }

    fn sweep_stream(&self, stream: &mut InputStream, idle: u64, expiry: u64, memory: u64) -> Sweep {
        if idle > expiry && stream.phase == Phase::Live && !stream.targets.is_empty() {
            self.leave(stream, &mut self.cells.cursor());
            self.counters.version.fetch_add(1, Relaxed);
        }
        let remembered = stream.phase == Phase::Left && stream.tracker.holds_total();
        Sweep::forget_if(idle > if remembered { memory } else { expiry })
    }
}
