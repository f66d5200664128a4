// SPDX-License-Identifier: Apache-2.0

//! The instances of a graph, and what each of them is built from.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_engine::Table;

use crate::component::{
    Connector, Downstream, DownstreamState, Exporter, Extension, Lifecycle, Processor, Receiver, Shared,
    TableHandle,
};
use crate::config::{Class, Node, NodeValue};
use crate::watch::Watched;

/// What an instance is built from. A reload keeps an instance whose parts stay equal.
#[derive(Clone, PartialEq)]
pub(super) struct Parts {
    /// The type, by its main name.
    pub(super) kind: &'static str,
    /// The options as written.
    pub(super) options: Node,
    /// The signals that come in, by `Signal as usize`.
    pub(super) takes: [bool; 3],
    /// The signals that go out.
    pub(super) gives: [bool; 3],
}

impl Parts {
    /// Whether the options name one of these extensions. A text that only happens to be equal counts too: then the
    /// instance is built again without need.
    pub(super) fn name_any(&self, extensions: &BTreeSet<String>) -> bool {
        !extensions.is_empty() && names_any(&self.options, extensions)
    }
}

/// Whether a text of the options is one of these ids.
pub(super) fn names_any(node: &Node, extensions: &BTreeSet<String>) -> bool {
    match node.value() {
        NodeValue::Scalar(scalar) => extensions.contains(&scalar.text),
        NodeValue::List(items) => items.iter().any(|item| names_any(item, extensions)),
        NodeValue::Map(entries) => entries.iter().any(|entry| names_any(&entry.value, extensions)),
    }
}

/// An instance of a component, by its class.
#[derive(Clone)]
pub(super) enum Instance {
    Extension(Arc<dyn Extension>),
    Exporter(Arc<dyn Exporter>),
    Connector(Arc<dyn Connector>),
    Processor(Arc<dyn Processor>),
    Receiver(Arc<dyn Receiver>),
}

impl Instance {
    fn lifecycle(&self) -> Arc<dyn Lifecycle> {
        match self {
            Self::Extension(one) => one.clone(),
            Self::Exporter(one) => one.clone(),
            Self::Connector(one) => one.clone(),
            Self::Processor(one) => one.clone(),
            Self::Receiver(one) => one.clone(),
        }
    }
}

/// A component instance in the graph. Clones share the instance.
#[derive(Clone)]
pub struct GraphMember {
    /// `receivers::nixl`, or `processors::batch@metrics` for an instance of a pipeline.
    pub path: Arc<str>,
    pub(super) class: Class,
    pub(super) parts: Parts,
    pub(super) instance: Instance,
    /// Its table, if it has one.
    pub(super) table: Option<TableHandle>,
    /// Where it pushes, by `Signal as usize`.
    pub(super) downstreams: [Option<Arc<Downstream>>; 3],
}

/// A member of a plan, whether it runs or not.
#[derive(Clone)]
pub(super) struct PlannedMember {
    pub(super) path: Arc<str>,
    parts: Parts,
}

impl PlannedMember {
    /// Whether a member has its path, and is built from the same.
    pub(super) fn is_like(&self, member: &GraphMember) -> bool {
        self.path == member.path && self.parts == member.parts
    }
}

impl GraphMember {
    /// What it is in its plan.
    pub(super) fn planned(&self) -> PlannedMember {
        PlannedMember {
            path: self.path.clone(),
            parts: self.parts.clone(),
        }
    }

    /// Starts and stops it.
    pub fn lifecycle(&self) -> Arc<dyn Lifecycle> {
        self.instance.lifecycle()
    }

    /// Whether both are the same instance.
    pub(super) fn is(&self, other: &Self) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.lifecycle()), Arc::as_ptr(&other.lifecycle()))
    }

    /// Whether it may run while another instance with its name ends.
    pub(super) fn may_overlap(&self) -> bool {
        match &self.instance {
            Instance::Exporter(one) => one.may_overlap(),
            Instance::Processor(one) => one.may_overlap(),
            Instance::Connector(_) => true,
            // They listen, or read what only one reader may read.
            Instance::Extension(_) | Instance::Receiver(_) => false,
        }
    }

    /// Whether its start takes over the state of the instance with its name, which has to stop before.
    pub(super) fn takes_over(&self) -> bool {
        match &self.instance {
            Instance::Processor(one) => one.takes_over(),
            _ => false,
        }
    }

    /// Whether files that its options name have changed since it was built.
    pub(super) fn is_outdated(&self) -> bool {
        match &self.instance {
            Instance::Extension(one) => one.is_outdated(),
            _ => false,
        }
    }

    /// Its table, for an instance that replaces it.
    pub(super) fn own_table(&self) -> Option<Arc<Table>> {
        match &self.instance {
            Instance::Exporter(one) => one.table().cloned(),
            Instance::Processor(one) => one.table().cloned(),
            Instance::Extension(_) | Instance::Connector(_) | Instance::Receiver(_) => None,
        }
    }

    /// Sets whether pushes may begin at its downstreams.
    pub(super) fn set_downstreams(&self, state: DownstreamState) {
        self.downstreams
            .iter()
            .flatten()
            .for_each(|downstream| downstream.set(state));
    }

    /// Sets whether queries see the tables of an exporter under its names.
    pub(super) fn set_exposed(&self, is_exposed: bool) {
        if let Instance::Exporter(one) = &self.instance {
            one.set_exposed(is_exposed);
        }
    }

    /// Lists the table and the composites of the member, which has started, and lets its readers see them.
    pub fn publish(&self, shared: &Shared) {
        self.table.iter().for_each(TableHandle::open);
        if let Some(table) = self.listed_table() {
            shared.tables.add(table);
        }
        for composite in self.lifecycle().composites() {
            shared.composites.add(composite.clone());
        }
    }

    /// Takes the table and the composites of the member, which has stopped, off the lists. Exporters that are still running
    /// show the table. Watchers of the composites stay until the gateway ends them. Composites in `kept` stay on the list:
    /// another member has them.
    pub fn withdraw(&self, shared: &Shared, kept: &[Arc<Watched>]) {
        if let Some(table) = self.listed_table() {
            shared.tables.remove(&table);
        }
        let is_gone = |one: &&Arc<Watched>| kept.iter().all(|other| !Arc::ptr_eq(other, one));
        for composite in self.lifecycle().composites().iter().filter(is_gone) {
            shared.composites.remove(composite);
        }
    }

    /// The table that the service lists for the member, if its handle is open. The table of a `rules` receiver is that of an
    /// extension, which the service lists for this one.
    pub(super) fn listed_table(&self) -> Option<Arc<Table>> {
        let handle = self.table.as_ref()?;
        (**handle.owner() == *self.path).then(|| handle.table()).flatten()
    }

    /// Whether it shows the table of another member.
    pub(super) fn shows_table_of(&self, other: &Self) -> bool {
        let tables = self.table.as_ref().zip(other.table.as_ref());
        tables.is_some_and(|(own, other)| own.has_table_of(other))
    }
}
