// SPDX-License-Identifier: Apache-2.0

//! Finds the pod of a resource, and adds its attributes.

use std::net::IpAddr;
use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_engine::{AttributeValue, Attributes, Resource};

use super::association::Identification;
use super::config::MetadataField as Field;
use super::counters::{MatchCounters, Unmatched};
use super::pod::PodEntry;
use super::resource::{ResourceTexts, WireResource};
use super::rules::PodRules;
use super::table::{PodTable, RelatedEntry};
use crate::batch::wire::attributes::{AttributeSet, WireAttributes};
use crate::batch::wire::edit::Editor;
use crate::batch::wire::walk::{Header, Visitor};
use crate::component::Held;
use crate::processors::actions::Decoded;
use crate::processors::editing::{RESOURCE_ATTRIBUTES, encoded_resource};

/// Attributes of resources with the ids of workloads.
const WORKLOAD_UIDS: [Field; 4] = [
    Field::DeploymentUid,
    Field::StatefulSetUid,
    Field::DaemonSetUid,
    Field::JobUid,
];

/// The bytes of an added attribute beside its texts: tags and lengths.
const ATTRIBUTE_BYTES: usize = 24;

/// The bytes of an edited resource beside its attributes.
const RESOURCE_BYTES: usize = 64;

/// The copies of added attributes: the edit, and the edited message.
const COPIES: usize = 2;

/// Adds attributes to the resources of a batch.
pub(super) struct Enricher<'a> {
    pub(super) rules: &'a PodRules,
    /// `None`: only addresses are added.
    pub(super) table: Option<&'a PodTable>,
    /// The address of the connection.
    pub(super) peer: Option<IpAddr>,
    pub(super) counters: &'a MatchCounters,
}

/// The things to add to a resource.
#[derive(Default)]
struct Additions<'a> {
    /// It has the address of the pod.
    identification: Option<Identification>,
    pod: Option<&'a PodEntry>,
    cluster: Option<&'a (Arc<str>, Arc<str>)>,
    related: SmallVec<[&'a RelatedEntry; 4]>,
}

impl Additions<'_> {
    fn is_empty(&self) -> bool {
        self.identification.is_none() && self.pod.is_none() && self.related.is_empty()
    }
}

impl<'a> Enricher<'a> {
    /// The attributes of a resource with those of its pod. `None`: nothing is added.
    pub(super) fn enriched(&self, resource: &Resource) -> Option<Resource> {
        self.changed(resource, None)
    }

    /// The same within a reservation, for batches of many resources.
    pub(super) fn enriched_within(&self, resource: &Resource, held: &mut Held) -> Option<Resource> {
        self.changed(resource, Some(held))
    }

    fn changed(&self, resource: &Resource, held: Option<&mut Held>) -> Option<Resource> {
        let additions = self.additions(&resource.attributes, held)?;
        let mut set = Decoded::new(&resource.attributes);
        self.apply(&additions, &resource.attributes, &mut set);
        Some(Resource {
            attributes: set.changed()?,
            schema_url: resource.schema_url.clone(),
        })
    }

    /// Looks for the pod of a resource, reserves memory for its attributes, and counts the result. `None`: there is nothing
    /// to add, or no memory for it.
    fn additions(&self, resource: &dyn ResourceTexts, held: Option<&mut Held>) -> Option<Additions<'a>> {
        let identification = self.rules.associations.identify(resource, self.peer);
        let mut additions = Additions::default();
        let result = self.find(identification.as_ref(), &mut additions);
        let adds_ip = self.table.is_none() || self.rules.wants(&[Field::PodIp]);
        additions.identification = identification.filter(|found| adds_ip && found.ip().is_some());
        if let Some(table) = self.table.filter(|table| table.is_synced) {
            add_related(table, resource, &mut additions);
        }
        // An empty resource of two bytes may get hundreds.
        if let Some(held) = held.filter(|_| !additions.is_empty()) {
            let bytes = COPIES * self.bytes(&additions, resource) + RESOURCE_BYTES;
            if held.try_grow(bytes).is_err() {
                self.counters.count(Err(Unmatched::Memory));
                return None;
            }
        }
        self.counters.count(match result {
            Ok(()) => Ok(()),
            Err(_) if self.table.is_none() && additions.identification.is_some() => Ok(()),
            Err(why) => Err(why),
        });
        (!additions.is_empty()).then_some(additions)
    }

    fn find(&self, found: Option<&Identification>, additions: &mut Additions<'a>) -> Result<(), Unmatched> {
        let table = match self.table {
            Some(table) if !table.is_synced => return Err(Unmatched::NotSynced),
            Some(table) => table,
            None => return Err(Unmatched::NoIdentifier),
        };
        let found = found.ok_or(Unmatched::NoIdentifier)?;
        let pod = table.pods.get(&found.key[..]).ok_or(Unmatched::Unknown)?;
        if pod.is_ignored {
            return Err(Unmatched::Excluded);
        }
        additions.pod = Some(pod);
        additions.cluster = table.cluster.as_ref();
        Ok(())
    }

    /// The bytes of all additions.
    fn bytes(&self, additions: &Additions<'_>, resource: &dyn ResourceTexts) -> usize {
        let mut bytes = 0;
        self.each(additions, resource, &mut |name, value| {
            let text = match value {
                AttributeValue::Str(text) => text.len(),
                _ => 0,
            };
            bytes += name.len() + text + ATTRIBUTE_BYTES;
        });
        bytes
    }

    /// Adds what the resource lacks.
    fn apply(&self, additions: &Additions<'_>, resource: &dyn ResourceTexts, set: &mut dyn AttributeSet) {
        self.each(additions, resource, &mut |name, value| {
            let is_free = match set.get(name) {
                None | Some(AttributeValue::Empty) => true,
                Some(AttributeValue::Str(text)) => text.is_empty(),
                Some(_) => false,
            };
            if is_free {
                set.set(name, value);
            }
        });
    }

    /// Gives each addition to `add`.
    fn each(
        &self,
        additions: &Additions<'_>,
        resource: &dyn ResourceTexts,
        add: &mut dyn FnMut(&str, AttributeValue),
    ) {
        if let Some(ip) = additions.identification.as_ref().and_then(Identification::ip) {
            add(Field::PodIp.as_str(), ip.into());
        }
        if let Some(pod) = additions.pod {
            for (name, value) in &pod.attributes {
                add(name, AttributeValue::Str(value.clone()));
            }
            pod.each_of_container(resource, self.rules, add);
        }
        let related = additions.related.iter().flat_map(|entry| &entry.attributes);
        for (name, value) in additions.cluster.into_iter().chain(related) {
            add(name, AttributeValue::Str(value.clone()));
        }
    }
}

/// Adds the objects around the pod, or those that the resource itself names.
fn add_related<'a: 'r, 'r>(table: &'a PodTable, resource: &'r dyn ResourceTexts, to: &mut Additions<'a>) {
    let pod = to.pod;
    let mut add = |entry: Option<&'a Arc<RelatedEntry>>| to.related.extend(entry.map(|entry| &**entry));
    let name = |of_pod: Option<&'r str>, field: Field| {
        let name = of_pod.filter(|name| !name.is_empty());
        name.or_else(|| resource.text(field.as_str()))
    };
    if !table.namespaces.is_empty() {
        let name = name(pod.map(|pod| &*pod.namespace), Field::NamespaceName);
        add(name.and_then(|name| table.namespaces.get(name)));
    }
    if !table.nodes.is_empty() {
        let name = name(pod.map(|pod| &*pod.node), Field::NodeName);
        add(name.and_then(|name| table.nodes.get(name)));
    }
    if table.workloads.is_empty() {
        return;
    }
    match pod {
        Some(pod) => pod.workloads.iter().for_each(|uid| add(table.workloads.get(uid))),
        None => {
            let uids = WORKLOAD_UIDS
                .iter()
                .filter_map(|field| resource.text(field.as_str()));
            uids.for_each(|uid| add(table.workloads.get(uid)));
        }
    }
}

/// Edits resources on the wire.
pub(super) struct WireEnricher<'a> {
    pub(super) enricher: &'a Enricher<'a>,
    /// The memory of the additions.
    pub(super) held: &'a mut Held,
}

impl Visitor for WireEnricher<'_> {
    fn resource(&mut self, header: &Header<'_>, editor: &mut Editor<'_>) -> bool {
        let resource = WireResource(header.message);
        let Some(additions) = self.enricher.additions(&resource, Some(self.held)) else {
            return true;
        };
        match header.missing_at {
            None => {
                let mut set = WireAttributes::read(header.message, RESOURCE_ATTRIBUTES, editor);
                self.enricher.apply(&additions, &resource, &mut set);
                set.write(editor);
            }
            Some(at) => {
                let mut set = Decoded::new(&Attributes::default());
                self.enricher.apply(&additions, &resource, &mut set);
                if let Some(attributes) = set.changed() {
                    editor.insert(at, &encoded_resource(&attributes));
                }
            }
        }
        true
    }
}
