// SPDX-License-Identifier: Apache-2.0

//! Grouping: the attributes that stay when several series become one.
//!
//! `job` and `instance` are Prometheus's names for parts of the OpenTelemetry resource. If no attribute has the name
//! itself, they mean `service.name` (after `service.namespace/`) and `service.instance.id`.

use std::sync::{Arc, LazyLock};

use crate::{AttributeRef, AttributeValue, Attributes, AttributesBuilder, Resource, Scope, Series};

const JOB: &str = "job";
const INSTANCE: &str = "instance";
const SERVICE: &str = "service.name";
const NAMESPACE: &str = "service.namespace";
const INSTANCE_ID: &str = "service.instance.id";

/// The other resource attributes that a scrape adds: the parts of the target's address.
const OF_ADDRESS: [&str; 3] = ["server.address", "server.port", "url.scheme"];

/// `otel.metric.overflow=true`.
pub(crate) fn overflow_attributes() -> Attributes {
    [("otel.metric.overflow", AttributeValue::Bool(true))]
        .into_iter()
        .collect()
}

/// The same, for comparisons.
static OVERFLOW: LazyLock<Attributes> = LazyLock::new(overflow_attributes);

/// Whether it is the series that has what a metric counts without room. A sender's own one has a resource or a scope.
pub(crate) fn is_overflow(series: &Series) -> bool {
    series.attributes == *OVERFLOW
        && *series.resource == Resource::default()
        && *series.scope == Scope::default()
}

/// The value of a Prometheus label that stands for attributes of the resource, in the sets of attributes where these
/// may be; `None`: it is another label, or they are not there.
pub(crate) fn target_label(key: &str, sets: &[&Attributes]) -> Option<AttributeValue> {
    let find = |key: &str| {
        let values = sets.iter().filter_map(|set| match set.get(key)? {
            AttributeRef::Str(text) if !text.is_empty() => Some(text),
            _ => None,
        });
        { values }.next()
    };
    match key {
        JOB => {
            let name = find(SERVICE)?;
            Some(match find(NAMESPACE) {
                Some(namespace) => format!("{namespace}/{name}").as_str().into(),
                None => name.into(),
            })
        }
        INSTANCE => find(INSTANCE_ID).map(Into::into),
        _ => None,
    }
}

/// Whether there is an attribute of this name, or what a Prometheus label of this name stands for.
pub(crate) fn has_label(name: &str, set: &Attributes) -> bool {
    set.get(name).is_some() || target_label(name, &[set]).is_some()
}

/// Whether an attribute goes when the Prometheus label `taken` goes.
fn goes_with(taken: &str, key: &str, resource: &Attributes) -> bool {
    match taken {
        _ if taken == key => true,
        JOB => [SERVICE, NAMESPACE].contains(&key),
        INSTANCE => key == INSTANCE_ID || (OF_ADDRESS.contains(&key) && is_of_instance(resource)),
        _ => false,
    }
}

/// Whether the address in a resource is that of its instance: a scrape target's.
fn is_of_instance(resource: &Attributes) -> bool {
    let text = |key| match resource.get(key) {
        Some(AttributeRef::Str(text)) => text,
        _ => "",
    };
    let (instance, port) = (text(INSTANCE_ID), text("server.port"));
    !port.is_empty()
        && instance
            .strip_suffix(port)
            .is_some_and(|host| host.ends_with(':'))
}

/// The attributes that make the groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// Nothing is taken away: each input series is a group of its own.
    #[default]
    Keep,
    /// Only these. A point attribute goes before a resource attribute of that name; the group has no resource.
    By(Arc<[Arc<str>]>),
    /// All but these, which are taken from the resource as well.
    Without(Arc<[Arc<str>]>),
}

impl Grouping {
    /// Only `keys`.
    pub fn by<K: Into<Arc<str>>>(keys: impl IntoIterator<Item = K>) -> Self {
        Self::By(keys.into_iter().map(Into::into).collect())
    }

    /// All but `keys`.
    pub fn without<K: Into<Arc<str>>>(keys: impl IntoIterator<Item = K>) -> Self {
        Self::Without(keys.into_iter().map(Into::into).collect())
    }

    /// The group's resource and attributes.
    pub(crate) fn apply(
        &self,
        resource: &Arc<Resource>,
        attributes: &Attributes,
    ) -> (Arc<Resource>, Attributes) {
        match self {
            Self::Keep => (resource.clone(), attributes.clone()),
            Self::By(keys) => (Arc::default(), select(keys, &resource.attributes, attributes)),
            Self::Without(keys) => {
                let all = &resource.attributes;
                let stays = |key: &str| !keys.iter().any(|taken| goes_with(taken, key, all));
                let fewer = Resource {
                    attributes: resource.attributes.filter(stays),
                    schema_url: resource.schema_url.clone(),
                };
                (Arc::new(fewer), attributes.filter(stays))
            }
        }
    }
}

fn select(keys: &[Arc<str>], resource: &Attributes, attributes: &Attributes) -> Attributes {
    let mut group = AttributesBuilder::default();
    for key in keys {
        if let Some(value) = attributes.get(key).or_else(|| resource.get(key)) {
            group.push(key, value);
        } else if let Some(value) = target_label(key, &[resource]) {
            group.push(key, value.view());
        }
    }
    group.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_keep_what_was_asked_for() {
        let resource = Arc::new(Resource {
            attributes: [("pod", "p1"), ("node", "n1")].into_iter().collect(),
            schema_url: "".into(),
        });
        let point: Attributes = [("pod", "p2"), ("code", "200")].into_iter().collect();
        let (none, by) = Grouping::by(["pod", "node", "absent"]).apply(&resource, &point);
        assert!(none.attributes.is_empty());
        assert_eq!(by, [("pod", "p2"), ("node", "n1")].into_iter().collect());
        let (rest, without) = Grouping::without(["pod"]).apply(&resource, &point);
        assert_eq!(rest.attributes, [("node", "n1")].into_iter().collect());
        assert_eq!(without, [("code", "200")].into_iter().collect());
    }

    #[test]
    fn prometheus_names_mean_the_attributes_of_a_target() {
        let target = Arc::new(Resource {
            attributes: [
                ("service.name", "vllm"),
                ("service.namespace", "prod"),
                ("service.instance.id", "10.0.0.1:8000"),
                ("server.address", "10.0.0.1"),
                ("server.port", "8000"),
                ("url.scheme", "http"),
            ]
            .into_iter()
            .collect(),
            schema_url: "".into(),
        });
        let point: Attributes = [("model_name", "m")].into_iter().collect();
        let (_, by) = Grouping::by(["job", "instance"]).apply(&target, &point);
        let expected = [("job", "prod/vllm"), ("instance", "10.0.0.1:8000")];
        assert_eq!(by, expected.into_iter().collect());
        let (rest, without) = Grouping::without(["instance"]).apply(&target, &point);
        let expected = [("service.name", "vllm"), ("service.namespace", "prod")];
        assert_eq!(
            (rest.attributes.clone(), without),
            (expected.into_iter().collect(), point.clone())
        );
        let (none, _) = Grouping::without(["instance", "job"]).apply(&target, &point);
        assert!(none.attributes.is_empty());
        // An attribute of that very name goes first.
        let own: Attributes = [("job", "own")].into_iter().collect();
        assert_eq!(Grouping::by(["job"]).apply(&target, &own).1, own);
        // The address of a resource that is not a target is not part of its instance.
        let pushed = Arc::new(Resource {
            attributes: [("service.instance.id", "7f"), ("server.port", "80")]
                .into_iter()
                .collect(),
            schema_url: "".into(),
        });
        let (rest, _) = Grouping::without(["instance"]).apply(&pushed, &point);
        assert_eq!(rest.attributes, [("server.port", "80")].into_iter().collect());
    }
}
