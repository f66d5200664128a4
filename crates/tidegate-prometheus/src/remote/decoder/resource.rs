// SPDX-License-Identifier: Apache-2.0

//! Resources: one for each job and instance, with the attributes from `target_info`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tidegate_engine::{AttributeRef, Attributes, AttributesBuilder, Key, Resource};

/// The number of places that are kept beyond twice the used ones.
const SPARE: usize = 1024;

/// The place of a resource, whose attributes may change.
#[derive(Debug)]
pub(super) struct ResourceSlot {
    /// Changes with the resource.
    pub(super) version: AtomicU64,
    identity: Attributes,
    resource: Mutex<Arc<Resource>>,
}

impl ResourceSlot {
    /// The current resource, and its version.
    pub(super) fn resource(&self) -> (Arc<Resource>, u64) {
        let resource = self.resource.lock();
        (resource.clone(), self.version.load(Relaxed))
    }

    /// The resource that has these attributes besides those that job and instance are.
    pub(super) fn with(&self, info: &Attributes) -> Arc<Resource> {
        Arc::new(Resource {
            attributes: self.identity.merge(info),
            schema_url: "".into(),
        })
    }

    /// Replaces the resource.
    pub(super) fn replace(&self, told: &Arc<Resource>) {
        let mut resource = self.resource.lock();
        if !Arc::ptr_eq(&resource, told) && **resource != **told {
            *resource = told.clone();
            self.version.fetch_add(1, Relaxed);
        }
    }
}

/// All resources, by job and instance. A place stays as long as a known series has it, because two places for one
/// resource would not share updates.
#[derive(Default)]
pub(super) struct Resources(Mutex<ResourceSlots>);

#[derive(Default)]
struct ResourceSlots {
    places: HashMap<Key, Weak<ResourceSlot>>,
    /// The number of used places at the last count.
    used: usize,
}

impl Resources {
    /// The place of the resource of this job and instance.
    pub(super) fn of(&self, job: &str, instance: &str, builder: &mut AttributesBuilder) -> Arc<ResourceSlot> {
        let key = Key::of_value(&(job, instance));
        let mut all = self.0.lock();
        if let Some(place) = all.places.get(&key).and_then(Weak::upgrade) {
            return place;
        }
        if all.places.len() > 2 * all.used + SPARE {
            all.places.retain(|_, place| place.strong_count() > 0);
            all.used = all.places.len();
        }
        let place = Arc::new(new_slot(job, instance, builder));
        all.places.insert(key, Arc::downgrade(&place));
        place
    }
}

fn new_slot(job: &str, instance: &str, builder: &mut AttributesBuilder) -> ResourceSlot {
    // `namespace/name` is the job of OTLP exporters. A job with more slashes is another one.
    let (namespace, name) = match job.split_once('/') {
        Some((namespace, name)) if !name.contains('/') => (namespace, name),
        _ => ("", job),
    };
    let all = [
        ("service.namespace", namespace),
        ("service.name", name),
        ("service.instance.id", instance),
    ];
    for (key, value) in all.into_iter().filter(|(_, value)| !value.is_empty()) {
        builder.push(key, AttributeRef::Str(value));
    }
    let identity = builder.finish();
    ResourceSlot {
        version: AtomicU64::new(0),
        resource: Mutex::new(Arc::new(Resource {
            attributes: identity.clone(),
            schema_url: "".into(),
        })),
        identity,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_places_are_forgotten() {
        let resources = Resources::default();
        let mut builder = AttributesBuilder::default();
        let kept = resources.of("j", "kept", &mut builder);
        for instance in 0..10_000 {
            resources.of("j", &instance.to_string(), &mut builder);
        }
        assert!(Arc::ptr_eq(&kept, &resources.of("j", "kept", &mut builder)));
        let places = resources.0.lock().places.len();
        assert!(places <= SPARE + 3, "{places}");
    }
}
