// SPDX-License-Identifier: Apache-2.0

//! Options of `k8sattributes`.

use std::time::Duration;

use crate::config::{Decode, Node, Problems, TypeHelp, WithoutEffect, YamlType, wrong_type};
use crate::processors::actions::Pattern;

/// The most sources of an association, as in the Collector.
const MAX_SOURCES: usize = 4;

crate::choices! {
    /// Credentials for the API server.
    pub enum AuthType {
        /// Those of the service account of this pod.
        ServiceAccount = "serviceAccount",
        /// Those of a kubeconfig file.
        KubeConfig = "kubeConfig",
        /// None. This is not supported.
        None = "none",
    }
}

crate::choices! {
    /// An attribute that the processor can add.
    pub enum MetadataField {
        /// Name of the namespace of the pod.
        NamespaceName = "k8s.namespace.name",
        /// Name of the pod.
        PodName = "k8s.pod.name",
        /// Id of the pod.
        PodUid = "k8s.pod.uid",
        /// Time at which the pod was created.
        PodStartTime = "k8s.pod.start_time",
        /// Address of the pod.
        PodIp = "k8s.pod.ip",
        /// Host name of the pod, if its specification has one.
        PodHostname = "k8s.pod.hostname",
        /// Name of the node of the pod.
        NodeName = "k8s.node.name",
        /// Id of the node of the pod.
        NodeUid = "k8s.node.uid",
        /// Name of the Deployment of the pod.
        DeploymentName = "k8s.deployment.name",
        /// Id of the Deployment of the pod.
        DeploymentUid = "k8s.deployment.uid",
        /// Name of the ReplicaSet of the pod.
        ReplicaSetName = "k8s.replicaset.name",
        /// Id of the ReplicaSet of the pod.
        ReplicaSetUid = "k8s.replicaset.uid",
        /// Name of the StatefulSet of the pod.
        StatefulSetName = "k8s.statefulset.name",
        /// Id of the StatefulSet of the pod.
        StatefulSetUid = "k8s.statefulset.uid",
        /// Name of the DaemonSet of the pod.
        DaemonSetName = "k8s.daemonset.name",
        /// Id of the DaemonSet of the pod.
        DaemonSetUid = "k8s.daemonset.uid",
        /// Name of the Job of the pod.
        JobName = "k8s.job.name",
        /// Id of the Job of the pod.
        JobUid = "k8s.job.uid",
        /// Name of the CronJob of the pod.
        CronJobName = "k8s.cronjob.name",
        /// Id of the CronJob of the pod.
        CronJobUid = "k8s.cronjob.uid",
        /// Id of the namespace `kube-system`.
        ClusterUid = "k8s.cluster.uid",
        /// Name of the container.
        ContainerName = "k8s.container.name",
        /// Id of the container.
        ContainerId = "container.id",
        /// Image of the container without its tag.
        ImageName = "container.image.name",
        /// Tag of the image of the container.
        ImageTag = "container.image.tag",
        /// Digests of the image of the container. This is not supported.
        ImageDigests = "container.image.repo_digests",
        /// Namespace of the pod.
        ServiceNamespace = "service.namespace",
        /// Name of the service, by labels of the pod or its workload.
        ServiceName = "service.name",
        /// Version of the service, by a label of the pod or the image of the container.
        ServiceVersion = "service.version",
        /// Namespace, pod and container.
        ServiceInstanceId = "service.instance.id",
    }
}

/// The fields that the Collector adds without an option.
const DEFAULT_FIELDS: [MetadataField; 8] = [
    MetadataField::ImageName,
    MetadataField::ImageTag,
    MetadataField::DeploymentName,
    MetadataField::NamespaceName,
    MetadataField::NodeName,
    MetadataField::PodName,
    MetadataField::PodStartTime,
    MetadataField::PodUid,
];

crate::choices! {
    /// An object with labels and annotations.
    pub enum ObjectSource {
        /// The pod.
        Pod = "pod" | "",
        /// Its namespace.
        Namespace = "namespace",
        /// Its node.
        Node = "node",
        /// Its Deployment.
        Deployment = "deployment",
        /// Its StatefulSet.
        StatefulSet = "statefulset",
        /// Its DaemonSet.
        DaemonSet = "daemonset",
        /// Its Job.
        Job = "job",
    }
}

crate::options! {
    /// A label or annotation that becomes an attribute.
    pub struct FieldExtract {
        /// Name of the attribute. With groups in `key_regex`, `$1` and `$name` are what they match. Empty: a name such as
        /// `k8s.pod.labels.KEY`.
        pub tag_name: String = String::new(),
        /// Key of the label or annotation.
        pub key: String = String::new(),
        /// Regular expression for whole keys, instead of `key`.
        pub key_regex: Option<Pattern> = None,
        /// Object that has it.
        pub from: ObjectSource = ObjectSource::Pod,
    }
    check = FieldExtract::check
}

impl FieldExtract {
    fn check(&self, at: &Node, cx: &mut Problems) {
        match (&self.key_regex, self.key.is_empty()) {
            (Some(_), false) => cx
                .at(at)
                .error("has both `key` and `key_regex`: remove one of them"),
            (None, true) => cx.at(at).error("needs `key` or `key_regex`"),
            _ => {}
        }
    }
}

crate::options! {
    /// The attributes to add.
    pub struct ExtractConfig {
        /// Names of attributes.
        pub metadata: Vec<MetadataField> = DEFAULT_FIELDS.to_vec(),
        /// Labels that become attributes.
        pub labels: Vec<FieldExtract> = Vec::new(),
        /// Annotations that become attributes.
        pub annotations: Vec<FieldExtract> = Vec::new(),
        /// Whether annotations `resource.opentelemetry.io/NAME` of the pod become attributes `NAME`.
        pub otel_annotations: bool = false,
        /// Whether the name of a Deployment comes from that of its ReplicaSet, so that ReplicaSets are not watched.
        pub deployment_name_from_replicaset: bool = false,
    }
    check = ExtractConfig::check
}

impl ExtractConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        let nodes = at.child("metadata").as_list().unwrap_or_default();
        for (field, node) in self.metadata.iter().zip(nodes) {
            if *field == MetadataField::ImageDigests {
                cx.at(node)
                    .help("remove it; `container.image.tag` has the tag of the image")
                    .error("`container.image.repo_digests` is not supported");
            }
        }
    }
}

crate::choices! {
    /// A comparison.
    pub enum FilterOp {
        /// The value is this one.
        Equals = "equals" | "",
        /// The value is another one.
        NotEquals = "not-equals",
        /// The label is present. For labels only.
        Exists = "exists",
        /// The label is absent. For labels only.
        DoesNotExist = "does-not-exist",
    }
}

crate::options! {
    /// A condition on a field or label of pods.
    pub struct FieldFilter {
        /// Name of the field or label.
        pub key: String = required,
        /// Value to compare with.
        pub value: String = String::new(),
        /// Comparison of the value.
        pub op: FilterOp = FilterOp::Equals,
    }
}

/// Names of namespaces: one text, or a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Namespaces(pub(super) Vec<String>);

impl Decode for Namespaces {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        let names = match (node.as_list(), node.scalar()) {
            (Some(_), _) => Vec::decode(node, cx)?,
            (None, Some(_)) => vec![String::decode(node, cx)?],
            (None, None) => return wrong_type(node, cx),
        };
        Some(Self(names.into_iter().filter(|name| !name.is_empty()).collect()))
    }

    fn type_help() -> TypeHelp {
        let list = Vec::<String>::type_help().accepts;
        TypeHelp::plain("name of a namespace, or list of names")
            .accepting(YamlType::AnyOf(vec![YamlType::Text, list]))
    }

    fn show(&self) -> String {
        self.0.show()
    }
}

crate::options! {
    /// The pods that count. The API server sends no others.
    pub struct FilterConfig {
        /// Name of their node.
        pub node: String = String::new(),
        /// Environment variable with the name of their node.
        pub node_from_env_var: String = String::new(),
        /// Their namespace, or a list of them.
        pub namespace: Namespaces = Namespaces::default(),
        /// Conditions on their fields.
        pub fields: Vec<FieldFilter> = Vec::new(),
        /// Conditions on their labels.
        pub labels: Vec<FieldFilter> = Vec::new(),
    }
    check = FilterConfig::check
}

impl FilterConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        let nodes = at.child("fields").as_list().unwrap_or_default();
        for (filter, node) in self.fields.iter().zip(nodes) {
            if !matches!(filter.op, FilterOp::Equals | FilterOp::NotEquals) {
                let message = format!("`{}` is for labels: fields have equals and not-equals", filter.op);
                cx.at(node.child("op")).error(message);
            }
        }
    }
}

crate::choices! {
    /// Where a value comes from.
    pub enum SourceFrom {
        /// The address of the connection.
        Connection = "connection",
        /// An attribute of the resource.
        ResourceAttribute = "resource_attribute",
    }
}

crate::options! {
    /// A value that identifies a pod.
    pub struct AssociationSource {
        /// Where it comes from.
        pub from: SourceFrom = required,
        /// Name of the attribute, for `resource_attribute`.
        pub name: String = String::new(),
    }
    check = AssociationSource::check
}

impl AssociationSource {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.from == SourceFrom::ResourceAttribute && self.name.is_empty() {
            cx.at(at).error("`from: resource_attribute` needs a `name`");
        }
    }
}

crate::options! {
    /// Values that identify a pod together.
    pub struct PodAssociation {
        /// The values: 1 to 4.
        pub sources: Vec<AssociationSource> = required,
    }
    check = PodAssociation::check
}

impl PodAssociation {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.sources.is_empty() || self.sources.len() > MAX_SOURCES {
            let message = format!("an association has 1 to {MAX_SOURCES} sources");
            cx.at(at.child("sources")).error(message);
        }
    }
}

crate::options! {
    /// Pods by name.
    pub struct ExcludePod {
        /// Regular expression for a part of the name.
        pub name: Pattern = required,
    }
}

crate::options! {
    /// Pods that do not count.
    pub struct ExcludeConfig {
        /// Pods by name. Empty: `jaeger-agent` and `jaeger-collector`, as in the Collector.
        pub pods: Vec<ExcludePod> = Vec::new(),
    }
}

/// Options of the Collector that have no effect here.
const OF_INFORMERS: &WithoutEffect = &[(
    "watch_sync_period",
    "a watch needs no resync: lost events lead to a new list at once",
)];

crate::options! {
    /// Options of the `k8sattributes` processor.
    pub struct K8sAttributesConfig {
        /// Credentials for the API server: `serviceAccount` are those of this pod.
        pub auth_type: AuthType = AuthType::ServiceAccount,
        /// kubeconfig file for `auth_type: kubeConfig`. Empty: `KUBECONFIG`, or `~/.kube/config`.
        pub kube_config_path: String = String::new(),
        /// Context of the kubeconfig file. Empty: its current context.
        pub context: String = String::new(),
        /// Whether only `k8s.pod.ip` is added, without the API server.
        pub passthrough: bool = false,
        /// Attributes to add.
        pub extract: ExtractConfig = ExtractConfig::default(),
        /// Pods that count.
        pub filter: FilterConfig = FilterConfig::default(),
        /// Ways to identify the pod of a resource. The first way whose values are all present decides. Empty: by the
        /// attributes `k8s.pod.ip` and `ip`, the address of the connection, or an address in `host.name`.
        pub pod_association: Vec<PodAssociation> = Vec::new(),
        /// Pods that do not count.
        pub exclude: ExcludeConfig = ExcludeConfig::default(),
        /// Whether the start waits for all pods. Without it, data passes unchanged until they are known.
        pub wait_for_metadata: bool = false,
        /// Longest wait of `wait_for_metadata`. After it, the start fails.
        pub wait_for_metadata_timeout: Duration = Duration::from_secs(10),
        /// Time for which a deleted pod is still found.
        pub pod_delete_grace_period: Duration = Duration::from_secs(120),
    }
    accepted = OF_INFORMERS;
    check = K8sAttributesConfig::check
}

impl K8sAttributesConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.auth_type == AuthType::None {
            cx.at(at.child("auth_type"))
                .help("use `serviceAccount` in a pod, or `kubeConfig` with `kube_config_path`")
                .error("`none` is not supported: API servers demand credentials");
        }
        let of_file = [
            ("kube_config_path", &self.kube_config_path),
            ("context", &self.context),
        ];
        for (key, value) in of_file {
            if !value.is_empty() && self.auth_type != AuthType::KubeConfig {
                cx.at_key(at.child(key))
                    .warning("has no effect without `auth_type: kubeConfig`");
            }
        }
    }
}
