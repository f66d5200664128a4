// SPDX-License-Identifier: Apache-2.0

//! Resources: one for each job and instance, with the attributes that `target_info` adds.

use std::collections::HashMap;
use std::sync::Arc;

use tidegate_engine::{Attributes, Resource};

use super::settings::Target;

#[derive(Debug)]
struct ResourceEntry {
    resource: Arc<Resource>,
    /// Changes with the resource. 0 before the end of the first page, when there is none.
    version: u32,
    /// The `target_info` of the resource at its creation.
    info: Option<Attributes>,
}

/// A line of `target_info`.
#[derive(Debug)]
struct Info {
    resource: u32,
    attributes: Attributes,
}

/// The resources of a target.
#[derive(Debug, Default)]
pub(super) struct Resources {
    entries: Vec<ResourceEntry>,
    /// Places of entries by job and instance.
    names: HashMap<(String, String), u32, foldhash::fast::RandomState>,
    free: Vec<u32>,
    infos: Vec<Info>,
    free_infos: Vec<u32>,
    /// The lines of `target_info` of this page and of the one that resources were made of.
    seen: Vec<u32>,
    last: Vec<u32>,
    /// Whether there are resources that have not been made.
    has_new: bool,
    /// The version that was given last.
    version: u32,
    /// The resource of no place.
    unknown: Arc<Resource>,
}

/// No resource.
const NONE: u32 = u32::MAX;

impl Resources {
    /// The number of known `target_info` lines.
    #[cfg(test)]
    pub(super) fn infos(&self) -> usize {
        self.infos.len() - self.free_infos.len()
    }

    /// A page begins.
    pub(super) fn begin(&mut self) {
        self.seen.clear();
    }

    /// The place of a resource.
    pub(super) fn of(&mut self, job: String, instance: String) -> u32 {
        let key = (job, instance);
        if let Some(at) = self.names.get(&key) {
            return *at;
        }
        let entry = ResourceEntry {
            resource: Arc::default(),
            version: 0,
            info: None,
        };
        let at = put(&mut self.entries, &mut self.free, entry);
        self.names.insert(key, at);
        self.has_new = true;
        at
    }

    /// The resource of a job and instance, if a page that has ended had it.
    pub(super) fn known(&self, job: &str, instance: &str) -> Option<Arc<Resource>> {
        let at = self.names.get(&(job.to_owned(), instance.to_owned()))?;
        let entry = self.entries.get(*at as usize)?;
        entry.info.is_some().then(|| entry.resource.clone())
    }

    /// The resource at a place, as it was at the end of the last page, and its version.
    #[inline]
    pub(super) fn get(&self, at: u32) -> (&Arc<Resource>, u32) {
        let entry = self.entries.get(at as usize);
        entry.map_or((&self.unknown, 0), |entry| (&entry.resource, entry.version))
    }

    /// Adds a line of `target_info`.
    pub(super) fn add_info(&mut self, resource: u32, attributes: Attributes) -> u32 {
        let info = Info { resource, attributes };
        put(&mut self.infos, &mut self.free_infos, info)
    }

    /// A line of `target_info` is on this page.
    pub(super) fn note_info(&mut self, info: u32) {
        self.seen.push(info);
    }

    /// Makes the resources of a page that has ended.
    pub(super) fn update(&mut self, target: &dyn Target) {
        if self.seen == self.last && !self.has_new {
            return;
        }
        self.has_new = false;
        std::mem::swap(&mut self.seen, &mut self.last);
        let mut infos: HashMap<u32, &Attributes> = HashMap::new();
        for info in self.last.iter().filter_map(|at| self.infos.get(*at as usize)) {
            // The first of two lines for one resource counts.
            infos.entry(info.resource).or_insert(&info.attributes);
        }
        for ((job, instance), at) in &self.names {
            let info = infos.remove(at).cloned().unwrap_or_default();
            let entry = self.entries.get_mut(*at as usize);
            let Some(entry) = entry.filter(|entry| entry.info.as_ref() != Some(&info)) else {
                continue;
            };
            entry.resource = Arc::new(Resource {
                attributes: target.resource(job, instance).merge(&info),
                schema_url: "".into(),
            });
            entry.info = Some(info);
            self.version = self.version.wrapping_add(1);
            entry.version = self.version;
        }
    }

    /// Forgets lines that are on no page any more, and resources that neither a series nor a line has.
    pub(super) fn sweep(&mut self, infos: impl Iterator<Item = u32>, resources: impl Iterator<Item = u32>) {
        let mut stays = vec![false; self.infos.len()];
        for at in infos.chain(self.last.iter().copied()) {
            stays[at as usize] = true;
        }
        for (at, info) in (0u32..).zip(&mut self.infos) {
            if !stays[at as usize] && info.resource != NONE {
                (info.resource, info.attributes) = (NONE, Attributes::default());
                self.free_infos.push(at);
            }
        }
        let used = self
            .infos
            .iter()
            .map(|info| info.resource)
            .filter(|at| *at != NONE);
        let mut stays = vec![false; self.entries.len()];
        used.chain(resources).for_each(|at| stays[at as usize] = true);
        let free = &mut self.free;
        self.names.retain(|_, at| {
            let stays = stays[*at as usize];
            if !stays {
                free.push(*at);
            }
            stays
        });
    }
}

/// Puts an item into a free slot, or at the end.
fn put<T>(list: &mut Vec<T>, free: &mut Vec<u32>, item: T) -> u32 {
    if let Some(at) = free.pop() {
        list[at as usize] = item;
        return at;
    }
    list.push(item);
    // A page is far shorter than 4 GiB.
    (list.len() - 1) as u32
}
