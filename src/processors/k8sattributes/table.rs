// SPDX-License-Identifier: Apache-2.0

//! The pods by their keys, and the objects around them. Each change makes a new table of the parts that stay.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_kubernetes::{Controller, ObjectKind, StoredObject};

use super::config::{MetadataField as Field, ObjectSource};
use super::pod::{PodEntry, weight_of};
use super::rules::{AttributePairs, CLUSTER_NAMESPACE, PairList, PodRules};
use crate::component::{Account, Held, NoRoom};

/// The bytes of an entry of a map, in a map that is half empty.
const MAP_ENTRY_BYTES: usize = 96;

/// The attributes of an object around pods.
pub(super) struct RelatedEntry {
    pub(super) attributes: AttributePairs,
    _held: Held,
}

type RelatedMap = HashMap<Box<str>, Arc<RelatedEntry>>;

/// All pods and the objects around them.
#[derive(Default)]
pub(super) struct PodTable {
    /// Whether all pods are in it.
    pub(super) is_synced: bool,
    /// A number that no other table of this processor has.
    pub(super) version: u64,
    pub(super) pods: HashMap<Arc<[u8]>, Arc<PodEntry>>,
    /// By name.
    pub(super) namespaces: RelatedMap,
    /// By name.
    pub(super) nodes: RelatedMap,
    /// By id.
    pub(super) workloads: RelatedMap,
    /// The attribute with the id of the cluster.
    pub(super) cluster: Option<(Arc<str>, Arc<str>)>,
    _held: Option<Held>,
}

/// Objects of a kind.
pub(super) type Objects = (ObjectKind, Vec<Arc<StoredObject>>);

struct KnownPod {
    object: Arc<StoredObject>,
    /// The controller of its controller.
    above: Option<Controller>,
    entry: Arc<PodEntry>,
}

struct KnownRelated {
    object: Arc<StoredObject>,
    entry: Arc<RelatedEntry>,
}

/// A pod that is deleted.
struct DepartedPod {
    uid: Box<str>,
    until: Instant,
    entry: Arc<PodEntry>,
}

/// Makes tables. It keeps the parts of the last one.
pub(super) struct TableBuilder {
    rules: Arc<PodRules>,
    account: Arc<Account>,
    grace: Duration,
    version: u64,
    pods: HashMap<Box<str>, KnownPod>,
    related: HashMap<(ObjectKind, Box<str>), KnownRelated>,
    departed: Vec<DepartedPod>,
}

impl TableBuilder {
    pub(super) fn new(rules: Arc<PodRules>, account: Arc<Account>, grace: Duration) -> Self {
        Self {
            rules,
            account,
            grace,
            version: 0,
            pods: HashMap::new(),
            related: HashMap::new(),
            departed: Vec::new(),
        }
    }

    /// The number of pods, with those that are deleted but still found.
    pub(super) fn pods(&self) -> usize {
        self.pods.len() + self.departed.len()
    }

    /// When the next deleted pod is no longer found.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.departed.iter().map(|pod| pod.until).min()
    }

    /// Makes the table of these objects.
    ///
    /// # Errors
    /// Memory is short. The next call begins again.
    pub(super) fn build(&mut self, objects: &[Objects], now: Instant) -> Result<PodTable, NoRoom> {
        let pods = self.known_pods(objects)?;
        let related = self.known_related(objects)?;
        self.note_departed(&pods, now);
        (self.pods, self.related) = (pods, related);
        self.version += 1;
        self.table()
    }

    fn known_pods(&self, objects: &[Objects]) -> Result<HashMap<Box<str>, KnownPod>, NoRoom> {
        let owners = of_kinds(objects, &[ObjectKind::ReplicaSet, ObjectKind::Job]);
        let owners =
            owners.filter_map(|(_, owner)| Some((&*owner.metadata.uid, owner.metadata.controller.as_ref()?)));
        let owners: HashMap<&str, &Controller> = owners.collect();
        let mut pods = HashMap::new();
        for (_, object) in of_kinds(objects, &[ObjectKind::Pod]) {
            let controller = object.metadata.controller.as_ref();
            let above = controller.and_then(|controller| owners.get(&*controller.uid).copied());
            let uid = &object.metadata.uid;
            let known = self.pods.get(uid);
            let same =
                known.filter(|known| Arc::ptr_eq(&known.object, object) && known.above.as_ref() == above);
            let entry = match same {
                Some(known) => known.entry.clone(),
                None => {
                    let held = Held::new(self.account.clone());
                    let Some(entry) = PodEntry::new(object, above, &self.rules, held)? else {
                        continue;
                    };
                    Arc::new(entry)
                }
            };
            let pod = KnownPod {
                object: object.clone(),
                above: above.cloned(),
                entry,
            };
            pods.insert(uid.clone(), pod);
        }
        Ok(pods)
    }

    fn known_related(
        &self,
        objects: &[Objects],
    ) -> Result<HashMap<(ObjectKind, Box<str>), KnownRelated>, NoRoom> {
        let mut related = HashMap::new();
        for (kind, from) in [
            (ObjectKind::Namespace, ObjectSource::Namespace),
            (ObjectKind::Node, ObjectSource::Node),
            (ObjectKind::Deployment, ObjectSource::Deployment),
            (ObjectKind::StatefulSet, ObjectSource::StatefulSet),
            (ObjectKind::DaemonSet, ObjectSource::DaemonSet),
            (ObjectKind::Job, ObjectSource::Job),
        ] {
            for (_, object) in of_kinds(objects, &[kind]) {
                let key = (kind, object.metadata.uid.clone());
                let known = self.related.get(&key);
                let entry = match known.filter(|known| Arc::ptr_eq(&known.object, object)) {
                    Some(known) => known.entry.clone(),
                    None => Arc::new(self.related_entry(object, from)?),
                };
                let object = object.clone();
                related.insert(key, KnownRelated { object, entry });
            }
        }
        Ok(related)
    }

    fn related_entry(&self, object: &StoredObject, from: ObjectSource) -> Result<RelatedEntry, NoRoom> {
        let mut held = Held::new(self.account.clone());
        held.try_grow(MAP_ENTRY_BYTES + self.rules.most_bytes(&object.metadata))?;
        let mut list = PairList::default();
        if from == ObjectSource::Node {
            self.rules.put(Field::NodeUid, &object.metadata.uid, &mut list);
        }
        self.rules.put_labels(from, &object.metadata, &mut list);
        let attributes = list.finish();
        held.keep(2 * MAP_ENTRY_BYTES + weight_of(&attributes));
        Ok(RelatedEntry {
            attributes,
            _held: held,
        })
    }

    /// Pods that the objects lack are found for a while.
    fn note_departed(&mut self, pods: &HashMap<Box<str>, KnownPod>, now: Instant) {
        let gone = self.pods.drain().filter(|(uid, _)| !pods.contains_key(uid));
        let until = now + self.grace;
        self.departed.extend(gone.map(|(uid, known)| DepartedPod {
            uid,
            until,
            entry: known.entry,
        }));
        self.departed
            .retain(|pod| pod.until > now && !pods.contains_key(&pod.uid));
    }

    fn table(&self) -> Result<PodTable, NoRoom> {
        let departed = self.departed.iter().map(|pod| &pod.entry);
        // Of pods that started at the same time, those that live win.
        let entries = departed.chain(self.pods.values().map(|pod| &pod.entry));
        let keys: usize = entries.clone().map(|entry| entry.keys.len()).sum();
        let mut held = Held::new(self.account.clone());
        held.try_grow((keys + self.related.len() + 8) * MAP_ENTRY_BYTES)?;
        held.fill_to(held.bytes());
        let mut table = PodTable {
            is_synced: true,
            version: self.version,
            pods: HashMap::with_capacity(keys),
            _held: Some(held),
            ..PodTable::default()
        };
        for entry in entries {
            for key in &entry.keys {
                let known = table.pods.get(key);
                if known.is_none_or(|known| known.started <= entry.started) {
                    table.pods.insert(key.clone(), entry.clone());
                }
            }
        }
        for ((kind, uid), known) in &self.related {
            let metadata = &known.object.metadata;
            if *kind == ObjectKind::Namespace && *metadata.name == *CLUSTER_NAMESPACE {
                let name = self.rules.name(Field::ClusterUid);
                table.cluster = name.map(|name| (name.clone(), uid.as_ref().into()));
            }
            if known.entry.attributes.is_empty() {
                continue;
            }
            let (map, key) = match kind {
                ObjectKind::Namespace => (&mut table.namespaces, &metadata.name),
                ObjectKind::Node => (&mut table.nodes, &metadata.name),
                _ => (&mut table.workloads, uid),
            };
            map.insert(key.clone(), known.entry.clone());
        }
        Ok(table)
    }
}

/// The objects of some kinds.
fn of_kinds<'a>(
    objects: &'a [Objects],
    kinds: &'a [ObjectKind],
) -> impl Iterator<Item = (ObjectKind, &'a Arc<StoredObject>)> {
    let of_kinds = objects.iter().filter(|(kind, _)| kinds.contains(kind));
    of_kinds.flat_map(|(kind, objects)| objects.iter().map(|object| (*kind, object)))
}
