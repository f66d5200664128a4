//! Edited sources of events, remembered: a source sends many batches and looks the same in all of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_engine::{Events, Schema, Source, SourceId};

/// Sources remembered at most; beyond that all are forgotten and edited anew.
const MAX_SOURCES: usize = 10_000;

/// What became of a source and its schema.
#[derive(Default)]
pub(in crate::processors) struct EditedSources {
    known: Mutex<HashMap<SourceId, Edited>>,
}

#[derive(Clone)]
struct Edited {
    of: (Arc<Source>, Arc<Schema>),
    source: Arc<Source>,
    schema: Arc<Schema>,
}

impl EditedSources {
    /// The events with the source and schema that `edit` makes of theirs.
    pub(in crate::processors) fn apply(
        &self,
        events: &Events,
        edit: impl FnOnce(&Source, &Schema) -> (Source, Schema),
    ) -> Events {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |edited: &&Edited| {
            Arc::ptr_eq(&edited.of.0, &events.source) && Arc::ptr_eq(&edited.of.1, &events.schema)
        };
        let edited = match known.get(&events.source.id).filter(same) {
            Some(edited) => edited.clone(),
            None => {
                let (source, schema) = edit(&events.source, &events.schema);
                let of = (events.source.clone(), events.schema.clone());
                let edited = Edited {
                    of,
                    source: Arc::new(source),
                    schema: Arc::new(schema),
                };
                if known.len() >= MAX_SOURCES {
                    known.clear();
                }
                known.insert(events.source.id, edited.clone());
                edited
            }
        };
        Events {
            source: edited.source,
            schema: edited.schema,
            ..events.clone()
        }
    }
}
