//! Where series come from: which table, and which target (`job`, `instance`) their resource is.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use tidegate_engine::{Resource, UnixNanos};

use crate::prom::catalog::{Senders, owner};
use crate::prom::labels::{instance, job};
use crate::prom::name::Spelling;

/// What many series have in common.
#[derive(Clone, Copy, Debug)]
struct Origin {
    source: u16,
    /// `NO_TARGET`: the resource does not say who it is.
    target: u32,
    live: u32,
}

const NO_TARGET: u32 = u32::MAX;

/// Job and instance.
type Identity = (String, String);

/// Who a resource says it is.
#[derive(Debug)]
struct Target {
    identity: Arc<Identity>,
    /// The labels of its `target_info`; empty: nothing to say.
    text: Box<[u8]>,
    /// Whose attributes these are.
    resource: Described,
    /// Other resources with this job and instance, in the order in which they came.
    others: Vec<Described>,
    live: u32,
    /// The last page that showed a series of it.
    shown: u64,
}

/// A resource, and who named its attributes.
type Described = (Weak<Resource>, Spelling);

/// Other resources of a target that are remembered.
const MAX_OTHERS: usize = 64;

impl Target {
    /// Notes a resource of this job and instance.
    fn meet(&mut self, resource: &Arc<Resource>, spelling: Spelling) {
        let is_known = |(known, _): &Described| known.as_ptr() == Arc::as_ptr(resource);
        if is_known(&self.resource) || self.others.iter().any(is_known) {
            return;
        }
        self.others.retain(|(other, _)| other.strong_count() > 0);
        if self.others.len() < MAX_OTHERS {
            self.others.push((Arc::downgrade(resource), spelling));
        }
    }

    /// Shows the resource that lives, of those that are there. Gives whether it is another one.
    fn refresh(&mut self, watch: Watch<'_>, encode: impl FnOnce(&Resource, Spelling) -> Vec<u8>) -> bool {
        if self.others.is_empty() {
            return false;
        }
        self.others.retain(|(other, _)| other.strong_count() > 0);
        let shown = self.resource.0.upgrade().into_iter().map(|shown| (None, shown));
        let others = self.others.iter().enumerate();
        let others = others.filter_map(|(at, (other, _))| Some((Some(at), other.upgrade()?)));
        let life = |(at, resource): (Option<usize>, Arc<Resource>)| (at, watch.senders.life_of(&resource));
        let lives: Vec<_> = shown.chain(others).map(life).collect();
        let Some(Some(at)) = owner(&lives, watch.senders, watch.now) else {
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

/// What is known of how resources report.
#[derive(Clone, Copy)]
pub(super) struct Watch<'a> {
    pub(super) senders: &'a Senders,
    pub(super) now: UnixNanos,
}

/// Origins of living series.
#[derive(Debug, Default)]
pub(super) struct Origins {
    list: Vec<Origin>,
    free: Vec<u32>,
    by_source_and_target: HashMap<(u16, u32), u32, RandomState>,
    targets: Vec<Option<Target>>,
    free_targets: Vec<u32>,
    by_identity: BTreeMap<Arc<Identity>, u32>,
}

impl Origins {
    /// The origin of a series that joins it. `encode` makes the text of `target_info`.
    pub(super) fn join(
        &mut self,
        source: u16,
        described: (&Arc<Resource>, Spelling),
        watch: Watch<'_>,
        encode: impl FnOnce(&Resource, Spelling) -> Vec<u8>,
    ) -> u32 {
        let target = self.target(described, watch, encode);
        let number = self.number(source, target);
        self.join_again(number);
        number
    }

    /// Notes the resource of a series that another one keeps from its place: it may describe the target of both.
    pub(super) fn meet(&mut self, resource: &Arc<Resource>, spelling: Spelling) {
        let Some(job) = job(resource) else { return };
        let number = self.by_identity.get(&(job, instance(resource)));
        let target = number.and_then(|number| self.targets.get_mut(*number as usize));
        if let Some(Some(target)) = target {
            target.meet(resource, spelling);
        }
    }

    fn target(
        &mut self,
        (resource, spelling): (&Arc<Resource>, Spelling),
        watch: Watch<'_>,
        encode: impl FnOnce(&Resource, Spelling) -> Vec<u8>,
    ) -> u32 {
        let Some(job) = job(resource) else {
            return NO_TARGET;
        };
        let identity = (job, instance(resource));
        if let Some(number) = self.by_identity.get(&identity) {
            // Of several resources with one job and instance the first counts, as long as it lives.
            if let Some(Some(target)) = self.targets.get_mut(*number as usize) {
                target.meet(resource, spelling);
                target.refresh(watch, encode);
            }
            return *number;
        }
        let identity = Arc::new(identity);
        let target = Target {
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

    /// Notes that a series of this origin is shown on this page.
    #[inline]
    pub(super) fn show(&mut self, origin: u32, page: u64) {
        let target = self.list.get(origin as usize).map(|origin| origin.target);
        let target = target.and_then(|target| self.targets.get_mut(target as usize));
        if let Some(Some(target)) = target {
            target.shown = page;
        }
    }

    /// One more series of an origin that has some.
    pub(super) fn join_again(&mut self, origin: u32) {
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

    /// One series less.
    pub(super) fn leave(&mut self, number: u32) {
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

    /// Shows the living resource of each target that several describe. Gives whether one is another than before.
    pub(super) fn refresh(
        &mut self,
        watch: Watch<'_>,
        encode: impl Fn(&Resource, Spelling) -> Vec<u8>,
    ) -> bool {
        let mut any = false;
        for target in self.targets.iter_mut().flatten() {
            any |= target.refresh(watch, &encode);
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
impl Origins {
    pub(super) fn is_empty(&self) -> bool {
        self.by_source_and_target.is_empty() && self.by_identity.is_empty()
    }
}
