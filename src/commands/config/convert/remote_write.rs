// SPDX-License-Identifier: Apache-2.0

//! `remote_write` of Prometheus: exporters, with the extensions that have their credentials.

use super::map_of;
use super::report::Report;
use crate::config::{Entry, Node, NodeValue, Span};

const EXPORTER: &str = "prometheusremotewrite";

/// Options by their name in Prometheus and the name here.
type OptionPairs = [(&'static str, &'static str)];

/// Options of a destination.
const OPTIONS: &OptionPairs = &[
    ("url", "endpoint"),
    ("headers", "headers"),
    ("remote_timeout", "timeout"),
    ("protobuf_message", "protobuf_message"),
    ("proxy_url", "proxy_url"),
    ("enable_http2", "force_attempt_http2"),
];

const TLS: &OptionPairs = &[
    ("ca", "ca_pem"),
    ("ca_file", "ca_file"),
    ("cert", "cert_pem"),
    ("cert_file", "cert_file"),
    ("key", "key_pem"),
    ("key_file", "key_file"),
    ("server_name", "server_name_override"),
    ("insecure_skip_verify", "insecure_skip_verify"),
    ("min_version", "min_version"),
    ("max_version", "max_version"),
];

const QUEUE: &OptionPairs = &[
    ("min_backoff", "initial_interval"),
    ("max_backoff", "max_interval"),
];

const BASIC: &OptionPairs = &[
    ("username", "username"),
    ("username_file", "username_file"),
    ("password", "password"),
    ("password_file", "password_file"),
];

const AUTHORIZATION: &OptionPairs = &[
    ("type", "scheme"),
    ("credentials", "token"),
    ("credentials_file", "filename"),
];

const SIGV4: &OptionPairs = &[("region", "region"), ("profile", "profile")];

/// The exporters and extensions of a configuration.
pub(super) struct Outputs {
    exporters: Node,
    extensions: Node,
    span: Span,
}

impl Outputs {
    pub(super) fn new(span: Span) -> Self {
        Self {
            exporters: Node::empty_map(span),
            extensions: Node::empty_map(span),
            span,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.exporters.as_map().is_none_or(<[_]>::is_empty)
    }

    /// Adds an item of `remote_write`.
    pub(super) fn add(&mut self, write: &Node, report: &mut Report) {
        let Some(entries) = write.as_map() else {
            report.add(write, "not a map: write `{url: ...}`");
            return;
        };
        let name = write.get("name").and_then(Node::as_text).unwrap_or_default();
        let id = self.free_id(name);
        let mut exporter = Node::empty_map(write.span());
        for Entry { key, value } in entries {
            let name = OPTIONS.iter().find(|(old, _)| old == key);
            match (key.as_str(), name) {
                (_, Some((_, name))) => exporter.set(name, value.clone()),
                ("name", _) => {}
                ("tls_config", _) => exporter.set("tls", tls(value, report)),
                ("queue_config", _) => exporter.set("retry_on_failure", renamed(value, QUEUE, report)),
                ("metadata_config", _) => {
                    if let Some(send) = renamed(value, &[("send", "send")], report).take("send") {
                        exporter.set("send_metadata", send);
                    }
                }
                (key, _) => match extension(key, value, report) {
                    Some((kind, options)) => {
                        let name = id.strip_prefix(EXPORTER).unwrap_or_default();
                        let authenticator = self.add_extension(kind, name.trim_start_matches('/'), options);
                        let name = Node::of_text(&authenticator, value.span());
                        exporter.set("auth", map_of(value.span(), [("authenticator", name)]));
                    }
                    None => report.add(value, format!("not in tidegate: {}", instead(key))),
                },
            }
        }
        exporter.set("disable_scope_info", Node::of_bool(true, write.span()));
        self.exporters.set(&id, exporter);
    }

    /// Adds a URL of a command line.
    pub(super) fn add_url(&mut self, url: &str) {
        let id = self.free_id("");
        let url = Node::of_text(&url.replace('$', "$$"), self.span);
        let exporter = [
            ("endpoint", url),
            ("disable_scope_info", Node::of_bool(true, self.span)),
        ];
        self.exporters.set(&id, map_of(self.span, exporter));
    }

    /// Adds a page that Prometheus scrapes.
    pub(super) fn add_page(&mut self, address: &str) {
        let page = [
            ("endpoint", Node::of_text(address, self.span)),
            ("without_scope_info", Node::of_bool(true, self.span)),
        ];
        self.exporters.set("prometheus", map_of(self.span, page));
    }

    /// Adds labels to the series of all destinations. `false`: there is no destination yet.
    pub(super) fn add_external_labels(&mut self, labels: &Node) -> bool {
        let NodeValue::Map(exporters) = self.exporters.value_mut() else {
            return false;
        };
        exporters
            .iter_mut()
            .for_each(|exporter| exporter.value.set("external_labels", labels.clone()));
        !exporters.is_empty()
    }

    /// Adds an extension, and gives its id. If another has the name, it gets a number.
    pub(super) fn add_extension(&mut self, kind: &str, name: &str, options: Node) -> String {
        let first = match name {
            "" => kind.to_owned(),
            name => format!("{kind}/{name}"),
        };
        let count = self.extensions.as_map().map_or(0, <[_]>::len);
        let id = free_id(&self.extensions, first, kind, count);
        self.extensions.set(&id, options);
        id
    }

    /// Adds the sections to a configuration, with pipelines to all exporters. Each is named with its receiver.
    pub(super) fn finish(self, document: &mut Node, pipelines: &[(&str, &str)]) {
        let Self {
            exporters,
            extensions,
            span,
        } = self;
        let ids = |section: &Node| {
            let entries = section.as_map().unwrap_or_default().iter();
            let ids = entries.map(|entry| Node::of_text(&entry.key, span));
            Node::of_items(ids.collect(), span)
        };
        let mut all = Node::empty_map(span);
        for (id, receiver) in pipelines {
            let receivers = Node::of_items(vec![Node::of_text(receiver, span)], span);
            let pipeline = [("receivers", receivers), ("exporters", ids(&exporters))];
            all.set(id, map_of(span, pipeline));
        }
        let mut service = Node::empty_map(span);
        let has_extensions = extensions.as_map().is_some_and(|entries| !entries.is_empty());
        if has_extensions {
            service.set("extensions", ids(&extensions));
        }
        service.set("pipelines", all);
        document.set("exporters", exporters);
        if has_extensions {
            document.set("extensions", extensions);
        }
        document.set("service", service);
    }

    /// The id of an exporter that no other has.
    fn free_id(&self, name: &str) -> String {
        let count = self.exporters.as_map().map_or(0, <[_]>::len);
        let first = match name {
            "" => EXPORTER.to_owned(),
            name => format!("{EXPORTER}/{name}"),
        };
        free_id(&self.exporters, first, EXPORTER, count)
    }
}

/// The first id, or if a section of `count` components has it, one with a number.
fn free_id(section: &Node, first: String, kind: &str, count: usize) -> String {
    let further = (count + 1..=2 * count + 2).map(|number| format!("{kind}/{number}"));
    let mut free = std::iter::once(first.clone())
        .chain(further)
        .filter(|id| section.get(id).is_none());
    free.next().unwrap_or(first)
}

/// The options of a map under their names here. Reports the others.
fn renamed(from: &Node, names: &OptionPairs, report: &mut Report) -> Node {
    let mut to = Node::empty_map(from.span());
    for Entry { key, value } in from.as_map().unwrap_or_default() {
        match names.iter().find(|(old, _)| old == key) {
            Some((_, name)) => to.set(name, value.clone()),
            None => report.add(value, format!("not in tidegate: {}", instead(key))),
        }
    }
    to
}

/// The options of `tls_config` under their names here.
pub(super) fn tls(from: &Node, report: &mut Report) -> Node {
    let mut tls = renamed(from, TLS, report);
    for key in ["min_version", "max_version"] {
        let Some(version) = tls.get_mut(key) else { continue };
        let number = match version.as_str() {
            Some("TLS12") => "1.2",
            Some("TLS13") => "1.3",
            _ => continue,
        };
        *version = Node::of_text(number, version.span());
    }
    tls
}

/// The type and the options of the extension that has some credentials.
pub(super) fn extension(key: &str, value: &Node, report: &mut Report) -> Option<(&'static str, Node)> {
    let span = value.span();
    Some(match key {
        "basic_auth" => {
            let client = renamed(value, BASIC, report);
            ("basicauth", map_of(span, [("client_auth", client)]))
        }
        "authorization" => ("bearertokenauth", renamed(value, AUTHORIZATION, report)),
        "bearer_token" => ("bearertokenauth", map_of(span, [("token", value.clone())])),
        "bearer_token_file" => ("bearertokenauth", map_of(span, [("filename", value.clone())])),
        "sigv4" => {
            let mut options = renamed(value, SIGV4, report);
            // Prometheus signs for Amazon Managed Service for Prometheus.
            options.set("service", Node::of_text("aps", span));
            ("sigv4auth", options)
        }
        _ => return None,
    })
}

/// The replacement for an option of `remote_write`.
fn instead(key: &str) -> &'static str {
    match key {
        "write_relabel_configs" => {
            "use `metric_relabel_configs` of the job, or the processors `filter` and `attributes`"
        }
        "oauth2" | "azuread" | "google_iam" => {
            "use the extension `bearertokenauth` with a file that another program renews"
        }
        "capacity" | "max_shards" | "min_shards" | "max_samples_per_send" | "batch_send_deadline" => {
            "use `sending_queue` and `max_batch_size_bytes` of the exporter"
        }
        "access_key" | "secret_key" => "use `credentials_file` of the extension `sigv4auth`",
        _ => "use the options that `tidegate components prometheusremotewrite` lists",
    }
}
