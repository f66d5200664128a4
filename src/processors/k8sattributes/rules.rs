// SPDX-License-Identifier: Apache-2.0

//! The compiled options: the attributes that objects give.

use std::sync::Arc;

use regex::Regex;
use tidegate_kubernetes::{Metadata, ObjectKind, Scope, TextMap};

use super::association::Associations;
use super::config::{
    FieldExtract, FieldFilter, FilterConfig, FilterOp, K8sAttributesConfig, MetadataField, ObjectSource,
};

/// The prefix of annotations that name attributes.
const OTEL_PREFIX: &str = "resource.opentelemetry.io/";

/// The annotation of pods that do not count.
const IGNORE_ANNOTATION: &str = "opentelemetry.io/k8s-processor/ignore";

/// The namespace whose id is that of the cluster.
pub(super) const CLUSTER_NAMESPACE: &str = "kube-system";

/// Names and values of attributes.
pub(super) type AttributePairs = Box<[(Arc<str>, Arc<str>)]>;

/// Why options have no rules.
#[derive(Debug, thiserror::Error)]
pub(super) enum PodRulesError {
    #[error("extract: the expression `{0}` matches no whole key: {1}")]
    Expression(String, regex::Error),
    #[error(
        "filter::node_from_env_var: {0} is not set: set it to `spec.nodeName` in the manifest of the pod"
    )]
    NoNode(String),
}

/// Attributes in the order of their rules. A later rule replaces the value of an earlier one.
#[derive(Default)]
pub(super) struct PairList(Vec<(Arc<str>, Arc<str>)>);

impl PairList {
    pub(super) fn put(&mut self, name: &Arc<str>, value: &str) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some(known) => known.1 = value.into(),
            None => self.0.push((name.clone(), value.into())),
        }
    }

    /// The same for values that are not empty.
    fn put_some(&mut self, name: &Arc<str>, value: &str) {
        if !value.is_empty() {
            self.put(name, value);
        }
    }

    pub(super) fn finish(self) -> AttributePairs {
        self.0.into()
    }
}

/// Labels or annotations that become attributes.
struct FieldRule {
    from: ObjectSource,
    matcher: FieldMatcher,
}

enum FieldMatcher {
    /// This key, under this name.
    Key(Box<str>, Arc<str>),
    /// Keys that match. The name is a template, or this and the key.
    Keys(Regex, FieldName),
}

enum FieldName {
    Template(Box<str>),
    Prefix(String),
}

impl FieldRule {
    /// `of` is `label` or `annotation`.
    fn new(options: &FieldExtract, of: &str) -> Result<Self, PodRulesError> {
        let from = options.from;
        let matcher = match &options.key_regex {
            None => {
                let name = match options.tag_name.as_str() {
                    "" => format!("k8s.{from}.{of}s.{}", options.key),
                    name => name.to_owned(),
                };
                FieldMatcher::Key(options.key.as_str().into(), name.into())
            }
            Some(pattern) => {
                let text = pattern.0.as_str();
                let whole = Regex::new(&format!("^(?:{text})$"))
                    .map_err(|error| PodRulesError::Expression(text.to_owned(), error))?;
                let has_template = !options.tag_name.is_empty() && whole.captures_len() > 1;
                let name = if has_template {
                    FieldName::Template(options.tag_name.as_str().into())
                } else {
                    FieldName::Prefix(default_prefix(from, of))
                };
                FieldMatcher::Keys(whole, name)
            }
        };
        Ok(Self { from, matcher })
    }

    fn apply(&self, fields: &TextMap, to: &mut PairList) {
        match &self.matcher {
            FieldMatcher::Key(key, name) => {
                if let Some(value) = fields.get(key) {
                    to.put(name, value);
                }
            }
            FieldMatcher::Keys(regex, name) => {
                for (key, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
                    let Some(found) = regex.captures(key) else {
                        continue;
                    };
                    let mut full = String::new();
                    match name {
                        FieldName::Template(template) => found.expand(template, &mut full),
                        FieldName::Prefix(prefix) => full = format!("{prefix}{key}"),
                    }
                    to.put(&full.into(), value);
                }
            }
        }
    }

    /// The most bytes of a name, for keys of these bytes.
    fn name_bytes(&self, key_bytes: usize) -> usize {
        match &self.matcher {
            FieldMatcher::Key(_, name) => name.len(),
            FieldMatcher::Keys(_, FieldName::Prefix(prefix)) => prefix.len() + key_bytes,
            FieldMatcher::Keys(_, FieldName::Template(template)) => {
                template.len() + template.matches('$').count() * key_bytes
            }
        }
    }
}

/// The Collector's names: plural for older kinds of objects.
fn default_prefix(from: ObjectSource, of: &str) -> String {
    match from {
        ObjectSource::Pod | ObjectSource::Namespace | ObjectSource::Node => format!("k8s.{from}.{of}s."),
        _ => format!("k8s.{from}.{of}."),
    }
}

/// The rules of a processor.
pub(super) struct PodRules {
    fields: Vec<(MetadataField, Arc<str>)>,
    labels: Vec<FieldRule>,
    annotations: Vec<FieldRule>,
    excludes: Vec<Regex>,
    pub(super) otel_annotations: bool,
    pub(super) name_from_replicaset: bool,
    pub(super) associations: Associations,
}

impl PodRules {
    pub(super) fn new(config: &K8sAttributesConfig) -> Result<Self, PodRulesError> {
        let extract = &config.extract;
        let rules = |options: &[FieldExtract], of| {
            let rules = options.iter().map(|options| FieldRule::new(options, of));
            rules.collect::<Result<Vec<_>, _>>()
        };
        let mut excludes: Vec<_> = config.exclude.pods.iter().map(|pod| pod.name.0.clone()).collect();
        if excludes.is_empty() {
            excludes.extend(Regex::new("jaeger-agent|jaeger-collector"));
        }
        let fields = extract.metadata.iter();
        Ok(Self {
            fields: fields.map(|field| (*field, field.as_str().into())).collect(),
            labels: rules(&extract.labels, "label")?,
            annotations: rules(&extract.annotations, "annotation")?,
            excludes,
            otel_annotations: extract.otel_annotations,
            name_from_replicaset: extract.deployment_name_from_replicaset,
            associations: Associations::new(&config.pod_association),
        })
    }

    /// The name of a wanted attribute.
    pub(super) fn name(&self, field: MetadataField) -> Option<&Arc<str>> {
        let wanted = self.fields.iter().find(|(known, _)| *known == field);
        wanted.map(|(_, name)| name)
    }

    pub(super) fn wants(&self, fields: &[MetadataField]) -> bool {
        fields.iter().any(|field| self.name(*field).is_some())
    }

    /// Adds a wanted attribute that is not empty.
    pub(super) fn put(&self, field: MetadataField, value: &str, to: &mut PairList) {
        if let Some(name) = self.name(field) {
            to.put_some(name, value);
        }
    }

    /// Adds the labels and annotations of an object.
    pub(super) fn put_labels(&self, from: ObjectSource, metadata: &Metadata, to: &mut PairList) {
        for (rules, fields) in [
            (&self.labels, &metadata.labels),
            (&self.annotations, &metadata.annotations),
        ] {
            for rule in rules.iter().filter(|rule| rule.from == from) {
                rule.apply(fields, to);
            }
        }
    }

    /// Adds the attributes that annotations of a pod name.
    pub(super) fn put_named(&self, metadata: &Metadata, to: &mut PairList) {
        if self.otel_annotations {
            for (key, value) in metadata.annotations.iter() {
                if let Some(name) = key.strip_prefix(OTEL_PREFIX).filter(|name| !name.is_empty()) {
                    to.put(&name.into(), value);
                }
            }
        }
    }

    /// The most bytes that the attributes of an object take.
    pub(super) fn most_bytes(&self, metadata: &Metadata) -> usize {
        /// The places, counts and headers of an attribute, in a list that grew by doubling.
        const PAIR_BYTES: usize = 128;
        let rules = [
            (&self.labels, &metadata.labels),
            (&self.annotations, &metadata.annotations),
        ];
        let mut bytes = 0;
        for (rules, fields) in rules {
            for (key, value) in fields.iter() {
                let of_rule = |rule: &FieldRule| rule.name_bytes(key.len()) + value.len() + PAIR_BYTES;
                bytes += rules.iter().map(of_rule).sum::<usize>();
                bytes += key.len() + value.len() + PAIR_BYTES;
            }
        }
        bytes
    }

    /// Whether a pod does not count.
    pub(super) fn ignores(&self, metadata: &Metadata) -> bool {
        let annotation = metadata.annotations.get(IGNORE_ANNOTATION);
        let is_marked = annotation.is_some_and(|value| value.trim().eq_ignore_ascii_case("true"));
        is_marked || self.excludes.iter().any(|name| name.is_match(&metadata.name))
    }

    pub(super) fn has_labels_of(&self, from: ObjectSource) -> bool {
        let mut rules = self.labels.iter().chain(&self.annotations);
        rules.any(|rule| rule.from == from)
    }

    /// The kinds of objects that these rules need besides pods.
    pub(super) fn kinds(&self) -> Vec<ObjectKind> {
        use MetadataField as Field;
        let by_name = !self.name_from_replicaset && self.wants(&[Field::DeploymentName, Field::ServiceName]);
        let of_deployment = self.has_labels_of(ObjectSource::Deployment);
        let needs = [
            (
                ObjectKind::ReplicaSet,
                by_name || of_deployment || self.wants(&[Field::DeploymentUid]),
            ),
            (
                ObjectKind::Namespace,
                self.has_labels_of(ObjectSource::Namespace) || self.wants(&[Field::ClusterUid]),
            ),
            (
                ObjectKind::Node,
                self.has_labels_of(ObjectSource::Node) || self.wants(&[Field::NodeUid]),
            ),
            (ObjectKind::Deployment, of_deployment),
            (
                ObjectKind::StatefulSet,
                self.has_labels_of(ObjectSource::StatefulSet),
            ),
            (ObjectKind::DaemonSet, self.has_labels_of(ObjectSource::DaemonSet)),
            (
                ObjectKind::Job,
                self.has_labels_of(ObjectSource::Job) || self.wants(&[Field::CronJobUid]),
            ),
        ];
        let needed = needs.into_iter().filter(|(_, is_needed)| *is_needed);
        needed.map(|(kind, _)| kind).collect()
    }

    /// The objects to watch, pods first.
    pub(super) fn scopes(&self, filter: &FilterConfig) -> Result<Vec<Scope>, PodRulesError> {
        let node = node(filter)?;
        let selector = |field: &str, value: &str| format!("{field}={value}");
        let mut fields: Vec<_> = filter.fields.iter().map(field_condition).collect();
        fields.extend(node.as_ref().map(|node| selector("spec.nodeName", node)));
        let labels: Vec<_> = filter.labels.iter().map(label_condition).collect();
        let pods = Scope {
            label_selector: labels.join(","),
            field_selector: fields.join(","),
            ..Scope::all(ObjectKind::Pod)
        };
        let mut scopes = in_namespaces(&pods, filter);
        for kind in self.kinds() {
            let mut scope = Scope::all(kind);
            if kind == ObjectKind::Namespace && !self.has_labels_of(ObjectSource::Namespace) {
                scope.field_selector = selector("metadata.name", CLUSTER_NAMESPACE);
            }
            if let (ObjectKind::Node, Some(node)) = (kind, &node) {
                scope.field_selector = selector("metadata.name", node);
            }
            scopes.extend(in_namespaces(&scope, filter));
        }
        Ok(scopes)
    }
}

fn in_namespaces(scope: &Scope, filter: &FilterConfig) -> Vec<Scope> {
    let names = &filter.namespace.0;
    if names.is_empty() || !scope.kind.is_namespaced() {
        return vec![scope.clone()];
    }
    let named = names.iter().map(|name| Scope {
        namespace: Some(name.clone()),
        ..scope.clone()
    });
    named.collect()
}

/// The node of the pods. `None`: all nodes.
fn node(filter: &FilterConfig) -> Result<Option<String>, PodRulesError> {
    let name = match filter.node_from_env_var.as_str() {
        "" => filter.node.clone(),
        variable => {
            let value = std::env::var(variable).ok().filter(|value| !value.is_empty());
            value.ok_or_else(|| PodRulesError::NoNode(variable.to_owned()))?
        }
    };
    Ok(Some(name).filter(|name| !name.is_empty()))
}

fn field_condition(filter: &FieldFilter) -> String {
    let value = filter
        .value
        .replace('\\', "\\\\")
        .replace(',', "\\,")
        .replace('=', "\\=");
    match filter.op {
        FilterOp::NotEquals => format!("{}!={value}", filter.key),
        _ => format!("{}={value}", filter.key),
    }
}

fn label_condition(filter: &FieldFilter) -> String {
    let FieldFilter { key, value, op } = filter;
    match op {
        FilterOp::Equals => format!("{key}={value}"),
        FilterOp::NotEquals => format!("{key}!={value}"),
        FilterOp::Exists => key.clone(),
        FilterOp::DoesNotExist => format!("!{key}"),
    }
}
