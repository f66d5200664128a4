// SPDX-License-Identifier: Apache-2.0

//! Options of `kubernetes_sd_configs`.

use std::path::PathBuf;

use super::http::{self, http_options};
use tidegate_config::{Node, Problems};

tidegate_config::choices! {
    /// A kind of targets.
    pub enum KubernetesRole {
        /// Ports of containers.
        Pod = "pod",
        /// Ports of services.
        Service = "service",
        /// Endpoints of services, which Kubernetes 1.33 deprecates.
        Endpoints = "endpoints",
        /// Slices of endpoints of services.
        EndpointSlice = "endpointslice",
        /// Kubelets.
        Node = "node",
        /// Paths of ingresses.
        Ingress = "ingress",
    }
}

tidegate_config::options! {
    /// Namespaces of the targets.
    pub struct KubernetesNamespaces {
        /// Whether the namespace of this pod is one of them.
        pub own_namespace: bool = false,
        /// Names of namespaces. Without names and `own_namespace`, all namespaces count.
        pub names: Vec<String> = Vec::new(),
    }
}

tidegate_config::options! {
    /// The objects of a role that count.
    pub struct KubernetesSelector {
        /// Role of the objects.
        pub role: KubernetesRole = required,
        /// Label selector, such as `app=web`.
        pub label: String = String::new(),
        /// Field selector, such as `spec.nodeName=a`.
        pub field: String = String::new(),
    }
}

tidegate_config::options! {
    /// Further labels of the targets.
    pub struct KubernetesAttachMetadata {
        /// Whether targets have the labels of their node. For `pod`, `endpoints` and `endpointslice`. Targets of `pod` are
        /// then on selected nodes only.
        pub node: bool = false,
        /// Whether targets have the labels and annotations of their namespace. For all roles except `node`.
        pub namespace: bool = false,
        /// Whether targets have the name of the Deployment of their pod. For `pod`, `endpoints` and `endpointslice`.
        pub deployment: bool = false,
        /// Whether targets have the name of the Job of their pod. For `pod`, `endpoints` and `endpointslice`.
        pub job: bool = false,
        /// Whether targets have the name of the CronJob of their pod. For `pod`, `endpoints` and `endpointslice`.
        pub cronjob: bool = false,
    }
}

http_options! {
    /// Targets from the API of Kubernetes.
    pub struct KubernetesSdConfig {
        /// Kind of targets.
        pub role: KubernetesRole = required,
        /// URL of the API server. Unset: the server of the cluster that runs this pod.
        pub api_server: Option<String> = None,
        /// kubeconfig file with the API server, instead of `api_server`.
        pub kubeconfig_file: Option<PathBuf> = None,
        /// Namespaces of the targets.
        pub namespaces: KubernetesNamespaces = KubernetesNamespaces::default(),
        /// Selectors, one for each role. They reduce the objects that the server sends.
        pub selectors: Vec<KubernetesSelector> = Vec::new(),
        /// Further labels of the targets.
        pub attach_metadata: KubernetesAttachMetadata = KubernetesAttachMetadata::default(),
    }
    refused = http::REFUSED;
    check = KubernetesSdConfig::check
}

impl KubernetesSdConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        self.check_http(at, cx);
        self.check_server(at, cx);
        self.check_selectors(at, cx);
    }

    pub(super) fn check_server(&self, at: &Node, cx: &mut Problems) {
        let has_server = self.api_server.is_some();
        let has_file = self.kubeconfig_file.is_some();
        if has_server && has_file {
            cx.at_key(at.child("kubeconfig_file"))
                .error("cannot use 'kubeconfig_file' and 'api_server' simultaneously");
        }
        if !has_server && self.http() != Self::without_http().http() {
            cx.at(at)
                .help("a pod and a kubeconfig file have their own credentials and certificates")
                .error(
                    "to use custom HTTP client configuration please provide the 'api_server' URL explicitly",
                );
        }
        if self.namespaces.own_namespace && (has_server || has_file) {
            cx.at(at.child("namespaces"))
                .error("cannot use 'namespaces.own_namespace' with 'api_server' or 'kubeconfig_file'");
        }
        if self.api_server.as_deref().is_some_and(|url| !is_url(url)) {
            cx.at(at.child("api_server"))
                .error("expected a URL that begins with http:// or https://, without credentials");
        }
    }

    /// The options without any of an HTTP client.
    fn without_http() -> Self {
        Self {
            role: KubernetesRole::Pod,
            api_server: None,
            kubeconfig_file: None,
            namespaces: KubernetesNamespaces::default(),
            selectors: Vec::new(),
            attach_metadata: KubernetesAttachMetadata::default(),
            basic_auth: None,
            authorization: None,
            bearer_token: None,
            bearer_token_file: None,
            tls_config: http::TlsConfig::default(),
            follow_redirects: true,
            enable_http2: true,
            http_headers: tidegate_config::Ordered::default(),
        }
    }

    fn check_selectors(&self, at: &Node, cx: &mut Problems) {
        let nodes = at.child("selectors").as_list().unwrap_or_default();
        for (index, (selector, node)) in self.selectors.iter().zip(nodes).enumerate() {
            let role = selector.role;
            if self.selectors[..index].iter().any(|other| other.role == role) {
                cx.at(node).error(format!("duplicated selector role: {role}"));
            }
            if !self.selectable().contains(&role) {
                let allowed: Vec<_> = self.selectable().iter().map(|role| role.as_str()).collect();
                cx.at(node).error(format!(
                    "{} role supports only {} selectors",
                    self.role,
                    allowed.join(", ")
                ));
            }
        }
    }

    /// The roles that a selector may have.
    fn selectable(&self) -> &'static [KubernetesRole] {
        use KubernetesRole::{EndpointSlice, Endpoints, Ingress, Node, Pod, Service};
        let has_nodes = self.attach_metadata.node;
        match self.role {
            Pod => &[Pod, Node],
            Service => &[Service],
            Endpoints if has_nodes => &[Pod, Service, Endpoints, Node],
            Endpoints => &[Pod, Service, Endpoints],
            EndpointSlice if has_nodes => &[Pod, Service, EndpointSlice, Node],
            EndpointSlice => &[Pod, Service, EndpointSlice],
            Node => &[Node],
            Ingress => &[Ingress],
        }
    }
}

fn is_url(text: &str) -> bool {
    let url = text.parse::<::http::Uri>().ok();
    let is_http = url.is_some_and(|url| {
        matches!(url.scheme_str(), Some("http" | "https"))
            && url.authority().is_some_and(|host| !host.as_str().contains('@'))
    });
    is_http && !text.contains('?')
}
