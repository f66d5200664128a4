// SPDX-License-Identifier: Apache-2.0

//! Applies an edit of attributes to a batch in any form, for `attributes` and `resource`, and what other editors share.

use std::sync::Arc;

use tidegate_engine::{Attributes, Schema, Series, Source};

use super::actions::{Action, Decoded};
use super::sources::EditedSources;
use crate::batch::wire::edit::push_message;
use crate::batch::wire::walk::{self, HEADER, Visitor};
use crate::batch::{Batch, ClientMetadata, Payload, Points};
use crate::component::{Consumer, Flow, Ledger, Lifecycle, Processor, Reason, Refused};

/// An edit of one of the sets of attributes that items have.
pub(super) trait Edit: Send + Sync {
    /// Edits requests in place. `client` is the kept metadata of the sender's request.
    fn on_wire<'a>(&'a self, client: Option<&'a ClientMetadata>) -> Box<dyn Visitor + 'a>;

    /// The edited source of events and its kinds; `None` if they stay unchanged. Events come without a request.
    fn source(&self, source: &Source, schema: &Schema) -> Option<(Source, Schema)>;

    /// Returns an edit for consecutive series.
    fn series<'a>(&'a self, client: Option<&'a ClientMetadata>) -> SeriesEdit<'a>;
}

/// Edits a series; `None` if it stays unchanged.
pub(super) type SeriesEdit<'a> = Box<dyn FnMut(&Series) -> Option<Series> + 'a>;

/// A processor that edits.
pub(super) struct Editing<E> {
    edit: E,
    sources: EditedSources,
    next: Arc<dyn Consumer>,
    ledger: Arc<Ledger>,
}

impl<E: Edit> Editing<E> {
    pub(super) fn new(edit: E, next: Arc<dyn Consumer>, ledger: Arc<Ledger>) -> Self {
        Self {
            edit,
            sources: EditedSources::default(),
            next,
            ledger,
        }
    }

    fn points(&self, points: &Points, client: Option<&ClientMetadata>) -> Points {
        let mut edit = self.edit.series(client);
        let edited = points.points.iter().map(|point| {
            let mut point = point.clone();
            if let Some(series) = edit(&point.series) {
                point.series = Arc::new(series);
            }
            point
        });
        Points {
            points: edited.collect(),
        }
    }
}

impl<E: Edit> Lifecycle for Editing<E> {}

impl<E: Edit> Processor for Editing<E> {
    fn edits(&self) -> bool {
        true
    }
}

impl<E: Edit> Consumer for Editing<E> {
    fn admit(&self, batch: &Batch, flow: &mut Flow) -> Result<(), Refused> {
        self.next.admit(batch, flow)
    }

    fn consume(&self, batch: Batch, flow: &mut Flow) {
        let client = batch.client.as_deref();
        let payload = match batch.payload {
            Payload::Encoded(encoded) => match walk::edit(&encoded, &mut *self.edit.on_wire(client)) {
                Ok(edited) => edited.into(),
                Err(_) => return self.ledger.drop_items(Reason::Invalid, encoded.items()),
            },
            Payload::Events(events) => {
                let edit = |source: &Source, schema: &Schema| self.edit.source(source, schema);
                Payload::Events(self.sources.apply(events, edit))
            }
            Payload::Points(points) => self.points(&points, client).into(),
        };
        self.next.consume(Batch { payload, ..batch }, flow);
    }

    fn absorbs(&self) -> bool {
        self.next.absorbs()
    }
}

/// Field number of `Resource.attributes`.
pub(super) const RESOURCE_ATTRIBUTES: u32 = 1;

/// A whole `resource` field.
pub(super) fn encoded_resource(attributes: &Attributes) -> Vec<u8> {
    let mut field = Vec::new();
    push_message(&mut field, HEADER, attributes.encoded());
    field
}

/// The set after the actions; `None` if it is unchanged.
pub(super) fn edit_set(
    attributes: &Attributes,
    actions: &[Action],
    client: Option<&ClientMetadata>,
) -> Option<Attributes> {
    let mut set = Decoded::new(attributes);
    for action in actions {
        action.apply(&mut set, client);
    }
    set.changed()
}
