// SPDX-License-Identifier: Apache-2.0

//! A cache of edited sources of events, because a source sends many equal batches.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_engine::{Events, Schema, Source, SourceId};

/// The most sources in the cache. Beyond it, the cache is cleared.
const MAX_SOURCES: usize = 10_000;

/// The edited form of sources and schemas.
#[derive(Default)]
pub(in crate::processors) struct EditedSources {
    known: Mutex<HashMap<SourceId, Edited>>,
}

#[derive(Clone)]
struct Edited {
    of: (Arc<Source>, Arc<Schema>),
    /// The version of the edit.
    version: u64,
    /// The edited form; `None` if nothing changed.
    to: Option<(Arc<Source>, Arc<Schema>)>,
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
        let before = known.get(&events.source.id).filter(|edited| {
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
        if known.len() >= MAX_SOURCES {
            known.clear();
        }
        known.insert(events.source.id, edited.clone());
        edited.to
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
