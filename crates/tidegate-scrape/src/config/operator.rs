// SPDX-License-Identifier: Apache-2.0

//! Options of `prometheus_cr`: objects of the Prometheus operator as sources of jobs.

use std::path::PathBuf;

use super::http::{self, http_options};
use super::kubernetes::{KubernetesAttachMetadata, KubernetesNamespaces, KubernetesRole, KubernetesSdConfig};
use super::units::ScalarText;
use tidegate_config::{Node, Ordered, Problems};
use tidegate_prometheus::duration::PromDuration;

tidegate_config::choices! {
    /// A comparison of a label with values.
    pub enum SelectorOperator {
        /// The label has one of the values.
        In = "In",
        /// The label has none of the values.
        NotIn = "NotIn",
        /// The label is present.
        Exists = "Exists",
        /// The label is absent.
        DoesNotExist = "DoesNotExist",
    }
}

tidegate_config::options! {
    /// A condition on one label.
    pub struct SelectorExpression {
        /// Name of the label.
        pub key: String = required,
        /// Comparison of the label with `values`.
        pub operator: SelectorOperator = required,
        /// Values, for `In` and `NotIn`.
        pub values: Vec<String> = Vec::new(),
    }
}

tidegate_config::options! {
    /// Objects by their labels. An empty selector selects all objects.
    pub struct ObjectSelector {
        /// Labels with the values that objects must have.
        #[alias = "matchLabels"]
        pub match_labels: Ordered<ScalarText> = Ordered::default(),
        /// Further conditions.
        #[alias = "matchExpressions"]
        pub match_expressions: Vec<SelectorExpression> = Vec::new(),
    }
    check = ObjectSelector::check
}

tidegate_config::options! {
    /// Namespaces of objects, by name or by label. An empty selector selects all namespaces.
    pub struct NamespaceSelector {
        /// Names of namespaces. The gateway then asks for objects of these namespaces only.
        pub names: Vec<String> = Vec::new(),
        /// Labels with the values that namespaces must have.
        #[alias = "matchLabels"]
        pub match_labels: Ordered<ScalarText> = Ordered::default(),
        /// Further conditions.
        #[alias = "matchExpressions"]
        pub match_expressions: Vec<SelectorExpression> = Vec::new(),
    }
    check = NamespaceSelector::check
}

tidegate_config::choices! {
    /// The objects that have the endpoints of services.
    pub enum EndpointsRole {
        /// Slices of endpoints.
        EndpointSlice = "EndpointSlice" | "endpointslice",
        /// Endpoints, which Kubernetes 1.33 deprecates.
        Endpoints = "Endpoints" | "endpoints",
    }
}

impl EndpointsRole {
    /// The role of a discovery.
    pub fn role(self) -> &'static str {
        match self {
            Self::EndpointSlice => "endpointslice",
            Self::Endpoints => "endpoints",
        }
    }
}

http_options! {
    /// Jobs from objects of the Prometheus operator.
    pub struct PrometheusCrConfig {
        /// Whether the receiver reads the objects.
        pub enabled: bool = false,
        /// `PodMonitor` objects by label. Unset: none. `{}`: all.
        pub pod_monitor_selector: Option<ObjectSelector> = None,
        /// Namespaces of `PodMonitor` objects.
        pub pod_monitor_namespace_selector: NamespaceSelector = NamespaceSelector::default(),
        /// `ServiceMonitor` objects by label. Unset: none. `{}`: all.
        pub service_monitor_selector: Option<ObjectSelector> = None,
        /// Namespaces of `ServiceMonitor` objects.
        pub service_monitor_namespace_selector: NamespaceSelector = NamespaceSelector::default(),
        /// `ScrapeConfig` objects by label. Unset: none. `{}`: all.
        pub scrape_config_selector: Option<ObjectSelector> = None,
        /// Namespaces of `ScrapeConfig` objects.
        pub scrape_config_namespace_selector: NamespaceSelector = NamespaceSelector::default(),
        /// Interval of scrapes of objects without one.
        pub scrape_interval: PromDuration = PromDuration::seconds(30),
        /// Objects that have the endpoints of a `ServiceMonitor`.
        pub service_discovery_role: EndpointsRole = EndpointsRole::EndpointSlice,
        /// Whether objects may name files of the gateway, such as `bearerTokenFile`. Everybody who may create such
        /// objects can then send these files to any target.
        pub allow_file_access: bool = false,
        /// URL of the API server. Unset: the server of the cluster that runs this pod.
        pub api_server: Option<String> = None,
        /// kubeconfig file with the API server, instead of `api_server`.
        pub kubeconfig_file: Option<PathBuf> = None,
    }
    refused = REFUSED;
    check = PrometheusCrConfig::check
}

/// Options of the target allocator that the receiver does not take, and those of HTTP clients.
const REFUSED: &[(&str, &str)] = &[
    (
        "probe_selector",
        "probes are not supported: use a `ScrapeConfig` object",
    ),
    (
        "probe_namespace_selector",
        "probes are not supported: use a `ScrapeConfig` object",
    ),
    ("scrape_classes", "scrape classes are not supported"),
    ("allow_namespaces", "use `names` of the namespace selectors"),
    ("deny_namespaces", "use labels in the namespace selectors"),
    ("scrape_protocols", "use `scrape_protocols` of `global`"),
    http::REFUSED[0],
    http::REFUSED[1],
    http::REFUSED[2],
    http::REFUSED[3],
    http::REFUSED[4],
];

impl PrometheusCrConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        self.check_http(at, cx);
        self.kubernetes().check_server(at, cx);
        if self.scrape_interval.is_zero() {
            cx.at(at.child("scrape_interval"))
                .error("must be greater than zero");
        }
        let selectors = [
            &self.pod_monitor_selector,
            &self.service_monitor_selector,
            &self.scrape_config_selector,
        ];
        if self.enabled && selectors.iter().all(|selector| selector.is_none()) {
            cx.at(at)
                .help("add `pod_monitor_selector: {}` for all pod monitors, say")
                .error("no object is selected");
        }
    }

    /// A discovery at the same API server.
    pub fn kubernetes(&self) -> KubernetesSdConfig {
        KubernetesSdConfig {
            role: KubernetesRole::Pod,
            api_server: self.api_server.clone(),
            kubeconfig_file: self.kubeconfig_file.clone(),
            namespaces: KubernetesNamespaces::default(),
            selectors: Vec::new(),
            attach_metadata: KubernetesAttachMetadata::default(),
            basic_auth: self.basic_auth.clone(),
            authorization: self.authorization.clone(),
            bearer_token: self.bearer_token.clone(),
            bearer_token_file: self.bearer_token_file.clone(),
            tls_config: self.tls_config.clone(),
            follow_redirects: self.follow_redirects,
            enable_http2: self.enable_http2,
            http_headers: self.http_headers.clone(),
        }
    }
}

impl ObjectSelector {
    fn check(&self, at: &Node, cx: &mut Problems) {
        check_selector(&self.match_labels, &self.match_expressions, at, cx);
    }

    /// The selector in the form of the API.
    pub fn text(&self) -> String {
        selector_text(&self.match_labels, &self.match_expressions)
    }
}

impl NamespaceSelector {
    fn check(&self, at: &Node, cx: &mut Problems) {
        check_selector(&self.match_labels, &self.match_expressions, at, cx);
        if !self.names.is_empty() && !self.text().is_empty() {
            cx.at(at).error("namespaces are by name or by label, not both");
        }
    }

    /// The selector of labels in the form of the API.
    pub fn text(&self) -> String {
        selector_text(&self.match_labels, &self.match_expressions)
    }
}

/// Whether the server takes a text in a selector.
fn is_selectable(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    text.chars().all(allowed)
}

fn check_selector(
    labels: &Ordered<ScalarText>,
    expressions: &[SelectorExpression],
    at: &Node,
    cx: &mut Problems,
) {
    for (name, value) in labels.iter() {
        if name.is_empty() || !is_selectable(name) || !is_selectable(&value.0) {
            cx.at(at).error(format!("no object can have the label {name:?}"));
        }
    }
    for SelectorExpression {
        key,
        operator,
        values,
    } in expressions
    {
        if key.is_empty() || !is_selectable(key) || !values.iter().all(|value| is_selectable(value)) {
            cx.at(at).error(format!("no object can have the label {key:?}"));
        }
        let needs_values = matches!(operator, SelectorOperator::In | SelectorOperator::NotIn);
        if needs_values == values.is_empty() {
            let expected = if needs_values { "needs" } else { "takes no" };
            cx.at(at).error(format!("{operator} {expected} values"));
        }
    }
}

fn selector_text(labels: &Ordered<ScalarText>, expressions: &[SelectorExpression]) -> String {
    let labels = labels.iter().map(|(name, value)| format!("{name}={}", value.0));
    let expressions = expressions.iter().map(|expression| {
        let SelectorExpression {
            key,
            operator,
            values,
        } = expression;
        match operator {
            SelectorOperator::In => format!("{key} in ({})", values.join(",")),
            SelectorOperator::NotIn => format!("{key} notin ({})", values.join(",")),
            SelectorOperator::Exists => key.clone(),
            SelectorOperator::DoesNotExist => format!("!{key}"),
        }
    });
    labels.chain(expressions).collect::<Vec<_>>().join(",")
}
