// SPDX-License-Identifier: Apache-2.0

//! The limits of a composite, and counters of the data beyond them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Composite, MEMORY};
use crate::lease::nanos;
use crate::{Budget, UnixNanos};

/// The reason why series are omitted without memory.
const NO_MEMORY: &str =
    "no memory is left for them; narrow `metric` or `attributes`, or raise the memory limit";

/// The limits of a composite, and how often they were reached.
#[derive(Debug)]
pub(super) struct GroupLimits {
    budget: Arc<Budget>,
    /// Streams that it can follow.
    max_streams: usize,
    /// Groups beyond `max_groups`.
    overflowed: AtomicU64,
    /// Points of streams beyond those that it can follow.
    unseen: AtomicU64,
    /// When there was the last one.
    unseen_at: AtomicU64,
    /// Groups that found no memory.
    groups_without: AtomicU64,
    /// Points of streams, and saved sub-windows, that found no memory.
    points_without: AtomicU64,
    /// When there was the last one.
    without_at: AtomicU64,
}

impl GroupLimits {
    pub(super) fn new(max_streams: usize) -> Self {
        Self {
            budget: Arc::default(),
            max_streams,
            overflowed: AtomicU64::new(0),
            unseen: AtomicU64::new(0),
            unseen_at: AtomicU64::new(0),
            groups_without: AtomicU64::new(0),
            points_without: AtomicU64::new(0),
            without_at: AtomicU64::new(0),
        }
    }

    pub(super) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// A group has no place of its own.
    pub(super) fn note_overflow(&self) {
        self.overflowed.fetch_add(1, Relaxed);
    }

    /// Notes the number of omitted groups of an expression, by cause.
    pub(super) fn note_omitted(&self, beyond_max: usize, without_memory: usize) {
        self.overflowed.fetch_max(beyond_max as u64, Relaxed);
        self.groups_without.fetch_max(without_memory as u64, Relaxed);
    }

    /// A group found no memory.
    pub(super) fn note_group_without_room(&self) {
        self.groups_without.fetch_add(1, Relaxed);
    }

    /// A point belongs to more streams than can be followed.
    pub(super) fn note_unseen(&self, now: UnixNanos) {
        self.unseen.fetch_add(1, Relaxed);
        self.unseen_at.fetch_max(now, Relaxed);
    }

    /// A point belongs to a stream that found no memory, or a saved sub-window found none.
    pub(super) fn note_point_without_room(&self, now: UnixNanos) {
        self.points_without.fetch_add(1, Relaxed);
        self.without_at.fetch_max(now, Relaxed);
    }

    /// The reason why series are omitted now, if any are.
    pub(super) fn lacks(&self, now: UnixNanos) -> Option<String> {
        let is_recent = |at: &AtomicU64| {
            let at = at.load(Relaxed);
            at > 0 && now.saturating_sub(at) <= nanos(MEMORY)
        };
        if is_recent(&self.unseen_at) {
            return Some(self.full());
        }
        is_recent(&self.without_at).then(|| NO_MEMORY.to_owned())
    }

    fn full(&self) -> String {
        format!(
            "it follows {} at most; narrow `metric` or `attributes`",
            self.max_streams
        )
    }
}

impl Composite {
    /// Bounds the memory of streams and groups, together with all other users of this budget.
    #[must_use]
    pub fn bounded_by(mut self, budget: Arc<Budget>) -> Self {
        self.room.budget = budget;
        self
    }

    /// The budget that bounds the memory of streams and groups.
    pub fn budget(&self) -> &Arc<Budget> {
        self.room.budget()
    }

    /// The number of groups without a place of their own: they share the overflow group.
    pub fn overflowed_groups(&self) -> u64 {
        self.room.overflowed.load(Relaxed)
    }

    /// The number of points that were not seen because their streams are beyond the limit.
    pub fn unseen_points(&self) -> u64 {
        self.room.unseen.load(Relaxed)
    }

    /// The number of groups, of points, and of saved sub-windows that found no memory.
    pub fn without_memory(&self) -> u64 {
        let room = &self.room;
        room.groups_without.load(Relaxed) + room.points_without.load(Relaxed)
    }

    /// The shortfalls of room, as messages.
    pub fn shortfalls(&self) -> Vec<String> {
        let (name, max_groups) = (&self.declaration.name, self.declaration.max_groups);
        let is_expression = self.declaration.expression.is_some();
        let mut all = Vec::new();
        if self.overflowed_groups() > 0 {
            all.push(if is_expression {
                format!("the composite `{name}` leaves groups out: `max_groups` is {max_groups}")
            } else {
                format!(
                    "the composite `{name}` has no place for more groups, which share one: `max_groups` is {max_groups}"
                )
            });
        }
        if self.room.groups_without.load(Relaxed) > 0 {
            let fate = if is_expression {
                "leaves groups out"
            } else {
                "has no memory for more groups, which share one"
            };
            all.push(format!(
                "the composite `{name}` {fate}: too long, or more than the memory limit allows; group `by` fewer or \
                 shorter attributes"
            ));
        }
        if self.unseen_points() > 0 {
            let full = self.room.full();
            all.push(format!("the composite `{name}` leaves series out: {full}"));
        }
        if self.room.points_without.load(Relaxed) > 0 {
            all.push(format!("the composite `{name}` leaves series out: {NO_MEMORY}"));
        }
        all
    }
}
