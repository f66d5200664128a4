// SPDX-License-Identifier: Apache-2.0

//! The sources of the series that a query selects.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use tidegate_engine::{Data, Key, Resource, UnixNanos};
use tidegate_promql::{Labels, NAME, Query, Selection};

use super::ended::{EndedLevel, MISSING_NS};
use super::entry::{Number, SeriesEntry, ViewPass};
use super::shared::SharedState;
use super::state::ViewState;
use super::{View, max_past_bytes_within};
use crate::labels::{instance, job};
use tidegate_pipeline::component::{Evaluation, SelectedSource};

/// The gauge that a scrape says its success by: 0 after a failed one.
const UP: &str = "up";

/// The gauges of one name that a selector accepts, as a whole. A composite's are not among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// The query name of the metric.
    pub name: String,
    /// The number of its sources, with the targets that had one of the gauges until a scrape failed, and with the sources
    /// that had one until their receiver saw them die. Without those that are dead for long, unless all of them are.
    pub expected: usize,
    /// The number of sources that report in time.
    pub reporting: usize,
}

impl View {
    /// The levels that a query selects, and how many of their sources are in time. Ask for
    /// [`View::selections_with_sources`] before.
    pub fn levels(&self, query: &Query, now: UnixNanos) -> Vec<Level> {
        let (ups, selections) = (self.names_of_ups(), query.selections());
        let failed_before = self.update_failed(&selections, &ups, now);
        let pass = self.pass(now, false);
        let state = self.state();
        let mut failed = state.failed(&ups);
        failed.extend(failed_before);
        let levels = selections
            .iter()
            .flat_map(|selection| state.levels(selection, &failed, pass));
        levels.collect()
    }

    /// The selected levels that are incomplete because scrapes of their targets fail, or because sources are dead. Without
    /// such levels, it reads no series.
    pub fn levels_of_failed(&self, query: &Query, now: UnixNanos) -> Vec<Level> {
        let selections = query.selections();
        let has_ended = self.state().has_ended(&selections);
        if !has_ended {
            return Vec::new();
        }
        self.refresh(now, &self.selections_of_ups());
        let ups = self.names_of_ups();
        let pass = self.pass(now, false);
        let state = self.state();
        let failed = state.failed(&ups);
        let mut incomplete = Vec::new();
        for selection in &selections {
            if state.lost(selection, &failed, pass).next().is_some() {
                incomplete.extend(state.levels(selection, &failed, pass));
            }
        }
        incomplete.retain(|level| level.reporting < level.expected);
        incomplete
    }

    /// Forgets the ended levels of sources that report, where no past is kept.
    pub(super) fn attend_ended(&self, now: UnixNanos) {
        let pass = self.pass(now, false);
        if !self.has_past() {
            // The limit may have changed.
            self.bound_past(max_past_bytes_within(self.memory.limit()));
        }
        if self.state().shared.ended.attend(pass.time) {
            return;
        }
        self.refresh(now, &self.selections_of_ups());
        let ups = self.names_of_ups();
        self.state().forget_ended(&ups, pass);
    }

    /// The names of the gauge that a scrape says its success by.
    pub(super) fn names_of_ups(&self) -> Vec<String> {
        self.names_of_gauge(UP)
    }

    /// The sources of the series that the query selects, the scrape targets whose last scrape failed, and the dead sources
    /// that had selected levels. Ask for
    /// [`View::selections_with_sources`] before.
    pub fn sources_of(&self, query: &Query, now: UnixNanos) -> Evaluation {
        let mut evaluation = Evaluation::default();
        self.add_sources(query, now, &mut evaluation);
        evaluation
    }

    /// Adds the sources of the series that the query selects to an evaluation.
    pub(super) fn add_sources(&self, query: &Query, now: UnixNanos, evaluation: &mut Evaluation) {
        let (ups, selections) = (self.names_of_ups(), query.selections());
        let failed_before = self.update_failed(&selections, &ups, now);
        let pass = self.pass(now, false);
        let state = self.state();
        let live = selections.iter().flat_map(|selection| state.live(selection));
        evaluation.sources = sources(live, &HashSet::new(), pass);
        evaluation.failed = state.failed(&ups);
        evaluation.failed.extend(failed_before);
        let living = evaluation.sources.iter().filter(|source| !source.is_dead);
        let living: HashSet<Key> = living.map(|source| source.key).collect();
        let none = HashSet::new();
        for selection in &selections {
            let dead = state.lost(selection, &none, pass).map(|(_, source)| source);
            evaluation
                .failed
                .extend(dead.filter(|source| !living.contains(source)));
        }
    }

    /// Reads the state of all targets again if selected levels have ended, and gives the targets that failed before that. A
    /// failed scrape reports its failure before it ends its series. So a reader that misses a level finds the failure now. One
    /// that misses a level of a target that is back since then finds the failure in what it gives.
    fn update_failed(&self, selections: &[Selection], ups: &[String], now: UnixNanos) -> HashSet<Key> {
        let (failed, has_ended) = {
            let state = self.state();
            (state.failed(ups), state.has_ended(selections))
        };
        if has_ended {
            self.refresh(now, &self.selections_of_ups());
        }
        failed
    }

    /// The selections of a query, with selections for the state of their sources.
    pub fn selections_with_sources(&self, query: &Query) -> Vec<Selection> {
        let ups = self.selections_of_ups().into_iter();
        query.selections().into_iter().chain(ups).collect()
    }

    fn selections_of_ups(&self) -> Vec<Selection> {
        let ups = self.names_of_ups().into_iter();
        let ups = ups.filter_map(|name| Query::parse(&format!("{{{NAME}={name:?}}}")).ok());
        ups.flat_map(|up| up.selections()).collect()
    }
}

impl ViewState {
    /// Whether levels that these selections accept have ended lately, or because their sources fail.
    fn has_ended(&self, selections: &[Selection]) -> bool {
        let mut selections = selections.iter();
        selections.any(|selection| self.shared.ended.of(selection).next().is_some())
    }

    /// The levels that a selection accepts, with the sources that have lost theirs.
    fn levels(&self, selection: &Selection, failed: &HashSet<Key>, pass: ViewPass<'_>) -> Vec<Level> {
        let mut by_name: BTreeMap<&str, Vec<(&SeriesEntry, &Number)>> = BTreeMap::new();
        let levels = self.live(selection).filter(|(entry, _)| entry.is_level());
        levels.for_each(|(entry, number)| {
            let of_name = by_name.entry(number.labels.get(NAME)).or_default();
            of_name.push((entry, number));
        });
        let mut lost: HashMap<&str, HashSet<Key>> = HashMap::new();
        for (name, source) in self.lost(selection, failed, pass) {
            by_name.entry(name).or_default();
            lost.entry(name).or_default().insert(source);
        }
        let levels = by_name.into_iter().map(|(name, live)| {
            let sources = sources(live.into_iter(), failed, pass);
            let lost = lost.get(name).map_or(0, |lost| {
                let known: HashSet<Key> = sources.iter().map(|source| source.key).collect();
                lost.difference(&known).count()
            });
            let silence = |source: &SelectedSource| pass.now.saturating_sub(source.seen);
            let is_due = |source: &&SelectedSource| !source.is_dead && silence(source) <= source.lease;
            let is_expected = |source: &&SelectedSource| {
                !source.is_dead || failed.contains(&source.key) || silence(source) <= MISSING_NS
            };
            let expected = sources.iter().filter(is_expected).count() + lost;
            Level {
                name: name.to_owned(),
                // Where nobody is expected, the dead make the value.
                expected: if expected > 0 { expected } else { sources.len() },
                reporting: sources.iter().filter(is_due).count(),
            }
        });
        levels.filter(|level| level.expected > 0).collect()
    }

    /// The ended levels that a selection accepts and whose sources fail: their names and sources.
    fn lost<'a>(
        &'a self,
        selection: &'a Selection,
        failed: &'a HashSet<Key>,
        pass: ViewPass<'a>,
    ) -> impl Iterator<Item = (&'a str, Key)> {
        let ended = self.shared.ended.of(selection);
        ended
            .filter(move |(_, ended)| failed.contains(&ended.source) || ended.is_of_dead(pass.now))
            .map(|(labels, ended)| (labels.get(NAME), ended.source))
    }

    /// Forgets the ended levels of sources that report, and of those that have left: targets by discovery, and dead sources
    /// after some time. `ups`: how the gauge of targets is called.
    pub(super) fn forget_ended(&mut self, ups: &[String], pass: ViewPass<'_>) {
        if self.shared.ended.attend(pass.time) {
            return;
        }
        let failed = self.failed(ups);
        self.shared.forget_ended(pass.time, |ended| {
            failed.contains(&ended.source) || ended.is_of_dead(pass.now)
        });
    }

    /// The targets whose last scrape failed. `ups`: how their gauge is called.
    fn failed(&self, ups: &[String]) -> HashSet<Key> {
        let names: HashSet<&String> = ups.iter().collect();
        let entries = names.into_iter().flat_map(|name| self.named(name));
        let failed = entries.filter(|entry| &*entry.series.metric.name == UP);
        let failed = failed.flat_map(|entry| entry.numbers.iter().map(move |number| (entry, number)));
        failed
            .filter(|(_, number)| number.now.1.float() == Some(0.0))
            .map(|(entry, number)| key(&number.labels, &entry.series.resource))
            .collect()
    }
}

/// The sources of these series. Other reports of the targets in `failed` do not show that their series are in time.
fn sources<'a>(
    live: impl Iterator<Item = (&'a SeriesEntry, &'a Number)>,
    failed: &HashSet<Key>,
    pass: ViewPass<'_>,
) -> Vec<SelectedSource> {
    let mut senders: HashMap<*const Resource, ResourceState> = HashMap::new();
    let mut sources: HashMap<Key, SelectedSource> = HashMap::new();
    for (entry, number) in live.filter(|(entry, _)| entry.has_source()) {
        let resource = &entry.series.resource;
        let sender = senders
            .entry(Arc::as_ptr(resource))
            .or_insert_with(|| ResourceState::of(resource, pass));
        let key = key(&number.labels, resource);
        // What a receiver repeats of a dead one is no report.
        let report = if sender.is_dead { 0 } else { entry.times.seen };
        let found = SelectedSource {
            key,
            seen: if failed.contains(&key) {
                report
            } else {
                report.max(sender.seen)
            },
            lease: sender.lease,
            is_dead: sender.is_dead,
        };
        let known = sources.entry(key).or_insert(found);
        match (known.is_dead, found.is_dead) {
            // One of its resources lives, so those that are dead do not count.
            (true, false) => *known = found,
            (false, true) => {}
            _ => known.seen = known.seen.max(found.seen),
        }
    }
    sources.into_values().collect()
}

/// The state of a resource.
struct ResourceState {
    /// The last report; 0: a rule makes it, and only its series show its state.
    seen: UnixNanos,
    lease: u64,
    is_dead: bool,
}

impl ResourceState {
    fn of(resource: &Resource, pass: ViewPass<'_>) -> Self {
        let last = pass.senders.last_report(resource);
        let has_identity = job(resource).is_some() || !instance(resource).is_empty();
        Self {
            seen: if has_identity || last.sight.is_some() {
                last.seen
            } else {
                0
            },
            lease: last.lease,
            is_dead: last.is_dead(),
        }
    }
}

impl SeriesEntry {
    /// Whether it has a source. Composites are made here.
    fn has_source(&self) -> bool {
        self.place.is_some() || !self.series.resource.attributes.is_empty()
    }

    /// Notes that its values end: if they are levels, their source may fail from now on.
    pub(super) fn note_end(&self, pass: ViewPass<'_>, shared: &mut SharedState) {
        if self.place.is_none() || !self.is_level() {
            return;
        }
        let resource = &self.series.resource;
        let lease_of = || match pass.table {
            Some(table) => table.lease_of(resource),
            None => pass.senders.lease_of(resource),
        };
        let mut lease = None;
        for number in &self.numbers {
            shared.add_ended(number.labels.clone(), pass.time, || EndedLevel {
                source: key(&number.labels, resource),
                lease: lease.get_or_insert_with(lease_of).clone(),
                since: pass.time,
            });
        }
    }

    /// Whether it says how much there is at a time.
    fn is_level(&self) -> bool {
        matches!(
            self.series.metric.data,
            Data::Gauge | Data::Sum { monotonic: false, .. }
        )
    }
}

/// The key of a source: its job and instance, which rules keep, or else its resource.
fn key(labels: &Labels, resource: &Resource) -> Key {
    let (job, instance) = (labels.get("job"), labels.get("instance"));
    match (job, instance) {
        ("", "") => Key::of_value(resource),
        target => Key::of_value(&target),
    }
}

/// The labels without the name.
pub(super) fn unnamed(labels: &Labels) -> Labels {
    let rest = labels.iter().filter(|(name, _)| ***name != *NAME);
    rest.map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

#[cfg(test)]
mod tests;
