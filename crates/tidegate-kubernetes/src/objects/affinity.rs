// SPDX-License-Identifier: Apache-2.0

//! The node of a pod in its affinity. The controller of a DaemonSet writes it there, before the pod is scheduled.

use serde::{Deserialize, Deserializer};

use super::read::or_default;

/// The field of a node that names it.
const NODE_NAME: &str = "metadata.name";

#[derive(Default, Deserialize)]
#[serde(default)]
struct Affinity {
    #[serde(rename = "nodeAffinity", deserialize_with = "or_default")]
    node: NodeAffinity,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeAffinity {
    /// The nodes that the pod must run on.
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "or_default"
    )]
    required: NodeSelector,
}

/// Nodes that one of the terms selects.
#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeSelector {
    #[serde(rename = "nodeSelectorTerms", deserialize_with = "or_default")]
    terms: Vec<NodeSelectorTerm>,
}

/// A term. All its parts must hold.
#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeSelectorTerm {
    #[serde(rename = "matchFields", deserialize_with = "or_default")]
    fields: Vec<FieldCondition>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FieldCondition {
    #[serde(deserialize_with = "or_default")]
    key: String,
    #[serde(deserialize_with = "or_default")]
    operator: String,
    #[serde(deserialize_with = "or_default")]
    values: Vec<String>,
}

impl NodeSelectorTerm {
    fn node(&self) -> Option<&str> {
        let mut fields = self.fields.iter();
        let named = fields.find(|field| field.key == NODE_NAME && field.operator == "In")?;
        match &*named.values {
            [node] => Some(node),
            _ => None,
        }
    }
}

/// The name of the node, if all terms name the same one.
pub(super) fn node_of_affinity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<str>, D::Error> {
    let affinity: Affinity = or_default(deserializer)?;
    let terms = &affinity.node.required.terms;
    let first = terms.first().and_then(NodeSelectorTerm::node);
    let is_only = terms.iter().all(|term| term.node() == first);
    Ok(first.filter(|_| is_only).unwrap_or_default().into())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{Body, KubeObject, ObjectKind};

    fn wanted(affinity: &Value) -> String {
        let pod = json!({"metadata": {"name": "a"}, "spec": {"affinity": affinity}}).to_string();
        let object = KubeObject::from_json(ObjectKind::Pod, pod.as_bytes()).unwrap();
        let Body::Pod(pod) = object.body else {
            panic!("a pod")
        };
        pod.spec.wanted_node.0.into()
    }

    #[test]
    fn the_affinity_of_a_pod_of_a_daemonset_names_its_node() {
        let term = |node: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
        let required = |terms: Value| json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
        let zone = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]});
        let not = json!({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n-1"]}]});
        for (affinity, expected) in [
            (required(json!([term("n-1")])), "n-1"),
            (required(json!([term("n-1"), term("n-1")])), "n-1"),
            (required(json!([term("n-1"), term("n-2")])), ""),
            (required(json!([term("n-1"), zone.clone()])), ""),
            (required(json!([zone, term("n-1")])), ""),
            (required(json!([not])), ""),
            (required(json!(null)), ""),
            (json!({"podAntiAffinity": {}}), ""),
            (json!(null), ""),
        ] {
            assert_eq!(wanted(&affinity), expected, "{affinity}");
        }
    }
}
