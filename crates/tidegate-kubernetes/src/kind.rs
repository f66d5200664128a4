// SPDX-License-Identifier: Apache-2.0

//! Kinds of objects, and the part of them that a watch covers.

/// A kind of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectKind {
    /// Pods.
    Pod,
    /// Services.
    Service,
    /// Endpoints, which Kubernetes 1.33 deprecates.
    Endpoints,
    /// Slices of endpoints.
    EndpointSlice,
    /// Nodes.
    Node,
    /// Ingresses.
    Ingress,
    /// Namespaces.
    Namespace,
    /// ReplicaSets.
    ReplicaSet,
    /// Deployments.
    Deployment,
    /// StatefulSets.
    StatefulSet,
    /// DaemonSets.
    DaemonSet,
    /// Jobs.
    Job,
    /// Pod monitors of the Prometheus operator.
    PodMonitor,
    /// Service monitors of the Prometheus operator.
    ServiceMonitor,
    /// Scrape configurations of the Prometheus operator.
    ScrapeConfig,
}

impl ObjectKind {
    /// All kinds.
    pub const ALL: [Self; 15] = [
        Self::Pod,
        Self::Service,
        Self::Endpoints,
        Self::EndpointSlice,
        Self::Node,
        Self::Ingress,
        Self::Namespace,
        Self::ReplicaSet,
        Self::Deployment,
        Self::StatefulSet,
        Self::DaemonSet,
        Self::Job,
        Self::PodMonitor,
        Self::ServiceMonitor,
        Self::ScrapeConfig,
    ];

    /// The name of the resource, which metrics have as `kind`.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Pod => "pods",
            Self::Service => "services",
            Self::Endpoints => "endpoints",
            Self::EndpointSlice => "endpointslices",
            Self::Node => "nodes",
            Self::Ingress => "ingresses",
            Self::Namespace => "namespaces",
            Self::ReplicaSet => "replicasets",
            Self::Deployment => "deployments",
            Self::StatefulSet => "statefulsets",
            Self::DaemonSet => "daemonsets",
            Self::Job => "jobs",
            Self::PodMonitor => "podmonitors",
            Self::ServiceMonitor => "servicemonitors",
            Self::ScrapeConfig => "scrapeconfigs",
        }
    }

    fn group(self) -> &'static str {
        match self {
            Self::EndpointSlice => "/apis/discovery.k8s.io/v1",
            Self::Ingress => "/apis/networking.k8s.io/v1",
            Self::ReplicaSet | Self::Deployment | Self::StatefulSet | Self::DaemonSet => "/apis/apps/v1",
            Self::Job => "/apis/batch/v1",
            Self::PodMonitor | Self::ServiceMonitor => "/apis/monitoring.coreos.com/v1",
            Self::ScrapeConfig => "/apis/monitoring.coreos.com/v1alpha1",
            _ => "/api/v1",
        }
    }

    /// Whether its objects are in namespaces.
    pub fn is_namespaced(self) -> bool {
        !matches!(self, Self::Node | Self::Namespace)
    }
}

/// The objects that a watch covers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// Their kind.
    pub kind: ObjectKind,
    /// Their namespace. `None`: all namespaces.
    pub namespace: Option<String>,
    /// A label selector. Empty: all objects.
    pub label_selector: String,
    /// A field selector. Empty: all objects.
    pub field_selector: String,
}

impl Scope {
    /// All objects of a kind.
    pub fn all(kind: ObjectKind) -> Self {
        Self {
            kind,
            namespace: None,
            label_selector: String::new(),
            field_selector: String::new(),
        }
    }

    /// The path and query of a request for these objects, with further parameters.
    pub(crate) fn path(&self, parameters: &[(&str, &str)]) -> String {
        let namespace = self.namespace.as_deref().filter(|_| self.kind.is_namespaced());
        let namespace = namespace.map_or_else(String::new, |name| format!("/namespaces/{}", escaped(name)));
        let selectors = [
            ("labelSelector", self.label_selector.as_str()),
            ("fieldSelector", self.field_selector.as_str()),
        ];
        let selectors = selectors.into_iter().filter(|(_, value)| !value.is_empty());
        let query = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(parameters.iter().copied().chain(selectors))
            .finish();
        format!(
            "{}{namespace}/{}?{query}",
            self.kind.group(),
            self.kind.resource()
        )
    }
}

/// The namespace and the name in a text such as `monitoring/agent`. `None`: the text has another form.
pub fn namespaced(text: &str) -> Option<(&str, &str)> {
    let (namespace, name) = text.split_once('/')?;
    let is_whole = !namespace.is_empty() && !name.is_empty() && !name.contains('/');
    is_whole.then_some((namespace, name))
}

/// A name as a segment of a path.
pub(crate) fn escaped(name: &str) -> String {
    form_urlencoded::byte_serialize(name.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_a_namespace_has_both_parts() {
        assert_eq!(namespaced("a/b"), Some(("a", "b")));
        for wrong in ["", "a", "/b", "a/", "a/b/c"] {
            assert_eq!(namespaced(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_scope_becomes_the_path_of_its_resource() {
        let mut scope = Scope::all(ObjectKind::Pod);
        assert_eq!(scope.path(&[("limit", "5")]), "/api/v1/pods?limit=5");
        scope.namespace = Some("a/b".to_owned());
        scope.label_selector = "app in (a,b)".to_owned();
        let path = "/api/v1/namespaces/a%2Fb/pods?watch=1&labelSelector=app+in+%28a%2Cb%29";
        assert_eq!(scope.path(&[("watch", "1")]), path);
        scope.kind = ObjectKind::Node;
        scope.label_selector.clear();
        assert_eq!(scope.path(&[("watch", "1")]), "/api/v1/nodes?watch=1");
        let slices = Scope::all(ObjectKind::EndpointSlice).path(&[("limit", "5")]);
        assert_eq!(slices, "/apis/discovery.k8s.io/v1/endpointslices?limit=5");
        let sets = Scope::all(ObjectKind::ReplicaSet).path(&[]);
        assert_eq!(sets, "/apis/apps/v1/replicasets?");
        assert_eq!(Scope::all(ObjectKind::Job).path(&[]), "/apis/batch/v1/jobs?");
    }
}
