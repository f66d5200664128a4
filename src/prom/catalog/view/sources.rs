//! Who reports the series that a query selects.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tidegate_engine::query::{Labels, NAME, Query, Selection};
use tidegate_engine::{Key, Resource, UnixNanos};

use super::View;
use super::entry::{Entry, Look};
use super::state::State;
use crate::component::{Evaluation, SelectedSource};
use crate::prom::labels::{instance, job};

/// The gauge that a scrape says its success by: 0 after a failed one.
const UP: &str = "up";

impl View {
    /// Says of an evaluation who reports what the query selects.
    pub(super) fn say_sources(&self, query: &Query, now: UnixNanos, evaluation: &mut Evaluation) {
        let ups = self.names_of_gauge(UP);
        let look = self.look(now, false);
        let state = self.state();
        evaluation.sources = state.sources(&query.selections(), look);
        evaluation.failed = state.failed(&ups);
    }

    /// What a query selects, and what tells how its sources are.
    pub(super) fn selections_with_sources(&self, query: &Query) -> Vec<Selection> {
        let ups = self.names_of_gauge(UP).into_iter();
        let ups = ups.filter_map(|name| Query::parse(&format!("{{{NAME}={name:?}}}")).ok());
        let ups: Vec<Selection> = ups.flat_map(|up| up.selections()).collect();
        query.selections().into_iter().chain(ups).collect()
    }
}

impl State {
    /// The sources of the series that one of these selections accepts.
    fn sources(&self, selections: &[Selection], look: Look<'_>) -> Vec<SelectedSource> {
        let mut senders: HashMap<*const Resource, Sender> = HashMap::new();
        let mut sources: HashMap<Key, SelectedSource> = HashMap::new();
        for (entry, number) in selections.iter().flat_map(|selection| self.live(selection)) {
            if !entry.has_source() {
                continue;
            }
            let resource = &entry.series.resource;
            let sender = senders
                .entry(Arc::as_ptr(resource))
                .or_insert_with(|| Sender::of(resource, look));
            let key = key(&number.labels, resource);
            let known = sources.entry(key).or_insert(SelectedSource {
                key,
                seen: 0,
                lease: sender.lease,
            });
            known.seen = known.seen.max(entry.times.seen).max(sender.seen);
        }
        sources.into_values().collect()
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

/// What is known of a resource.
struct Sender {
    /// When it was last heard of; 0: it is made by a rule, and only its series tell.
    seen: UnixNanos,
    lease: u64,
}

impl Sender {
    fn of(resource: &Resource, look: Look<'_>) -> Self {
        let (seen, lease) = look.senders.heard(resource);
        let is_somebody = job(resource).is_some() || !instance(resource).is_empty();
        Self {
            seen: if is_somebody { seen } else { 0 },
            lease,
        }
    }
}

impl Entry {
    /// Whether it comes from somewhere: composites are made here.
    fn has_source(&self) -> bool {
        self.place.is_some() || !self.series.resource.attributes.is_empty()
    }
}

/// Stands for a source: for its job and instance, which rules keep, or for its resource where it has neither.
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
