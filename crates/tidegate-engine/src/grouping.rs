//! Grouping: which attributes stay when series become one.

use std::sync::Arc;

use crate::{Attributes, AttributesBuilder, Resource};

/// Which attributes make the groups.
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
                let stays = |key: &str| !keys.iter().any(|taken| **taken == *key);
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
}
