//! `resource`: changes the attributes of resources, in place on the wire.

use std::sync::Arc;

use tidegate_engine::{Attributes, Events, Point, Resource, Source};

use super::actions::{Action, Decoded};
use super::sources::EditedSources;
use crate::batch::wire::attributes::WireAttributes;
use crate::batch::wire::edit::{Editor, push_message};
use crate::batch::wire::walk::{self, HEADER, Header, Visitor};
use crate::batch::{Batch, Payload, Points, Signal};
use crate::component::{
    ConfigType, Consumer, Factory, Flow, Ledger, Lifecycle, Processor, ProcessorFactory, Reason, Refused,
    Stability,
};
use crate::config::{Node, Problems};

crate::options! {
    /// Options of the `resource` processor.
    pub struct Config {
        /// Actions, in the order in which they are done.
        pub attributes: Vec<Action> = Vec::new(),
    }
    check = Config::check
}

impl Config {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.attributes.is_empty() {
            cx.at(at.child("attributes"))
                .error("must name at least one action");
        }
    }
}

/// The factory of `resource`.
pub static FACTORY: ProcessorFactory = Factory {
    kind: "resource",
    aliases: &[],
    signals: &[
        (Signal::Metrics, Stability::Beta),
        (Signal::Traces, Stability::Beta),
        (Signal::Logs, Stability::Beta),
    ],
    help: "inserts, updates, deletes, hashes and converts resource attributes",
    config: ConfigType::of::<Config>(),
    build: |settings, cx| {
        let config = settings.get::<Config>();
        Ok(Arc::new(ResourceEdit {
            config,
            sources: EditedSources::default(),
            next: cx.next,
            ledger: cx.ledger,
        }))
    },
};

/// Field number of `Resource.attributes`.
const ATTRIBUTES: u32 = 1;

struct ResourceEdit {
    config: Arc<Config>,
    sources: EditedSources,
    next: Arc<dyn Consumer>,
    ledger: Arc<Ledger>,
}

impl Lifecycle for ResourceEdit {}
impl Processor for ResourceEdit {
    fn edits(&self) -> bool {
        true
    }
}

impl Consumer for ResourceEdit {
    fn admit(&self, batch: &Batch, flow: &mut Flow) -> Result<(), Refused> {
        self.next.admit(batch, flow)
    }

    fn consume(&self, batch: Batch, flow: &mut Flow) {
        let edited = match batch.payload {
            Payload::Encoded(encoded) => match walk::edit(&encoded, &mut WireEdit(&self.config.attributes)) {
                Ok(edited) => edited.into(),
                Err(_) => return self.ledger.drop_items(Reason::Invalid, encoded.items()),
            },
            Payload::Events(events) => Payload::Events(self.events(events)),
            Payload::Points(points) => self.points(&points).into(),
        };
        self.next.consume(
            Batch {
                payload: edited,
                ..batch
            },
            flow,
        );
    }
}

impl ResourceEdit {
    fn edited(&self, resource: &Arc<Resource>) -> Arc<Resource> {
        match edit_set(&resource.attributes, &self.config.attributes) {
            None => resource.clone(),
            Some(attributes) => Arc::new(Resource {
                attributes,
                schema_url: resource.schema_url.clone(),
            }),
        }
    }

    fn events(&self, events: Arc<Events>) -> Arc<Events> {
        self.sources.apply(events, |source, schema| {
            let resource = self.edited(&source.resource);
            let changed = !Arc::ptr_eq(&resource, &source.resource);
            let source = Source {
                resource,
                ..source.clone()
            };
            changed.then(|| (source, schema.clone()))
        })
    }

    fn points(&self, points: &Points) -> Points {
        // Points of a resource share it and follow one another.
        let mut last: Option<(Arc<Resource>, Arc<Resource>)> = None;
        let edit = |point: &Point| {
            let old = &point.series.resource;
            let new = match &last {
                Some((known, new)) if Arc::ptr_eq(known, old) => new.clone(),
                _ => {
                    let new = self.edited(old);
                    last = Some((old.clone(), new.clone()));
                    new
                }
            };
            let mut point = point.clone();
            if !Arc::ptr_eq(&new, old) {
                let mut series = (*point.series).clone();
                series.resource = new;
                point.series = Arc::new(series);
            }
            point
        };
        Points {
            points: points.points.iter().map(edit).collect(),
            table: None,
        }
    }
}

/// The set after the actions; `None` when it is as it was.
pub(super) fn edit_set(attributes: &Attributes, actions: &[Action]) -> Option<Attributes> {
    let mut set = Decoded::new(attributes);
    for action in actions {
        action.apply(&mut set);
    }
    set.changed()
}

struct WireEdit<'a>(&'a [Action]);

impl Visitor for WireEdit<'_> {
    fn resource(&mut self, resource: &Header<'_>, editor: &mut Editor<'_>) -> bool {
        match resource.missing_at {
            None => {
                let mut set = WireAttributes::read(resource.message, ATTRIBUTES, editor);
                for action in self.0 {
                    action.apply(&mut set);
                }
                set.write(editor);
            }
            Some(at) => {
                if let Some(attributes) = edit_set(&Attributes::default(), self.0) {
                    editor.insert(at, encoded_resource(&attributes));
                }
            }
        }
        true
    }
}

/// A whole `resource` field.
fn encoded_resource(attributes: &Attributes) -> Vec<u8> {
    use prost::Message;
    let mut message = Vec::new();
    for pair in crate::batch::convert::attributes_to_proto(attributes) {
        push_message(&mut message, ATTRIBUTES, &pair.encode_to_vec());
    }
    let mut field = Vec::new();
    push_message(&mut field, HEADER, &message);
    field
}

#[cfg(test)]
mod tests;
