// SPDX-License-Identifier: Apache-2.0

//! `attributes`: changes the attributes of points, spans and log records, in place on the wire.

use std::sync::Arc;

use tidegate_engine::{Attributes, EventKind, Schema, Series, Source};

use super::actions::{Action, Decoded};
use super::editing::{Edit, Editing, SeriesEdit, edit_set};
use super::select::{IncludeExclude, Matcher, MeasuredItem, OnWire, Selector};
use crate::batch::wire::attributes::WireAttributes;
use crate::batch::wire::edit::Editor;
use crate::batch::wire::walk::{Header, Item, Level, Visitor};
use crate::batch::{ClientMetadata, Signal};
use crate::component::{ConfigType, Factory, ProcessorFactory, Stability};
use crate::config::{Node, Problems};

crate::options! {
    /// Options of the `attributes` processor.
    pub struct AttributesConfig {
        /// Actions, in this order.
        pub actions: Vec<Action> = Vec::new(),
        /// Items to change. Unset: all.
        pub include: Option<Selector> = None,
        /// Items to leave unchanged.
        pub exclude: Option<Selector> = None,
    }
    check = AttributesConfig::check
}

impl AttributesConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.actions.is_empty() {
            cx.at(at.child("actions")).error("must name at least one action");
        }
    }
}

/// The factory of `attributes`.
pub static FACTORY: ProcessorFactory = Factory {
    kind: "attributes",
    aliases: &[],
    stability: &[
        (Signal::Metrics, Stability::Beta),
        (Signal::Traces, Stability::Beta),
        (Signal::Logs, Stability::Beta),
    ],
    help: "inserts, updates, deletes, hashes and converts attributes of points, spans and log records",
    errors: &[],
    config: ConfigType::of::<AttributesConfig>(),
    build: |settings, cx| {
        let config = settings.get::<AttributesConfig>();
        let selects = IncludeExclude::new(config.include.as_ref(), config.exclude.as_ref(), cx.signal);
        let selects = selects.map_err(|error| cx.base.error(error))?;
        let edit = AttributeEdit { config, selects };
        Ok(Arc::new(Editing::new(edit, cx.next, cx.ledger)))
    },
};

struct AttributeEdit {
    config: Arc<AttributesConfig>,
    selects: IncludeExclude,
}

impl Edit for AttributeEdit {
    fn on_wire<'a>(&'a self, client: Option<&'a ClientMetadata>) -> Box<dyn Visitor + 'a> {
        Box::new(WireEdit {
            client,
            actions: &self.config.actions,
            matcher: Matcher::new(&self.selects),
        })
    }

    /// An action sees the attributes of a source and of its kinds as one set, so the kinds receive all of them.
    fn source(&self, source: &Source, schema: &Schema) -> Option<(Source, Schema)> {
        let mut matcher = Matcher::new(&self.selects);
        matcher.resource(&Decoded::new(&source.resource.attributes));
        matcher.scope(&source.scope);
        let mut changed = false;
        let kind = |kind: &EventKind| {
            let whole = source.attributes.merge(&kind.attributes);
            let edited = self.edited(&mut matcher, &kind.name, &whole, None);
            changed |= edited.is_some();
            let attributes = edited.unwrap_or(whole);
            EventKind {
                attributes,
                ..kind.clone()
            }
        };
        let schema = Schema {
            kinds: schema.kinds.iter().map(kind).collect(),
        };
        let source = Source {
            attributes: Attributes::default(),
            ..source.clone()
        };
        changed.then_some((source, schema))
    }

    fn series<'a>(&'a self, client: Option<&'a ClientMetadata>) -> SeriesEdit<'a> {
        let mut matcher = Matcher::new(&self.selects);
        Box::new(move |series| {
            matcher.resource(&Decoded::new(&series.resource.attributes));
            matcher.scope(&series.scope);
            let attributes = self.edited(&mut matcher, &series.metric.name, &series.attributes, client)?;
            Some(Series {
                attributes,
                ..series.clone()
            })
        })
    }
}

impl AttributeEdit {
    fn edited(
        &self,
        matcher: &mut Matcher<'_>,
        name: &str,
        attributes: &Attributes,
        client: Option<&ClientMetadata>,
    ) -> Option<Attributes> {
        if matcher.item(&MeasuredItem { name, attributes }) {
            edit_set(attributes, &self.config.actions, client)
        } else {
            None
        }
    }
}

struct WireEdit<'a> {
    actions: &'a [Action],
    client: Option<&'a ClientMetadata>,
    matcher: Matcher<'a>,
}

impl Visitor for WireEdit<'_> {
    fn begin(&mut self, level: Level, message: &[u8]) {
        if level == Level::Scope {
            self.matcher.wire_scope(message);
        }
    }

    fn resource(&mut self, resource: &Header<'_>, editor: &mut Editor<'_>) -> bool {
        self.matcher.wire_resource(resource, editor);
        true
    }

    fn item(&mut self, item: &Item<'_>, editor: &mut Editor<'_>) -> bool {
        if self.matcher.item(&OnWire { item, editor }) {
            let mut set = WireAttributes::read(item.message, item.kind.attributes_field(), editor);
            for action in self.actions {
                action.apply(&mut set, self.client);
            }
            set.write(editor);
        }
        true
    }
}

#[cfg(test)]
mod tests;
