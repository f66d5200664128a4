// SPDX-License-Identifier: Apache-2.0

//! `target_info`: the further attributes of resources, one series a target.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tidegate_engine::{Attributes, Data, Metric, Resource, Scope, Series};
use tidegate_promql::{Labels, NAME};

use super::super::{Times, owner};
use super::entry::{Key, SeriesEntry, ViewPass};
use super::names::NameIndex;
use super::shared::SharedState;
use crate::Style;
use crate::labels::{instance, job};
use crate::name::Spelling;
use crate::render::TARGET_INFO;

/// The name of the series, `job` and `instance`.
type TargetIdentity = (String, String, String);

/// Entries by the target that they describe.
#[derive(Default)]
pub(super) struct Targets {
    known: BTreeMap<TargetIdentity, (u32, Labels)>,
    /// Places of entries that are free.
    free: Vec<u32>,
}

/// A resource that has a series.
struct Candidate {
    resource: Arc<Resource>,
    /// Whether one of them has a value.
    shows: bool,
    spelling: Spelling,
    times: Times,
    style: Arc<Style>,
}

/// Resources that have series, by their address.
#[derive(Default)]
pub(super) struct ResourceIndex {
    all: Vec<Candidate>,
    by_address: HashMap<(usize, usize), usize>,
    last: Option<usize>,
}

impl ResourceIndex {
    /// Adds the resource of a series whose latest value, if it has one, is of these times.
    pub(super) fn add_series(&mut self, entry: &SeriesEntry, style: &Arc<Style>) {
        let (series, times) = (&entry.series, entry.times);
        let shows = !entry.numbers.is_empty();
        let resource = &series.resource;
        let is_it = |known: &&mut Candidate| {
            Arc::ptr_eq(&known.resource, resource) && Arc::ptr_eq(&known.style, style)
        };
        let last = self.last.and_then(|at| self.all.get_mut(at)).filter(is_it);
        let known = match last {
            Some(known) => Some(known),
            None => {
                let address = (Arc::as_ptr(resource).addr(), Arc::as_ptr(style).addr());
                self.last = self.by_address.get(&address).copied();
                if self.last.is_none() {
                    self.by_address.insert(address, self.all.len());
                    self.last = Some(self.all.len());
                }
                self.last.and_then(|at| self.all.get_mut(at))
            }
        };
        match known {
            Some(known) => {
                known.times.time = known.times.time.max(times.time);
                known.times.seen = known.times.seen.max(times.seen);
                known.shows |= shows;
            }
            None => self.all.push(Candidate {
                resource: resource.clone(),
                shows,
                spelling: Spelling::of(&series.metric),
                times,
                style: style.clone(),
            }),
        }
    }

    /// The one resource that each target is described by.
    fn resolve(self, pass: ViewPass<'_>) -> BTreeMap<TargetIdentity, Candidate> {
        let mut targets: BTreeMap<TargetIdentity, Vec<Candidate>> = BTreeMap::new();
        for one in self.all {
            let Some(job) = job(&one.resource) else { continue };
            let name = one.style.naming.own(TARGET_INFO);
            let identity = (name, job, instance(&one.resource));
            targets.entry(identity).or_default().push(one);
        }
        let living = |mut candidates: Vec<Candidate>| {
            let lifetime = |one: &Candidate| pass.senders.lifetime_of(&one.resource);
            let at = match candidates.len() {
                1 => 0,
                _ => {
                    let lives: Vec<_> = candidates.iter().map(lifetime).enumerate().collect();
                    owner(&lives, pass.senders, pass.now).unwrap_or(0)
                }
            };
            candidates.swap_remove(at)
        };
        let shows = |candidates: &Vec<Candidate>| candidates.iter().any(|one| one.shows);
        let targets = targets.into_iter();
        let targets = targets.filter(|(_, candidates)| shows(candidates));
        targets
            .map(|(identity, candidates)| (identity, living(candidates)))
            .collect()
    }
}

impl Targets {
    /// Updates the targets to the resources found. Returns the entries of targets that are gone.
    pub(super) fn update(
        &mut self,
        found: ResourceIndex,
        pass: ViewPass<'_>,
        entries: &mut Vec<Option<SeriesEntry>>,
        source: u32,
        shared: &mut SharedState,
        names: &mut NameIndex,
    ) -> Vec<Key> {
        let targets = found.resolve(pass);
        let before = std::mem::take(&mut self.known);
        let mut gone = Vec::new();
        let mut free = std::mem::take(&mut self.free);
        for (identity, (at, labels)) in before {
            if targets.contains_key(&identity) {
                _ = self.known.insert(identity, (at, labels));
            } else {
                gone.push((source, at));
            }
        }
        for (identity, target) in targets {
            let pass = pass.of(&target.style);
            let Some(labels) = labels(&identity.0, &target) else {
                continue;
            };
            let at = match self.known.get(&identity) {
                Some((at, known)) if *known == labels => *at,
                known => {
                    let known = known.map(|(at, _)| *at);
                    let at = known.or_else(|| free.pop()).unwrap_or(entries.len() as u32);
                    self.known.insert(identity.clone(), (at, labels.clone()));
                    names.reset(&identity.0);
                    at
                }
            };
            let place = at as usize;
            if entries.len() <= place {
                entries.resize_with(place + 1, || None);
            }
            let name: Arc<str> = identity.0.as_str().into();
            let entry = entries[place].get_or_insert_with(|| {
                names.add(name.clone(), (source, at), Vec::new);
                SeriesEntry::of_target(series(&target.resource), name, pass)
            });
            entry.times = target.times;
            entry.observe_info((source, at), &labels, pass, shared);
        }
        self.free = free;
        self.free.extend(gone.iter().map(|(_, at)| *at));
        gone
    }
}

/// The labels of a target; `None`: it has no attributes beyond its identity.
fn labels(name: &str, target: &Candidate) -> Option<Labels> {
    let labels = target.style.labels_of_target(&target.resource, target.spelling)?;
    let name = (NAME.to_owned(), name.to_owned());
    Some(labels.into_pairs().into_iter().chain([name]).collect())
}

fn series(resource: &Arc<Resource>) -> Arc<Series> {
    Arc::new(Series {
        resource: resource.clone(),
        scope: Arc::new(Scope::default()),
        metric: Arc::new(Metric {
            name: TARGET_INFO.into(),
            description: "Target metadata".into(),
            unit: "".into(),
            data: Data::Gauge,
            metadata: Attributes::default(),
        }),
        attributes: Attributes::default(),
    })
}
