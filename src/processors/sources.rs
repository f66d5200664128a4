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
        let Some((source, schema)) = self.look_up(&events, edit) else {
            return events;
        };
        // Columns are copied only if they are shared.
        let mut events = Arc::unwrap_or_clone(events);
        (events.source, events.schema) = (source, schema);
        Arc::new(events)
    }

    fn look_up(
        &self,
        events: &Events,
        edit: impl FnOnce(&Source, &Schema) -> Option<(Source, Schema)>,
    ) -> Option<(Arc<Source>, Arc<Schema>)> {
        let mut known = self.known.lock();
        if let Some(edited) = known.get(&events.source.id)
            && Arc::ptr_eq(&edited.of.0, &events.source)
            && Arc::ptr_eq(&edited.of.1, &events.schema)
        {
            return edited.to.clone();
        }
        let to = edit(&events.source, &events.schema);
        let edited = Edited {
            of: (events.source.clone(), events.schema.clone()),
            to: to.map(|(source, schema)| (Arc::new(source), Arc::new(schema))),
        };
        if known.len() >= MAX_SOURCES {
            known.clear();
        }
        known.insert(events.source.id, edited.clone());
        edited.to
    }
}
