// SPDX-License-Identifier: Apache-2.0

//! The groups of a composite: each has a place of its own, or shares the overflow group.

use std::sync::{Arc, Mutex, PoisonError};

use super::group::CompositeGroup;
use super::{Composite, MEMORY};
use crate::budget::Reservation;
use crate::chunks::lock;
use crate::grouping::overflow_attributes;
use crate::key::{Key, KeyMap};
use crate::lease::nanos;
use crate::{Attributes, Series, UnixNanos};

/// The bytes of a group beside its text and window: its index entries and its sources.
const GROUP_BYTES: usize = size_of::<CompositeGroup>() + size_of::<Series>() + 200;

/// Attributes of a group above this size count for their copies in pages and queries too, like those of series in
/// tables.
const COPIED_BYTES: usize = 1 << 10;
const COPIES: usize = 3;

pub(super) type SharedGroup = Arc<Mutex<CompositeGroup>>;

#[derive(Debug, Default)]
pub(super) struct Groups {
    index: KeyMap<SharedGroup>,
    list: Vec<SharedGroup>,
    /// Groups that went because their targets have left discovery; as many as there may be groups.
    left: Vec<Left>,
}

/// A group whose targets have left discovery.
#[derive(Debug)]
struct Left {
    attributes: Attributes,
    /// For its text.
    _reservation: Option<Reservation>,
}

/// The bytes that the attributes of a group count with.
pub(super) fn weight(attributes: &Attributes) -> usize {
    let text = attributes.bytes();
    text + text.saturating_sub(COPIED_BYTES) * COPIES
}

impl Composite {
    /// The groups that went because all their targets have left discovery.
    pub fn left(&self) -> Vec<Attributes> {
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        groups.left.iter().map(|left| left.attributes.clone()).collect()
    }

    pub(super) fn groups(&self) -> Vec<SharedGroup> {
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        groups.list.clone()
    }

    /// The group of these attributes, if there is one.
    #[cfg(feature = "tables")]
    pub(super) fn known_group(&self, attributes: &Attributes) -> Option<SharedGroup> {
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        groups.index.get(&Key::of_value(attributes)).cloned()
    }

    /// The group of these attributes, or the overflow group.
    pub(super) fn group(&self, attributes: Attributes) -> SharedGroup {
        let key = Key::of_value(&attributes);
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = groups.index.get(&key) {
            return group.clone();
        }
        let overflow = overflow_attributes();
        let window = if self.declaration.is_by_series() {
            0
        } else {
            self.cut.bytes(self.declaration.is_sketched())
        };
        let budget = self.room.budget();
        let reservation = if attributes == overflow {
            Some(Reservation::certain(budget, GROUP_BYTES + window))
        } else if groups.list.len() >= self.declaration.max_groups {
            self.room.note_overflow();
            None
        } else {
            let reserved = groups.reserve(|| {
                let is_too_long = budget.is_too_long(attributes.bytes());
                let bytes = GROUP_BYTES + window + weight(&attributes);
                (!is_too_long)
                    .then(|| Reservation::new(budget, bytes, 0))
                    .flatten()
            });
            if reserved.is_none() {
                self.room.note_group_without_room();
            }
            reserved
        };
        let Some(reservation) = reservation else {
            drop(groups);
            return self.group(overflow);
        };
        let series = self.series(attributes);
        groups.left.retain(|left| left.attributes != series.attributes);
        let group = Arc::new(Mutex::new(CompositeGroup::new(series, self.cut, reservation)));
        groups.index.insert(key, group.clone());
        groups.list.push(group.clone());
        group
    }

    /// Acts on the group of these attributes, which stays in the composite until `act` ends.
    pub(super) fn within<R>(
        &self,
        attributes: &Attributes,
        act: impl Fn(&mut CompositeGroup) -> R,
    ) -> (SharedGroup, R) {
        loop {
            let shared = self.group(attributes.clone());
            let mut group = lock(&shared);
            if !group.is_removed {
                let done = act(&mut group);
                drop(group);
                return (shared, done);
            }
        }
    }

    /// Removes groups that are over, and updates the sizes of the others. Says whether any was removed.
    pub(super) fn remove_groups(&self, now: UnixNanos) -> bool {
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        let before = groups.list.len();
        groups.remove_over(now, nanos(MEMORY), self.declaration.max_groups);
        let has_removed = groups.list.len() < before;
        drop(groups);
        if self.declaration.is_sketched() {
            self.groups().iter().for_each(|group| lock(group).weigh());
        }
        has_removed
    }
}

impl Groups {
    /// Reserves room. Departed groups are tracked only while no other group needs their room.
    fn reserve(&mut self, reserve: impl Fn() -> Option<Reservation>) -> Option<Reservation> {
        let reserved = reserve();
        if reserved.is_some() || self.left.is_empty() {
            return reserved;
        }
        self.left = Vec::new();
        reserve()
    }

    fn remove_over(&mut self, now: UnixNanos, memory: u64, max_left: usize) {
        let mut removed = Vec::new();
        self.list.retain(|shared| {
            let mut group = lock(shared);
            group.prune(now, memory);
            group.is_removed = group.is_over(now);
            if group.is_removed {
                removed.push((group.attributes().clone(), group.has_left(), group.hand_on()));
            }
            !group.is_removed
        });
        for (attributes, has_left, reservation) in removed {
            self.index.remove(&Key::of_value(&attributes));
            if has_left {
                self.left.push(Left {
                    attributes,
                    _reservation: reservation,
                });
            }
        }
        let surplus = self.left.len().saturating_sub(max_left);
        self.left.drain(..surplus);
        if self.list.is_empty() {
            self.index.shrink_to_fit();
            self.list.shrink_to_fit();
        }
    }
}
