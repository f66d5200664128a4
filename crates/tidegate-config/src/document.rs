// SPDX-License-Identifier: Apache-2.0

//! The configuration as a whole: sections of components, and the service that wires them.

use std::time::Duration;

use super::decode::{Decode, TypeHelp, wrong_type};
use super::id::{Class, ComponentId, PipelineId};
use super::node::{Node, quoted};
use super::problems::Problems;
use super::table::{Fields, OptionNames};
use super::units::Ordered;

/// A configuration whose components have not decoded their options yet.
#[derive(Clone, Debug)]
pub struct Document {
    /// The merged and substituted tree itself.
    pub root: Node,
    /// How the components are wired.
    pub service: Service,
    /// All defined components in written order.
    components: Vec<Component>,
}

/// One entry of `receivers`, `processors`, `exporters`, `connectors` or `extensions`.
#[derive(Clone, Debug)]
pub struct Component {
    /// Which section it stands in.
    pub class: Class,
    /// Its id.
    pub id: ComponentId,
    /// Its options, to be decoded by its factory; `cx.at_key(&options)` points at the id.
    pub options: Node,
}

/// The `service` section.
#[derive(Clone, Debug, Default)]
pub struct Service {
    /// Extensions to run, in the order to start them.
    pub extensions: Vec<Reference>,
    /// `service::telemetry`, if there.
    pub telemetry: Option<Node>,
    /// Pipelines in written order.
    pub pipelines: Vec<Pipeline>,
    /// `service::drain_timeout` (ours): how long a stop may take to hand on what is held.
    pub drain_timeout: Option<Duration>,
}

/// One pipeline.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// Its id.
    pub id: PipelineId,
    /// The whole entry; `cx.at_key(&node)` points at the id.
    pub node: Node,
    /// Receivers, and connectors that it is fed by.
    pub receivers: Vec<Reference>,
    /// Processors in the order of their work.
    pub processors: Vec<Reference>,
    /// Exporters, and connectors that it feeds.
    pub exporters: Vec<Reference>,
}

/// A component named by a pipeline or by `service::extensions`.
#[derive(Clone, Debug)]
pub struct Reference {
    /// The id.
    pub id: ComponentId,
    /// Where it is named.
    pub node: Node,
}

impl Document {
    /// The components of a class in written order.
    pub fn section(&self, class: Class) -> Vec<&Component> {
        let of_class = self.components.iter().filter(|c| c.class == class);
        of_class.collect()
    }

    /// A defined component.
    pub fn component(&self, class: Class, id: &ComponentId) -> Option<&Component> {
        let mut all = self.components.iter();
        all.find(|component| component.class == class && component.id == *id)
    }

    /// All defined components in written order, section by section.
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    pub(super) fn read(root: Node, cx: &mut Problems) -> Self {
        let mut components = Vec::new();
        let mut service = Service::default();
        if let Some(mut fields) = Fields::open::<Sections>(&root, cx) {
            for class in Class::ALL {
                let section = fields.optional(key(class.section()), Ordered::<Node>::default());
                let section = section.unwrap_or_default();
                read_section(class, section, fields.problems(), &mut components);
            }
            let node = fields.optional(key("service"), None::<Node>);
            fields.finish();
            service = node
                .flatten()
                .map(|node| Service::read(&node, cx))
                .unwrap_or_default();
        }
        Self {
            root,
            service,
            components,
        }
    }
}

fn read_section(class: Class, section: Ordered<Node>, cx: &mut Problems, components: &mut Vec<Component>) {
    let first = components.len();
    for (key, options) in section.0 {
        let Some(id) = parse_id::<ComponentId>(&key, &options, cx) else {
            cx.unread(&options);
            continue;
        };
        if components[first..].iter().any(|known| known.id == id) {
            let message = format!("another {class} has the same id {}", quoted(&key));
            cx.at_key(&options).error(message);
            cx.unread(&options);
            continue;
        }
        components.push(Component { class, id, options });
    }
}

impl Service {
    fn read(node: &Node, cx: &mut Problems) -> Self {
        let Some(mut fields) = Fields::open::<Sections>(node, cx) else {
            return Self::default();
        };
        let extensions = fields.optional(key("extensions"), References::default());
        let telemetry = fields.optional(key("telemetry"), None);
        let pipelines = fields.optional(key("pipelines"), Ordered::<Node>::default());
        let drain_timeout = fields.optional(key("drain_timeout"), None);
        fields.finish();
        let pipelines = pipelines.unwrap_or_default().0;
        let (pipelines, omitted): (Vec<_>, Vec<_>) =
            pipelines.into_iter().partition(|(id, _)| !is_of_profiles(id));
        for (_, node) in &omitted {
            cx.at_key(node)
                .help("profiles are not supported; the other pipelines run")
                .warning("this pipeline is ignored");
        }
        if let [(_, node), ..] = omitted.as_slice()
            && pipelines.is_empty()
        {
            cx.at_key(node)
                .help("tidegate carries metrics, traces and logs")
                .error("there are only pipelines of profiles");
        }
        let pipelines = pipelines.into_iter();
        Self {
            extensions: extensions.unwrap_or_default().0,
            telemetry: telemetry.flatten(),
            drain_timeout: drain_timeout.flatten(),
            pipelines: pipelines
                .filter_map(|(id, node)| Pipeline::read(&id, node, cx))
                .collect(),
        }
    }
}

impl Pipeline {
    fn read(text: &str, node: Node, cx: &mut Problems) -> Option<Self> {
        let id = parse_id(text, &node, cx);
        let mut fields = Fields::open::<Sections>(&node, cx)?;
        let [receivers, processors, exporters] = ["receivers", "processors", "exporters"].map(|part| {
            let list = fields.optional(key(part), References::default());
            list.unwrap_or_default().0
        });
        fields.finish();
        Some(Self {
            id: id?,
            node,
            receivers,
            processors,
            exporters,
        })
    }
}

/// Whether a pipeline carries the Collector's fourth signal, which is in development there.
fn is_of_profiles(id: &str) -> bool {
    id.split('/').next() == Some("profiles")
}

fn parse_id<T>(text: &str, node: &Node, cx: &mut Problems) -> Option<T>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    text.parse()
        .map_err(|error| {
            let message = format!("invalid id {}: {error}", quoted(text));
            cx.at_key(node).error(message);
        })
        .ok()
}

fn key(field: &'static str) -> OptionNames {
    OptionNames::only(field)
}

/// A list of ids from which the malformed ones are removed after being reported, so that the
/// others are still checked.
#[derive(Default)]
struct References(Vec<Reference>);

impl Decode for References {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        let Some(nodes) = node.as_list() else {
            return wrong_type(node, cx);
        };
        let references = nodes.iter().filter_map(|node| {
            let text = String::decode(node, cx)?;
            let id = parse_id(&text, node, cx)?;
            let node = node.clone();
            Some(Reference { id, node })
        });
        Some(Self(references.collect()))
    }

    fn type_help() -> TypeHelp {
        TypeHelp::plain("list of component ids")
    }
}

/// Names the type of the maps read here in messages.
struct Sections;

impl Decode for Sections {
    fn decode(_: &Node, _: &mut Problems) -> Option<Self> {
        Some(Self)
    }

    fn type_help() -> TypeHelp {
        TypeHelp::plain("map")
    }
}
