//! `target_info`: the resource attributes that are no labels of every series, one line a job and instance.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_engine::Resource;

use super::escaping::is_legacy_metric_name;
use super::format::Format;
use super::labels::{Labels, instance, job, push_quoted};
use super::name::Naming;

/// The name of the family, behind the namespace.
pub(super) const TARGET_INFO: &str = "target_info";

/// Appends the family, if any of these resources has something to say. Of two with one job and instance the first
/// counts.
pub(super) fn push_target_info<'a>(
    page: &mut String,
    format: Format,
    naming: &Naming,
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
            .or_insert_with(|| target_labels(naming, resource));
    }
    targets.retain(|_, labels| !labels.is_empty());
    if targets.is_empty() {
        return;
    }
    let name = naming.own(TARGET_INFO);
    let (family, kind) = match format {
        Format::Text => (name.as_str(), "gauge"),
        Format::OpenMetrics => (name.strip_suffix("_info").unwrap_or(&name), "info"),
    };
    for (comment, said) in [("HELP", "Target metadata"), ("TYPE", kind)] {
        page.push_str(&format!("# {comment} "));
        push_name(page, family);
        page.push_str(&format!(" {said}\n"));
    }
    for labels in targets.into_values() {
        match is_legacy_metric_name(&name) {
            true => page.push_str(&format!("{name}{{{labels}}} 1\n")),
            false => {
                page.push('{');
                push_quoted(page, &name);
                page.push_str(&format!(",{labels}}} 1\n"));
            }
        }
    }
}

fn push_name(page: &mut String, name: &str) {
    match is_legacy_metric_name(name) {
        true => page.push_str(name),
        false => push_quoted(page, name),
    }
}

fn target_labels(naming: &Naming, resource: &Resource) -> String {
    const IDENTITY: [&str; 3] = ["service.name", "service.namespace", "service.instance.id"];
    let mut labels = Labels::new(naming);
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
