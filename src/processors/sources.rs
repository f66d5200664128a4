// SPDX-License-Identifier: Apache-2.0

//! A cache of edited sources of events, because a source sends many equal batches.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_engine::{Events, Schema, Source, SourceId};

/// The most sources in the cache. Beyond it, the cache is cleared.
const MAX_SOURCES: usize = 10_000;

/// With fewer sources, the cache keeps those that are gone.
const MIN_SWEPT: usize = 32;

/// The edited form of sources and schemas.
#[derive(Default)]
pub(in crate::processors) struct EditedSources {
    known: Mutex<KnownSources>,
}

#[derive(Default)]
struct KnownSources {
    edited: HashMap<SourceId, Edited>,
    /// The number of sources at which those that are gone leave.
    swept_at: usize,
}

#[derive(Clone)]
struct Edited {
    of: (Arc<Source>, Arc<Schema>),
    /// The version of the edit.
    version: u64,
    /// The edited form; `None` if nothing changed.
    to: Option<(Arc<Source>, Arc<Schema>)>,
}

impl Edited {
    /// Whether no receiver has the source any more: it has ended, or only the cache has it.
    fn is_gone(&self) -> bool {
        let source = &self.of.0;
        source.lease.is_ended() || Arc::strong_count(source) == 1
    }
}

impl EditedSources {
    /// The events with the source and schema from `edit`, or the same events if nothing changed.
    pub(in crate::processors) fn apply(
        &self,
        events: Arc<Events>,
        edit: impl FnOnce(&Source, &Schema) -> Option<(Source, Schema)>,
    ) -> Arc<Events> {
        self.apply_version(0, events, edit)
    }

    /// The same for an edit that changes with time. Each version of it edits a source once. A source with the same
    /// edited form in two versions keeps it.
    pub(in crate::processors) fn apply_version(
        &self,
        version: u64,
        events: Arc<Events>,
        edit: impl FnOnce(&Source, &Schema) -> Option<(Source, Schema)>,
    ) -> Arc<Events> {
        let Some((source, schema)) = self.look_up(version, &events, edit) else {
            return events;
        };
        // Columns are copied only if they are shared.
        let mut events = Arc::unwrap_or_clone(events);
        (events.source, events.schema) = (source, schema);
        Arc::new(events)
    }

    fn look_up(
        &self,
        version: u64,
        events: &Events,
        edit: impl FnOnce(&Source, &Schema) -> Option<(Source, Schema)>,
    ) -> Option<(Arc<Source>, Arc<Schema>)> {
        let mut known = self.known.lock();
        let before = known.edited.get(&events.source.id).filter(|edited| {
            Arc::ptr_eq(&edited.of.0, &events.source) && Arc::ptr_eq(&edited.of.1, &events.schema)
        });
        if let Some(edited) = before
            && edited.version == version
        {
            return edited.to.clone();
        }
        let to = edit(&events.source, &events.schema);
        let same = before
            .and_then(|edited| edited.to.clone())
            .filter(|old| to.as_ref().is_some_and(|new| is_same(old, new)));
        let edited = Edited {
            of: (events.source.clone(), events.schema.clone()),
            version,
            to: same.or_else(|| to.map(|(source, schema)| (Arc::new(source), Arc::new(schema)))),
        };
        known.insert(events.source.id, edited.clone());
        edited.to
    }
}

impl KnownSources {
    fn insert(&mut self, id: SourceId, edited: Edited) {
        if self.edited.len() >= self.swept_at {
            self.edited.retain(|_, edited| !edited.is_gone());
            // So at least half of the sources that the next sweep looks at are new.
            self.swept_at = (2 * self.edited.len()).clamp(MIN_SWEPT, MAX_SOURCES);
        }
        if self.edited.len() >= MAX_SOURCES {
            self.edited.clear();
        }
        self.edited.insert(id, edited);
    }
}

fn is_same(old: &(Arc<Source>, Arc<Schema>), new: &(Source, Schema)) -> bool {
    let (source, schema) = new;
    let is_same_source = old.0.resource == source.resource
        && old.0.scope == source.scope
        && old.0.attributes == source.attributes
        && Arc::ptr_eq(&old.0.lease, &source.lease);
    is_same_source && *old.1 == *schema
}

#[cfg(test)]
mod tests {
    use tidegate_engine::Instrument;

    use super::*;
    use crate::processors::testing::{events, kind};

    #[test]
    fn sources_that_are_gone_leave_the_cache() {
        let sources = EditedSources::default();
        let edit = |source: &Source, schema: &Schema| Some((source.clone(), schema.clone()));
        let batch = || Arc::new(events("a", vec![kind("k", Instrument::Counter, &[])], &[(0, 1)]));
        let lasting = batch();
        let first = sources.apply(lasting.clone(), edit);
        let mut ended = Vec::new();
        for _ in 0..10 * MIN_SWEPT {
            sources.apply(batch(), edit);
            let batch = batch();
            sources.apply(batch.clone(), edit);
            batch.source.lease.end();
            ended.push(batch);
        }
        assert!(sources.known.lock().edited.len() <= MIN_SWEPT + 1);
        let again = sources.apply(lasting.clone(), |_, _| panic!("its source is known"));
        assert!(Arc::ptr_eq(&first.source, &again.source));
    }
}
