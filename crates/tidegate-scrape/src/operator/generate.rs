// SPDX-License-Identifier: Apache-2.0

//! Objects to jobs, within limits.

use std::sync::Arc;

use serde_json::Value;
use tidegate_kubernetes::{Body, ObjectKind, StoredObject};

use super::draft::{Generated, Origin};
use super::values::Values;
use super::{monitors, scrape_configs};
use crate::config::operator::PrometheusCrConfig;

/// The most objects of a kind.
const MAX_OBJECTS: usize = 10_000;

/// The largest specification of an object in bytes.
const MAX_SPEC_BYTES: usize = 256 << 10;

/// The jobs of the objects of a kind. This takes time: do not call it on a runtime thread.
pub(super) fn jobs(
    kind: ObjectKind,
    objects: &[Arc<StoredObject>],
    options: &PrometheusCrConfig,
    values: &mut Values,
) -> Generated {
    let mut to = Generated::default();
    for object in objects.iter().take(MAX_OBJECTS) {
        if let Body::Custom(spec) = &object.body {
            let of = (&*object.metadata.namespace, &*object.metadata.name);
            add(kind, of, spec, options, values, &mut to);
        }
    }
    if objects.len() > MAX_OBJECTS {
        let others = objects.len() - MAX_OBJECTS;
        let kind = kind.resource();
        to.notices.push(format!(
            "{others} {kind} beyond the limit of {MAX_OBJECTS} are skipped"
        ));
    }
    to
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
        to.notices.push(format!(
            "{origin}: its specification has more than {MAX_SPEC_BYTES} bytes; the object is skipped"
        ));
        return;
    }
    let spec: Value = match serde_json::from_str(spec) {
        Ok(spec @ Value::Object(_)) => spec,
        _ => {
            to.notices.push(format!(
                "{origin}: its specification is not a map; the object is skipped"
            ));
            return;
        }
    };
    match kind {
        ObjectKind::PodMonitor => monitors::of_pods(&origin, &spec, values, to),
        ObjectKind::ServiceMonitor => {
            monitors::of_services(&origin, &spec, options.service_discovery_role, values, to);
        }
        _ => scrape_configs::job(&origin, &spec, values, to),
    }
}
