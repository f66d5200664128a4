// SPDX-License-Identifier: Apache-2.0

//! The registry of the sources of points: the resources of streams, and the number of streams of each.

use std::sync::Arc;

use crate::key::{Key, KeyMap};
use crate::{Cadence, Lease, Resource, UnixNanos};

/// The number of a source in the registry. Another source gets it after the last stream of this one has left.
pub(super) type SourceNumber = u32;

/// The sources of points of a table, by resource.
///
/// A source lives as long as it has streams: the first `add_stream` makes it, the last `remove_stream`
/// removes it.
///
/// Invariant: `index` has exactly the numbers of the entries in `list` that are `Some`; `free` has the
/// others.
///
/// Lock order: a table locks its registry after streams and cells, and holds no registry while it locks
/// another thing.
#[derive(Debug, Default)]
pub(super) struct SourceRegistry {
    index: KeyMap<SourceNumber>,
    list: Vec<Option<SourceEntry>>,
    free: Vec<SourceNumber>,
}

#[derive(Debug)]
struct SourceEntry {
    key: Key,
    resource: Arc<Resource>,
    streams: usize,
    /// The earliest start of its streams, Unix time; 0: no stream has one.
    earliest_start: UnixNanos,
    /// The interval at which it reports to this table.
    cadence: Cadence,
    /// The lease of the receiver that sent its latest points. `None`: it lives by its cadence.
    lease: Option<Arc<Lease>>,
}

impl SourceRegistry {
    /// Adds a stream of a resource that counts since `start` (0: not known). Returns its source, and the
    /// number of streams that the source has now.
    pub(super) fn add_stream(&mut self, resource: &Arc<Resource>, start: UnixNanos) -> (SourceNumber, usize) {
        let key = Key::of_value(resource);
        let (list, free) = (&mut self.list, &mut self.free);
        let number = *self.index.entry(key).or_insert_with(|| {
            let entry = Some(SourceEntry {
                key,
                resource: resource.clone(),
                streams: 0,
                earliest_start: 0,
                cadence: Cadence::default(),
                lease: None,
            });
            match free.pop() {
                Some(number) => {
                    list[number as usize] = entry;
                    number
                }
                None => {
                    list.push(entry);
                    list.len() as SourceNumber - 1
                }
            }
        });
        let streams = match self.list.get_mut(number as usize).and_then(Option::as_mut) {
            Some(entry) => {
                entry.streams += 1;
                if start > 0 && (entry.earliest_start == 0 || start < entry.earliest_start) {
                    entry.earliest_start = start;
                }
                entry.streams
            }
            None => 0,
        };
        (number, streams)
    }

    /// Removes a stream of a source.
    pub(super) fn remove_stream(&mut self, number: SourceNumber) {
        let Some(slot) = self.list.get_mut(number as usize) else {
            return;
        };
        let Some(entry) = slot else { return };
        entry.streams -= 1;
        if entry.streams == 0 {
            self.index.remove(&entry.key);
            self.free.push(number);
            *slot = None;
        }
    }

    /// The number of streams of a resource.
    pub(super) fn streams(&self, resource: &Resource) -> usize {
        let number = self.index.get(&Key::of_value(resource));
        let entry = number.and_then(|number| self.list.get(*number as usize)?.as_ref());
        entry.map_or(0, |entry| entry.streams)
    }

    /// The earliest start of the streams of a resource; 0: none is known.
    pub(super) fn earliest_start(&self, resource: &Resource) -> UnixNanos {
        let number = self.index.get(&Key::of_value(resource));
        let entry = number.and_then(|number| self.list.get(*number as usize)?.as_ref());
        entry.map_or(0, |entry| entry.earliest_start)
    }

    /// Notes a report of a source, for its cadence, and the lease that its receiver keeps. Two directories of cells may have
    /// one resource: what the receiver repeats of a dead one does not show that the other one is dead. Nobody may end a lease:
    /// one that is overdue keeps no other from coming.
    pub(super) fn note_report(&mut self, number: SourceNumber, lease: Option<&Arc<Lease>>, now: UnixNanos) {
        if let Some(entry) = self.list.get_mut(number as usize).and_then(Option::as_mut) {
            entry.cadence.note(now);
            let is_alive = |lease: &Arc<Lease>| lease.is_alive(now);
            let has_living = entry.lease.as_ref().is_some_and(is_alive);
            let is_repeat = has_living && lease.is_some_and(|lease| !is_alive(lease));
            if !is_repeat {
                entry.lease = lease.cloned();
            }
        }
    }

    /// The lease of a source, if its receiver sees it live and die.
    pub(super) fn lease(&self, number: SourceNumber) -> Option<&Arc<Lease>> {
        self.list.get(number as usize)?.as_ref()?.lease.as_ref()
    }

    /// The same for the source whose resource has this key.
    pub(super) fn lease_of_key(&self, resource: Key) -> Option<&Arc<Lease>> {
        self.lease(*self.index.get(&resource)?)
    }

    /// The resource of a source, and how often it reports.
    pub(super) fn source(&self, number: SourceNumber) -> Option<(Arc<Resource>, Cadence)> {
        let entry = self.list.get(number as usize)?.as_ref()?;
        Some((entry.resource.clone(), entry.cadence))
    }
}
