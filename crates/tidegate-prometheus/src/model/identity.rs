// SPDX-License-Identifier: Apache-2.0

//! The resource and scope from the labels of a series, and the remaining labels of its points.

use tidegate_engine::{AttributeRef, Attributes, AttributesBuilder, Scope};

use super::labels::{INSTANCE, JOB, LabelSet, NAME};

/// The metric whose labels are attributes of the resource.
pub const TARGET_INFO: &str = "target_info";

/// The prefix of labels about the scope.
const SCOPE_PREFIX: &str = "otel_scope_";

/// A series' labels, divided up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesIdentity {
    /// The job of the resource, or an empty string.
    pub job: String,
    /// The instance of the resource, or an empty string.
    pub instance: String,
    /// The scope, if the labels name one.
    pub scope: Option<Scope>,
    /// All other labels but the metric's name: attributes of the points, or of the resource for `target_info`.
    pub attributes: Attributes,
}

impl SeriesIdentity {
    /// Divides labels up. `without` is one more label that is not an attribute (`le`, `quantile`).
    pub fn of(labels: &LabelSet, without: &str, builder: &mut AttributesBuilder) -> Self {
        let is_info = labels.get(NAME) == TARGET_INFO;
        for (name, value) in labels.iter() {
            let is_scope = name.starts_with(SCOPE_PREFIX) && !is_info;
            if !is_scope && ![NAME, JOB, INSTANCE, without].contains(&name) {
                builder.push(name, AttributeRef::Str(value));
            }
        }
        Self {
            job: labels.get(JOB).to_owned(),
            instance: labels.get(INSTANCE).to_owned(),
            attributes: builder.finish(),
            scope: scope(labels, builder).filter(|_| !is_info),
        }
    }
}

/// The scope that `otel_scope_*` labels describe.
fn scope(labels: &LabelSet, builder: &mut AttributesBuilder) -> Option<Scope> {
    let mut scope = Scope::default();
    let mut any = false;
    for (name, value) in labels.iter() {
        let Some(key) = name.strip_prefix(SCOPE_PREFIX) else {
            continue;
        };
        any = true;
        match key {
            "name" => scope.name = value.into(),
            "version" => scope.version = value.into(),
            "schema_url" => scope.schema_url = value.into(),
            key => builder.push(key, AttributeRef::Str(value)),
        }
    }
    scope.attributes = builder.finish();
    any.then_some(scope)
}
