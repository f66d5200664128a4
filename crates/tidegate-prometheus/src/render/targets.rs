// SPDX-License-Identifier: Apache-2.0

//! The origin of each series: its table, and the target (`job`, `instance`) of its resource.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use tidegate_engine::{Resource, UnixNanos};

use crate::catalog::{Senders, owner};
use crate::labels::{instance, job};
use crate::name::Spelling;

/// The table and the target that many series share.
#[derive(Clone, Copy, Debug)]
struct Origin {
    source: u16,
    /// `NO_TARGET`: the resource has no identity.
    target: u32,
    live: u32,
}

const NO_TARGET: u32 = u32::MAX;

/// Job and instance.
type TargetKey = (String, String);

/// A target, with the attributes of one of its resources.
#[derive(Debug)]
struct TargetEntry {
    identity: Arc<TargetKey>,
    /// The encoded labels of its `target_info`; empty: it has none.
    text: Box<[u8]>,
    /// The resource of these attributes.
    resource: Described,
    /// Other resources with this job and instance, in the order in which they came.
    others: Vec<Described>,
    live: u32,
    /// The last page that showed a series of it.
    shown: u64,
}

/// A resource, and the spelling of its attributes.
type Described = (Weak<Resource>, Spelling);

/// Other resources of a target that are remembered.
const MAX_OTHERS: usize = 64;

impl TargetEntry {
    /// Adds a resource of this job and instance.
    fn add_resource(&mut self, resource: &Arc<Resource>, spelling: Spelling) {
        let is_known = |(known, _): &Described| known.as_ptr() == Arc::as_ptr(resource);
        if is_known(&self.resource) || self.others.iter().any(is_known) {
            return;
        }
        self.others.retain(|(other, _)| other.strong_count() > 0);
        if self.others.len() < MAX_OTHERS {
            self.others.push((Arc::downgrade(resource), spelling));
        }
    }

    /// Selects the resource that is alive. Returns whether the selection has changed.
    fn refresh(
        &mut self,
        liveness: Liveness<'_>,
        encode: impl FnOnce(&Resource, Spelling) -> Vec<u8>,
    ) -> bool {
        if self.others.is_empty() {
            return false;
        }
        self.others.retain(|(other, _)| other.strong_count() > 0);
        let shown = self.resource.0.upgrade().into_iter().map(|shown| (None, shown));
        let others = self.others.iter().enumerate();
        let others = others.filter_map(|(at, (other, _))| Some((Some(at), other.upgrade()?)));
        let lifetime =
            |(at, resource): (Option<usize>, Arc<Resource>)| (at, liveness.senders.lifetime_of(&resource));
        let lives: Vec<_> = shown.chain(others).map(lifetime).collect();
        let Some(Some(at)) = owner(&lives, liveness.senders, liveness.now) else {
            return false;
        };
        let (resource, spelling) = self.others.remove(at);
        let Some(described) = resource.upgrade() else {
            return false;
        };
        let before = std::mem::replace(&mut self.resource, (resource, spelling));
        if before.0.strong_count() > 0 {
            self.others.push(before);
        }
        self.text = encode(&described, spelling).into();
        true
    }
}

/// The data that decides whether a resource is alive.
#[derive(Clone, Copy)]
pub(super) struct Liveness<'a> {
    pub(super) senders: &'a Senders,
    pub(super) now: UnixNanos,
}

/// The origins of all registered series, by number, with their targets.
///
/// Origins and targets are reference-counted by `live`, the number of their series. A count of 0 frees the
/// number for reuse.
#[derive(Debug, Default)]
pub(super) struct TargetTable {
    list: Vec<Origin>,
    free: Vec<u32>,
    by_source_and_target: HashMap<(u16, u32), u32, RandomState>,
    targets: Vec<Option<TargetEntry>>,
    free_targets: Vec<u32>,
    by_identity: BTreeMap<Arc<TargetKey>, u32>,
}

impl TargetTable {
    /// Adds a series and returns the number of its origin. `encode` makes the labels of `target_info`.
    pub(super) fn acquire(
        &mut self,
        source: u16,
        described: (&Arc<Resource>, Spelling),
        liveness: Liveness<'_>,
        encode: impl FnOnce(&Resource, Spelling) -> Vec<u8>,
    ) -> u32 {
        let target = self.target(described, liveness, encode);
        let number = self.number(source, target);
        self.add_ref(number);
        number
    }

    /// Adds the resource of a series that is omitted: it may describe the target of the series that is
    /// shown.
    pub(super) fn add_resource(&mut self, resource: &Arc<Resource>, spelling: Spelling) {
        let Some(job) = job(resource) else { return };
        let number = self.by_identity.get(&(job, instance(resource)));
        let target = number.and_then(|number| self.targets.get_mut(*number as usize));
        if let Some(Some(target)) = target {
            target.add_resource(resource, spelling);
        }
    }

    fn target(
        &mut self,
        (resource, spelling): (&Arc<Resource>, Spelling),
        liveness: Liveness<'_>,
        encode: impl FnOnce(&Resource, Spelling) -> Vec<u8>,
    ) -> u32 {
        let Some(job) = job(resource) else {
            return NO_TARGET;
        };
        let identity = (job, instance(resource));
        if let Some(number) = self.by_identity.get(&identity) {
            // The first resource with a job and instance counts, as long as it lives.
            if let Some(Some(target)) = self.targets.get_mut(*number as usize) {
                target.add_resource(resource, spelling);
                target.refresh(liveness, encode);
            }
            return *number;
        }
        let identity = Arc::new(identity);
        let target = TargetEntry {
            identity: identity.clone(),
            text: encode(resource, spelling).into(),
            resource: (Arc::downgrade(resource), spelling),
            others: Vec::new(),
            live: 0,
            shown: 0,
        };
        let number = put(&mut self.targets, &mut self.free_targets, Some(target));
        self.by_identity.insert(identity, number);
        number
    }

    /// The table of an origin.
    #[inline]
    pub(super) fn source(&self, origin: u32) -> Option<u16> {
        self.list.get(origin as usize).map(|origin| origin.source)
    }

    /// Marks the target of this origin as shown on this page.
    #[inline]
    pub(super) fn show(&mut self, origin: u32, page: u64) {
        let target = self.list.get(origin as usize).map(|origin| origin.target);
        let target = target.and_then(|target| self.targets.get_mut(target as usize));
        if let Some(Some(target)) = target {
            target.shown = page;
        }
    }

    /// Adds a series to an origin that has some.
    pub(super) fn add_ref(&mut self, origin: u32) {
        if let Some(origin) = self.list.get_mut(origin as usize) {
            origin.live += 1;
            if let Some(Some(target)) = self.targets.get_mut(origin.target as usize) {
                target.live += 1;
            }
        }
    }

    fn number(&mut self, source: u16, target: u32) -> u32 {
        if let Some(known) = self.by_source_and_target.get(&(source, target)) {
            return *known;
        }
        let origin = Origin {
            source,
            target,
            live: 0,
        };
        let number = put(&mut self.list, &mut self.free, origin);
        self.by_source_and_target.insert((source, target), number);
        number
    }

    /// Removes a series of an origin.
    pub(super) fn release(&mut self, number: u32) {
        let Some(origin) = self.list.get_mut(number as usize) else {
            return;
        };
        origin.live -= 1;
        let Origin { source, target, live } = *origin;
        if live == 0 {
            self.by_source_and_target.remove(&(source, target));
            self.free.push(number);
        }
        if let Some(slot) = self.targets.get_mut(target as usize)
            && let Some(known) = slot
        {
            known.live -= 1;
            if known.live == 0 {
                self.by_identity.remove(&known.identity);
                self.free_targets.push(target);
                *slot = None;
            }
        }
    }

    /// Selects the resource that is alive for each target. Returns whether a selection has changed.
    pub(super) fn refresh(
        &mut self,
        liveness: Liveness<'_>,
        encode: impl Fn(&Resource, Spelling) -> Vec<u8>,
    ) -> bool {
        let mut any = false;
        for target in self.targets.iter_mut().flatten() {
            any |= target.refresh(liveness, &encode);
        }
        any
    }

    /// The `target_info` labels of all targets that this page shows a series of, by job and instance.
    pub(super) fn shown(&self, page: u64) -> impl Iterator<Item = &[u8]> {
        self.by_identity.values().filter_map(move |number| {
            let target = self.targets.get(*number as usize)?.as_ref()?;
            (target.shown == page && !target.text.is_empty()).then_some(&*target.text)
        })
    }
}

fn put<T>(list: &mut Vec<T>, free: &mut Vec<u32>, item: T) -> u32 {
    let number = free.pop().unwrap_or(list.len() as u32);
    match list.get_mut(number as usize) {
        Some(place) => *place = item,
        None => list.push(item),
    }
    number
}

#[cfg(test)]
impl TargetTable {
    pub(super) fn is_empty(&self) -> bool {
        self.by_source_and_target.is_empty() && self.by_identity.is_empty()
    }
}
