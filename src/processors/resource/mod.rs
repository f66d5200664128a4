// SPDX-License-Identifier: Apache-2.0

//! `resource`: changes the attributes of resources, in place on the wire.

use std::sync::Arc;

use tidegate_engine::{Attributes, Resource, Schema, Series, Source};

use super::actions::Action;
use super::editing::{Edit, Editing, RESOURCE_ATTRIBUTES, SeriesEdit, edit_set, encoded_resource};
use crate::batch::wire::attributes::WireAttributes;
use crate::batch::wire::edit::Editor;
use crate::batch::wire::walk::{Header, Visitor};
use crate::batch::{ClientMetadata, Signal};
use crate::component::{ConfigType, Factory, ProcessorFactory, Stability};
use crate::config::{Node, Problems};

crate::options! {
    /// Options of the `resource` processor.
    pub struct ResourceProcessorConfig {
        /// Actions, in this order.
        pub attributes: Vec<Action> = Vec::new(),
    }
    check = ResourceProcessorConfig::check
}

impl ResourceProcessorConfig {
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
    stability: &[
        (Signal::Metrics, Stability::Beta),
        (Signal::Traces, Stability::Beta),
        (Signal::Logs, Stability::Beta),
    ],
    help: "inserts, updates, deletes, hashes and converts resource attributes",
    errors: &[],
    config: ConfigType::of::<ResourceProcessorConfig>(),
    build: |settings, cx| {
        let edit = ResourceEdit {
            config: settings.get(),
        };
        Ok(Arc::new(Editing::new(edit, cx.next, cx.ledger)))
    },
};

struct ResourceEdit {
    config: Arc<ResourceProcessorConfig>,
}

impl ResourceEdit {
    fn edited(&self, resource: &Resource, client: Option<&ClientMetadata>) -> Option<Arc<Resource>> {
        let attributes = edit_set(&resource.attributes, &self.config.attributes, client)?;
        Some(Arc::new(Resource {
            attributes,
            schema_url: resource.schema_url.clone(),
        }))
    }
}

impl Edit for ResourceEdit {
    fn on_wire<'a>(&'a self, client: Option<&'a ClientMetadata>) -> Box<dyn Visitor + 'a> {
        Box::new(WireEdit {
            actions: &self.config.attributes,
            client,
        })
    }

    fn source(&self, source: &Source, schema: &Schema) -> Option<(Source, Schema)> {
        let source = Source {
            resource: self.edited(&source.resource, None)?,
            ..source.clone()
        };
        Some((source, schema.clone()))
    }

    fn series<'a>(&'a self, client: Option<&'a ClientMetadata>) -> SeriesEdit<'a> {
        // Consecutive points share their resource.
        let mut last: Option<(Arc<Resource>, Option<Arc<Resource>>)> = None;
        Box::new(move |series| {
            let resource = match &last {
                Some((known, edited)) if Arc::ptr_eq(known, &series.resource) => edited.clone(),
                _ => {
                    let edited = self.edited(&series.resource, client);
                    last = Some((series.resource.clone(), edited.clone()));
                    edited
                }
            }?;
            Some(Series {
                resource,
                ..series.clone()
            })
        })
    }
}

struct WireEdit<'a> {
    actions: &'a [Action],
    client: Option<&'a ClientMetadata>,
}

impl Visitor for WireEdit<'_> {
    fn resource(&mut self, resource: &Header<'_>, editor: &mut Editor<'_>) -> bool {
        match resource.missing_at {
            None => {
                let mut set = WireAttributes::read(resource.message, RESOURCE_ATTRIBUTES, editor);
                for action in self.actions {
                    action.apply(&mut set, self.client);
                }
                set.write(editor);
            }
            Some(at) => {
                if let Some(attributes) = edit_set(&Attributes::default(), self.actions, self.client) {
                    editor.insert(at, &encoded_resource(&attributes));
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests;
