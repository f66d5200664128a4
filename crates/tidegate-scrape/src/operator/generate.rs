// SPDX-License-Identifier: Apache-2.0

//! Objects to jobs, within limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tidegate_kubernetes::{Body, ObjectKind, StoredObject};

use super::draft::{Generated, Origin};
use super::values::Values;
use super::{monitors, scrape_configs};
use crate::config::operator::PrometheusCrConfig;
use tidegate_pipeline::component::{Account, Held};

/// The most objects of a kind.
const MAX_OBJECTS: usize = 10_000;

/// The most objects of a kind in a namespace, so that no namespace takes the room of the others.
const MAX_OBJECTS_OF_NAMESPACE: usize = 1_000;

/// The largest specification of an object in bytes.
const MAX_SPEC_BYTES: usize = 256 << 10;

/// The bytes to make jobs of a specification, for each of its bytes: `{},` is a rule of 200 bytes.
const READ_FACTOR: usize = 128;

/// The jobs of the objects of a kind. This takes time: do not call it on a runtime thread.
pub(super) fn jobs(
    kind: ObjectKind,
    objects: &[Arc<StoredObject>],
    options: &PrometheusCrConfig,
    values: &mut Values,
    account: &Arc<Account>,
) -> Generated {
    let mut to = Generated::on(account);
    for object in within_limits(kind, objects, &mut to) {
        let Body::Custom(spec) = &object.body else {
            continue;
        };
        let of = (&*object.metadata.namespace, &*object.metadata.name);
        let mut held = Held::new(account.clone());
        if held.try_grow(spec.len().saturating_mul(READ_FACTOR)).is_err() {
            to.lacks_memory = true;
            let (namespace, name, kind) = (of.0, of.1, kind.resource());
            to.note(&format!(
                "{kind} {namespace}/{name}: memory is short; the object is skipped"
            ));
            continue;
        }
        to.begin_object();
        add(kind, of, spec, options, values, &mut to);
    }
    to
}

/// The objects within the limits, with a notice about the others.
fn within_limits<'a>(
    kind: ObjectKind,
    objects: &'a [Arc<StoredObject>],
    to: &mut Generated,
) -> Vec<&'a StoredObject> {
    let kind = kind.resource();
    let mut counts = BTreeMap::<&str, usize>::new();
    let mut kept = Vec::new();
    for object in objects {
        let count = counts.entry(&object.metadata.namespace).or_default();
        *count += 1;
        if *count <= MAX_OBJECTS_OF_NAMESPACE {
            kept.push(&**object);
        }
    }
    for (namespace, count) in counts {
        let others = count.saturating_sub(MAX_OBJECTS_OF_NAMESPACE);
        if others > 0 {
            to.note(&format!(
                "{others} {kind} of the namespace {namespace} beyond the limit of {MAX_OBJECTS_OF_NAMESPACE} are skipped"
            ));
        }
    }
    let others = kept.len().saturating_sub(MAX_OBJECTS);
    if others > 0 {
        kept.truncate(MAX_OBJECTS);
        to.note(&format!(
            "{others} {kind} beyond the limit of {MAX_OBJECTS} are skipped"
        ));
    }
    kept
}

/// Adds the jobs of an object.
pub(super) fn add(
    kind: ObjectKind,
    (namespace, name): (&str, &str),
    spec: &str,
    options: &PrometheusCrConfig,
    values: &mut Values,
    to: &mut Generated,
) {
    let origin = Origin {
        kind: match kind {
            ObjectKind::PodMonitor => "podMonitor",
            ObjectKind::ServiceMonitor => "serviceMonitor",
            _ => "scrapeConfig",
        },
        namespace,
        name,
        allows_files: options.allow_file_access,
    };
    if spec.len() > MAX_SPEC_BYTES {
        to.note(&format!(
            "{origin}: its specification has more than {MAX_SPEC_BYTES} bytes; the object is skipped"
        ));
        return;
    }
    let Ok(spec @ Value::Object(_)) = serde_json::from_str::<Value>(spec) else {
        to.note(&format!(
            "{origin}: its specification is not a map; the object is skipped"
        ));
        return;
    };
    match kind {
        ObjectKind::PodMonitor => monitors::of_pods(&origin, &spec, values, to),
        ObjectKind::ServiceMonitor => {
            monitors::of_services(&origin, &spec, options.service_discovery_role, values, to);
        }
        _ => scrape_configs::job(&origin, &spec, values, to),
    }
}
