// SPDX-License-Identifier: Apache-2.0

//! The role `ingress`: a target for each path of each host.

use std::ops::ControlFlow;

use tidegate_kubernetes::{Body, Ingress, IngressRule};

use super::EachTarget;
use super::meta::{MetaLabels, Objects};

pub(super) fn targets(objects: &Objects<'_>, each: EachTarget<'_>) -> ControlFlow<()> {
    for object in objects.iter() {
        let Body::Ingress(ingress) = &object.body else {
            continue;
        };
        let mut common = MetaLabels::default();
        objects.add_namespace(&mut common, &object.metadata);
        common.add_metadata("ingress", &object.metadata);
        common.add_some("ingress_class_name", ingress.spec.class_name.as_deref());
        for rule in &ingress.spec.rules {
            of_rule(&common, ingress, rule, each)?;
        }
    }
    ControlFlow::Continue(())
}

fn of_rule(
    common: &MetaLabels,
    ingress: &Ingress,
    rule: &IngressRule,
    each: EachTarget<'_>,
) -> ControlFlow<()> {
    let mut patterns = ingress.spec.tls.iter().flat_map(|tls| &tls.hosts);
    let scheme = if patterns.any(|pattern| matches_host(pattern, &rule.host)) {
        "https"
    } else {
        "http"
    };
    let mut of_path = |path: &str| {
        let path = if path.is_empty() { "/" } else { path };
        each(common.with(|labels| {
            labels.address(rule.host.to_string());
            labels.add("ingress_scheme", scheme);
            labels.add("ingress_host", &rule.host);
            labels.add("ingress_path", path);
        }))
    };
    match &rule.http {
        Some(http) => http.paths.iter().try_for_each(|path| of_path(&path.path)),
        None => of_path("/"),
    }
}

/// Whether a host is that of a pattern, whose first part may be `*`.
pub(super) fn matches_host(pattern: &str, host: &str) -> bool {
    let rest = |name: &str| name.split_once('.').map(|(_, rest)| rest.to_owned());
    pattern == host || pattern.starts_with("*.") && rest(pattern) == rest(host)
}
