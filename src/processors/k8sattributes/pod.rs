// SPDX-License-Identifier: Apache-2.0

//! A pod as resources need it: its keys and its attributes.

use std::borrow::Cow;
use std::sync::Arc;

use tidegate_engine::AttributeValue;
use tidegate_kubernetes::{Body, Container, Controller, Metadata, Pod, StoredObject};

use super::association::{PodPart, key_of, normalised_ip};
use super::config::{MetadataField as Field, ObjectSource};
use super::resource::ResourceTexts;
use super::rules::{AttributePairs, PairList, PodRules};
use crate::component::{Held, NoRoom};

/// The label of pods of a Deployment that ends the name of their ReplicaSet.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// The bytes of an entry beside its texts: its places in lists and maps, and its reservation.
const ENTRY_BYTES: usize = 1024;

/// The bytes of a place with a count and a header.
const PLACE_BYTES: usize = 48;

/// A pod.
pub(super) struct PodEntry {
    /// Whether it does not count. Then it has no attributes.
    pub(super) is_ignored: bool,
    /// When it started, as RFC 3339 has it, so that texts compare as times do.
    pub(super) started: Box<str>,
    pub(super) namespace: Box<str>,
    pub(super) node: Box<str>,
    /// The ids of its controller and of the controller of that.
    pub(super) workloads: Box<[Box<str>]>,
    pub(super) attributes: AttributePairs,
    containers: Box<[ContainerEntry]>,
    pub(super) keys: Box<[Arc<[u8]>]>,
    _held: Held,
}

/// A container of a pod.
struct ContainerEntry {
    name: Box<str>,
    /// Empty: it has never run.
    id: Arc<str>,
    restarts: u32,
    attributes: AttributePairs,
}

impl PodEntry {
    /// `above` is the controller of the pod's controller. `None`: the object is not a pod.
    ///
    /// # Errors
    /// Memory is short.
    pub(super) fn new(
        object: &StoredObject,
        above: Option<&Controller>,
        rules: &PodRules,
        mut held: Held,
    ) -> Result<Option<Self>, NoRoom> {
        let Body::Pod(pod) = &object.body else {
            return Ok(None);
        };
        let metadata = &object.metadata;
        held.try_grow(ENTRY_BYTES + 8 * object.bytes() + rules.most_bytes(metadata))?;
        let is_ignored = rules.ignores(metadata);
        let (attributes, containers) = if is_ignored {
            Default::default()
        } else {
            (
                attributes(metadata, pod, above, rules),
                containers(metadata, pod, rules),
            )
        };
        let controllers = metadata.controller.iter().chain(above);
        let started = [&pod.status.started, &metadata.created];
        let mut entry = Self {
            is_ignored,
            started: started
                .into_iter()
                .find(|text| !text.is_empty())
                .cloned()
                .unwrap_or_default(),
            namespace: metadata.namespace.clone(),
            node: pod.spec.node_name.clone(),
            workloads: controllers.map(|controller| controller.uid.clone()).collect(),
            keys: keys(metadata, pod, &attributes, &containers, rules),
            attributes,
            containers,
            _held: held.take(),
        };
        let bytes = entry.weight();
        entry._held.keep(bytes);
        Ok(Some(entry))
    }

    fn weight(&self) -> usize {
        let text = |text: &str| text.len() + PLACE_BYTES;
        let keys: usize = self.keys.iter().map(|key| key.len() + 2 * PLACE_BYTES).sum();
        let containers = self.containers.iter().map(|container| {
            text(&container.name) + text(&container.id) + weight_of(&container.attributes) + PLACE_BYTES
        });
        let workloads: usize = self.workloads.iter().map(|uid| text(uid)).sum();
        let texts = text(&self.started) + text(&self.namespace) + text(&self.node);
        ENTRY_BYTES + texts + keys + workloads + containers.sum::<usize>() + weight_of(&self.attributes)
    }

    /// Gives the attributes of the container of a resource to `add`.
    pub(super) fn each_of_container(
        &self,
        resource: &dyn ResourceTexts,
        rules: &PodRules,
        add: &mut dyn FnMut(&str, AttributeValue),
    ) {
        let Some(container) = self.container(resource) else {
            return;
        };
        for (name, value) in &container.attributes {
            add(name, AttributeValue::Str(value.clone()));
        }
        let wanted = rules
            .name(Field::ContainerId)
            .filter(|_| !container.id.is_empty());
        if let Some(name) = wanted
            && restarts(resource).is_none_or(|restarts| restarts == i64::from(container.restarts))
        {
            add(name, AttributeValue::Str(container.id.clone()));
        }
    }

    /// The container that the resource names, or the only one.
    fn container(&self, resource: &dyn ResourceTexts) -> Option<&ContainerEntry> {
        if let Some(name) = resource.text(Field::ContainerName.as_str()) {
            return self.containers.iter().find(|container| *container.name == *name);
        }
        if let Some(id) = resource.text(Field::ContainerId.as_str()) {
            return self.containers.iter().find(|container| *container.id == *id);
        }
        self.containers.first().filter(|_| self.containers.len() == 1)
    }
}

/// How often the container of the resource was started again, if the resource says so.
fn restarts(resource: &dyn ResourceTexts) -> Option<i64> {
    match resource.value("k8s.container.restart_count")? {
        AttributeValue::Int(count) => Some(count),
        AttributeValue::Str(text) => text.parse().ok(),
        _ => None,
    }
}

/// The bytes of attributes.
pub(super) fn weight_of(attributes: &AttributePairs) -> usize {
    let pairs = attributes.iter();
    pairs
        .map(|(name, value)| name.len() + value.len() + 3 * PLACE_BYTES)
        .sum()
}

fn attributes(
    metadata: &Metadata,
    pod: &Pod,
    above: Option<&Controller>,
    rules: &PodRules,
) -> AttributePairs {
    let mut list = PairList::default();
    for (field, value) in [
        (Field::PodName, &metadata.name),
        (Field::PodUid, &metadata.uid),
        (Field::PodStartTime, &metadata.created),
        (Field::PodHostname, &pod.spec.hostname),
        (Field::NamespaceName, &metadata.namespace),
        (Field::ServiceNamespace, &metadata.namespace),
        (Field::NodeName, &pod.spec.node_name),
        (Field::PodIp, &pod.status.pod_ip),
        (Field::ServiceName, &metadata.name),
    ] {
        rules.put(field, value, &mut list);
    }
    if let Some(controller) = &metadata.controller {
        put_controller(metadata, controller, above, rules, &mut list);
    }
    for (field, label) in [
        (Field::ServiceName, "app.kubernetes.io/name"),
        (Field::ServiceName, "app.kubernetes.io/instance"),
        (Field::ServiceVersion, "app.kubernetes.io/version"),
    ] {
        rules.put(field, metadata.labels.get(label).unwrap_or_default(), &mut list);
    }
    rules.put_labels(ObjectSource::Pod, metadata, &mut list);
    rules.put_named(metadata, &mut list);
    list.finish()
}

fn put_controller(
    metadata: &Metadata,
    controller: &Controller,
    above: Option<&Controller>,
    rules: &PodRules,
    list: &mut PairList,
) {
    let (name, uid) = (&*controller.name, &*controller.uid);
    let mut put = |name_field, uid_field, name: &str, uid: &str| {
        rules.put(name_field, name, list);
        rules.put(uid_field, uid, list);
        rules.put(Field::ServiceName, name, list);
    };
    match &*controller.kind {
        "ReplicaSet" => {
            put(Field::ReplicaSetName, Field::ReplicaSetUid, name, uid);
            let deployment = above.filter(|above| *above.kind == *"Deployment");
            let known = deployment.map(|above| (&*above.name, &*above.uid));
            let hash = metadata.labels.get(TEMPLATE_HASH);
            let guessed = deployment_of(name, hash).filter(|_| rules.name_from_replicaset);
            if let Some((name, uid)) = known.or_else(|| guessed.map(|name| (name, ""))) {
                put(Field::DeploymentName, Field::DeploymentUid, name, uid);
            }
        }
        "StatefulSet" => put(Field::StatefulSetName, Field::StatefulSetUid, name, uid),
        "DaemonSet" => put(Field::DaemonSetName, Field::DaemonSetUid, name, uid),
        "Job" => {
            put(Field::JobName, Field::JobUid, name, uid);
            let cronjob = above.filter(|above| *above.kind == *"CronJob");
            let known = cronjob.map(|above| (&*above.name, &*above.uid));
            if let Some((name, uid)) = known.or_else(|| cronjob_of(name).map(|name| (name, ""))) {
                put(Field::CronJobName, Field::CronJobUid, name, uid);
            }
        }
        _ => {}
    }
}

/// The name of the Deployment of a ReplicaSet, whose name ends with the hash of its pods.
fn deployment_of<'a>(replicaset: &'a str, hash: Option<&str>) -> Option<&'a str> {
    let hash = hash.filter(|hash| !hash.is_empty())?;
    replicaset.strip_suffix(hash)?.strip_suffix('-')
}

/// The name of the CronJob of a Job, whose name ends with its time in minutes.
fn cronjob_of(job: &str) -> Option<&str> {
    /// The digits of these minutes, until the year 2160.
    const DIGITS: usize = 8;
    let (name, minutes) = job.rsplit_once('-')?;
    let is_time = minutes.len() == DIGITS && minutes.bytes().all(|byte| byte.is_ascii_digit());
    is_time.then_some(name)
}

fn containers(metadata: &Metadata, pod: &Pod, rules: &PodRules) -> Box<[ContainerEntry]> {
    let all = pod.spec.containers.iter().chain(&pod.spec.init_containers);
    let statuses = || {
        let of_init = &pod.status.init_container_statuses;
        pod.status.container_statuses.iter().chain(of_init)
    };
    let entry = |container: &Container| {
        let status = statuses().find(|status| status.name == container.name);
        let id = status.map_or("", |status| &status.container_id);
        ContainerEntry {
            name: container.name.clone(),
            id: id.split_once("://").map_or(id, |(_, id)| id).into(),
            restarts: status.map_or(0, |status| status.restarts),
            attributes: container_attributes(metadata, container, rules),
        }
    };
    all.map(entry).collect()
}

fn container_attributes(metadata: &Metadata, container: &Container, rules: &PodRules) -> AttributePairs {
    let image = Image::of(&container.image);
    let mut list = PairList::default();
    rules.put(Field::ContainerName, &container.name, &mut list);
    rules.put(Field::ImageName, image.name, &mut list);
    rules.put(Field::ImageTag, image.tag_or_default(), &mut list);
    rules.put(Field::ServiceVersion, &image.version(), &mut list);
    if rules.wants(&[Field::ServiceInstanceId]) {
        let id = format!("{}.{}.{}", metadata.namespace, metadata.name, container.name);
        rules.put(Field::ServiceInstanceId, &id, &mut list);
    }
    list.finish()
}

/// The parts of the name of an image.
struct Image<'a> {
    name: &'a str,
    tag: &'a str,
    digest: &'a str,
}

impl<'a> Image<'a> {
    fn of(text: &'a str) -> Self {
        let (rest, digest) = text.split_once('@').unwrap_or((text, ""));
        // A colon before a slash belongs to the port of a registry.
        let tagged = rest.rsplit_once(':').filter(|(_, tag)| !tag.contains('/'));
        let (name, tag) = tagged.unwrap_or((rest, ""));
        Self { name, tag, digest }
    }

    fn tag_or_default(&self) -> &'a str {
        if self.tag.is_empty() && self.digest.is_empty() && !self.name.is_empty() {
            "latest"
        } else {
            self.tag
        }
    }

    fn version(&self) -> Cow<'a, str> {
        match (self.tag, self.digest) {
            (tag, "") => tag.into(),
            ("", digest) => digest.into(),
            (tag, digest) => format!("{tag}@{digest}").into(),
        }
    }
}

/// The keys by which a pod is found.
fn keys(
    metadata: &Metadata,
    pod: &Pod,
    attributes: &AttributePairs,
    containers: &[ContainerEntry],
    rules: &PodRules,
) -> Box<[Arc<[u8]>]> {
    let ip = normalised_ip(&pod.status.pod_ip);
    let value = |part: &PodPart, container: &ContainerEntry| -> Option<String> {
        let text = match part {
            PodPart::Ip => &*ip,
            PodPart::Name => &*metadata.name,
            PodPart::Namespace => &*metadata.namespace,
            PodPart::Uid => &*metadata.uid,
            PodPart::ContainerId => &*container.id,
            PodPart::Attribute(name) => {
                let mut all = attributes.iter();
                all.find(|(known, _)| **known == **name)
                    .map(|(_, value)| &**value)?
            }
        };
        (!text.is_empty()).then(|| text.to_owned())
    };
    let none = ContainerEntry {
        name: Box::default(),
        id: "".into(),
        restarts: 0,
        attributes: Box::default(),
    };
    let mut keys = Vec::new();
    for (number, parts) in rules.associations.parts() {
        // All pods in the network of a node have its address.
        if pod.spec.host_network && parts.iter().all(|part| *part == PodPart::Ip) {
            continue;
        }
        let of_containers = parts.contains(&PodPart::ContainerId);
        let each = if of_containers {
            containers
        } else {
            std::slice::from_ref(&none)
        };
        for container in each {
            let values: Option<Vec<_>> = parts.iter().map(|part| value(part, container)).collect();
            if let Some(values) = values {
                keys.push(key_of(number, values.iter().map(String::as_str)).into());
            }
        }
    }
    keys.into()
}
