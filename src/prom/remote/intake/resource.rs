//! Resources: one for each job and instance, with what `target_info` says of it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_engine::{AttributeRef, Attributes, AttributesBuilder, Key, Resource};

use super::Generations;

/// Resources that a generation of the cache holds.
const GENERATION: usize = 10_000;

/// The place of a resource, which may come to be told otherwise.
#[derive(Debug)]
pub(super) struct Place {
    /// Changes with the resource.
    pub(super) version: AtomicU64,
    identity: Attributes,
    resource: Mutex<Arc<Resource>>,
}

impl Place {
    /// The resource as it is now, and the version that this is.
    pub(super) fn resource(&self) -> (Arc<Resource>, u64) {
        let resource = self.resource.lock().unwrap_or_else(PoisonError::into_inner);
        (resource.clone(), self.version.load(Relaxed))
    }

    /// It has these attributes besides those that job and instance are.
    pub(super) fn tell(&self, info: &Attributes) {
        let told = Resource {
            attributes: self.identity.merge(info),
            schema_url: "".into(),
        };
        let mut resource = self.resource.lock().unwrap_or_else(PoisonError::into_inner);
        if **resource != told {
            *resource = Arc::new(told);
            self.version.fetch_add(1, Relaxed);
        }
    }
}

/// All of them.
pub(super) struct Resources(Mutex<Generations<Arc<Place>>>);

impl Default for Resources {
    fn default() -> Self {
        Self(Mutex::new(Generations::new(GENERATION)))
    }
}

impl Resources {
    /// The place of the resource of this job and instance.
    pub(super) fn of(&self, job: &str, instance: &str, builder: &mut AttributesBuilder) -> Arc<Place> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut made = None;
        let make = || {
            made = Some(Arc::new(place(job, instance, builder)));
            made.clone()
        };
        let found = places
            .get(Key::of_value(&(job, instance)), |_| 1, make)
            .map(|place| place.clone());
        // `make` always makes one.
        found.unwrap_or_else(|| Arc::new(place("", "", &mut AttributesBuilder::default())))
    }
}

fn place(job: &str, instance: &str, builder: &mut AttributesBuilder) -> Place {
    // `namespace/name`, as exporters of OTLP make jobs. More slashes are somebody else's.
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
    Place {
        version: AtomicU64::new(0),
        resource: Mutex::new(Arc::new(Resource {
            attributes: identity.clone(),
            schema_url: "".into(),
        })),
        identity,
    }
}
