//! `target_info`: the resource attributes that are no labels of every series, one line a job and instance.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_engine::Resource;

use super::format::Format;
use super::labels::{Labels, instance, job};

/// Appends the family, if any of these resources has something to say. Of two with one job and instance the first
/// counts.
pub(super) fn push_target_info<'a>(
    page: &mut String,
    format: Format,
    resources: impl Iterator<Item = &'a Arc<Resource>>,
) {
    let mut targets: BTreeMap<(String, String), String> = BTreeMap::new();
    let mut last = None;
    for resource in resources {
        // Series of a resource share it; most of a table's follow one another.
        if last.is_some_and(|last| Arc::ptr_eq(last, resource)) {
            continue;
        }
        last = Some(resource);
        let Some(job) = job(resource) else { continue };
        targets
            .entry((job, instance(resource)))
            .or_insert_with(|| target_labels(resource));
    }
    targets.retain(|_, labels| !labels.is_empty());
    if targets.is_empty() {
        return;
    }
    let (family, kind) = match format {
        Format::Text => ("target_info", "gauge"),
        Format::OpenMetrics => ("target", "info"),
    };
    page.push_str(&format!(
        "# HELP {family} Target metadata\n# TYPE {family} {kind}\n"
    ));
    for labels in targets.into_values() {
        page.push_str(&format!("target_info{{{labels}}} 1\n"));
    }
}

fn target_labels(resource: &Resource) -> String {
    const IDENTITY: [&str; 3] = ["service.name", "service.namespace", "service.instance.id"];
    let mut labels = Labels::default();
    let others = resource
        .attributes
        .iter()
        .filter(|(key, _)| !IDENTITY.contains(key));
    let mut any = false;
    for (key, value) in others {
        labels.add(key, value);
        any = true;
    }
    if !any {
        return String::new();
    }
    labels.identify(resource);
    labels.render()
}
