// SPDX-License-Identifier: Apache-2.0

//! What options mean for the machine. A table, because types do not tell an address to listen on from one to send to.

/// The meaning of an option's value for the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Address to listen on: `host:port` or `unix:/path`.
    Listen,
    /// Path of a stream socket to make.
    StreamSocket,
    /// Path of a datagram socket to make.
    DatagramSocket,
    /// Address or URL that the gateway needs.
    Peer,
    /// Address of a target, which may be away.
    Target,
    /// PEM file with a chain of certificates.
    Certificate,
    /// PEM file with a private key.
    Key,
    /// PEM file with authorities.
    Authorities,
    /// File with a password or a token.
    Secret,
    /// File to read.
    File,
    /// Glob of files to read.
    Files,
    /// Directory to read. It may be a glob, and it may appear later.
    Directory,
    /// Directory of cells: to read, and to fold unless `fold: false`.
    CellDirectory,
    /// Directory of stored data.
    StorageDirectory,
    /// File to write.
    OutputFile,
    /// Most connections of a listener.
    Connections,
    /// Memory limit in MiB.
    MemoryMib,
    /// Memory limit in bytes.
    MemoryBytes,
}

/// Options with the same role.
struct Rule {
    /// `exporters.otlp`: paths are whole. Empty: in every component, where a path ends so.
    component: &'static str,
    options: &'static [&'static str],
    role: Role,
}

const fn everywhere(options: &'static [&'static str], role: Role) -> Rule {
    Rule {
        component: "",
        options,
        role,
    }
}

const fn only(component: &'static str, options: &'static [&'static str], role: Role) -> Rule {
    Rule {
        component,
        options,
        role,
    }
}

/// The first rule that fits counts.
const RULES: &[Rule] = &[
    // Listeners.
    only(
        "receivers.otlp",
        &["protocols::grpc::endpoint", "protocols::http::endpoint"],
        Role::Listen,
    ),
    only("receivers.prometheusremotewrite", &["endpoint"], Role::Listen),
    only("exporters.prometheus", &["endpoint"], Role::Listen),
    only("extensions.admin", &["endpoint"], Role::Listen),
    only("extensions.health_check", &["endpoint"], Role::Listen),
    only(
        "extensions.healthcheckv2",
        &["endpoint", "http::endpoint"],
        Role::Listen,
    ),
    only("extensions.pprof", &["endpoint"], Role::Listen),
    only("extensions.zpages", &["endpoint"], Role::Listen),
    only(
        "extensions.cluster",
        &["engine::direct::serve::endpoint"],
        Role::Listen,
    ),
    only("receivers.uds", &["stream::path"], Role::StreamSocket),
    only("receivers.uds", &["datagram::path"], Role::DatagramSocket),
    // Peers.
    only("exporters.otlp", &["endpoint"], Role::Peer),
    only(
        "exporters.otlphttp",
        &["endpoint", "traces_endpoint", "metrics_endpoint", "logs_endpoint"],
        Role::Peer,
    ),
    only("exporters.prometheusremotewrite", &["endpoint"], Role::Peer),
    only(
        "exporters.loadbalancing",
        &["resolver::static::hostnames", "resolver::dns::hostname"],
        Role::Peer,
    ),
    only(
        "extensions.cluster",
        &["engine::direct::replicas", "engine::direct::dns"],
        Role::Peer,
    ),
    only("extensions.admin", &["history::peers::endpoints"], Role::Peer),
    only("extensions.rules", &["alertmanagers::endpoint"], Role::Peer),
    only(
        "receivers.prometheus",
        &["target_allocator::endpoint"],
        Role::Peer,
    ),
    everywhere(
        &[
            "brokers",
            "servers",
            "proxy_url",
            "webhook::endpoint",
            "api_server",
        ],
        Role::Peer,
    ),
    everywhere(&["static_configs::targets", "http_sd_configs::url"], Role::Target),
    // Files.
    everywhere(&["cert_file"], Role::Certificate),
    everywhere(&["key_file"], Role::Key),
    everywhere(&["ca_file", "client_ca_file"], Role::Authorities),
    only("extensions.bearertokenauth", &["filename"], Role::Secret),
    everywhere(
        &[
            "password_file",
            "credentials_file",
            "token_file",
            "bearer_token_file",
            "htpasswd::file",
            "http_headers::files",
        ],
        Role::Secret,
    ),
    everywhere(
        &[
            "username_file",
            "kubeconfig_file",
            "kube_config_path",
            "resolv_conf",
        ],
        Role::File,
    ),
    only("exporters.plugin", &["path"], Role::File),
    everywhere(&["file_sd_configs::files"], Role::Files),
    only("extensions.rules", &["files"], Role::Files),
    only("exporters.file", &["path"], Role::OutputFile),
    only("extensions.composite_page", &["path"], Role::OutputFile),
    // Directories.
    only("receivers.nixl", &["directories"], Role::Directory),
    only("receivers.nixl_mp", &["directories"], Role::Directory),
    only("receivers.shm", &["directories"], Role::CellDirectory),
    only("exporters.plugin", &["directories"], Role::Directory),
    only("extensions.file_storage", &["directory"], Role::StorageDirectory),
    // Limits.
    everywhere(&["max_connections"], Role::Connections),
    only("processors.memory_limiter", &["limit_mib"], Role::MemoryMib),
    only("extensions.admin", &["history::max_bytes"], Role::MemoryBytes),
    only("processors.aggregate", &["max_bytes"], Role::MemoryBytes),
    only(
        "extensions.cluster",
        &[
            "engine::direct::serve::max_bytes",
            "engine::kafka::max_index_bytes",
        ],
        Role::MemoryBytes,
    ),
    only("exporters.plugin", &["memory_limit"], Role::MemoryBytes),
    only("receivers.prometheus", &["max_buffered_size"], Role::MemoryBytes),
];

/// The role of an option, if the machine matters to it.
pub(super) fn of_option(component: &str, option: &str) -> Option<Role> {
    let rule = RULES.iter().find(|rule| rule.fits(component, option))?;
    let is_exception = EXCEPTIONS
        .iter()
        .any(|(of, path, _)| *of == component && *path == option);
    (!is_exception).then_some(rule.role)
}

impl Rule {
    fn fits(&self, component: &str, option: &str) -> bool {
        if self.component.is_empty() {
            self.options.iter().any(|name| ends_with(option, name))
        } else {
            self.component == component && self.options.contains(&option)
        }
    }
}

/// Whether a path has these last steps.
fn ends_with(option: &str, steps: &str) -> bool {
    option
        .strip_suffix(steps)
        .is_some_and(|before| before.is_empty() || before.ends_with("::"))
}

/// Options that look as if the machine mattered: the component, the path, and why it does not matter.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("receivers.nixl", "hostname", "a value of an attribute"),
    (
        "receivers.otlp",
        "protocols::http::metrics_url_path",
        "a path of HTTP",
    ),
    (
        "receivers.otlp",
        "protocols::http::traces_url_path",
        "a path of HTTP",
    ),
    (
        "receivers.otlp",
        "protocols::http::logs_url_path",
        "a path of HTTP",
    ),
    ("receivers.prometheusremotewrite", "path", "a path of HTTP"),
    (
        "receivers.prometheus",
        "config::scrape_configs::metrics_path",
        "a path of HTTP",
    ),
    (
        "receivers.prometheus",
        "config::scrape_configs::dns_sd_configs::servers",
        "the receiver asks several servers and may start before them",
    ),
    ("exporters.prometheus", "path", "a path of HTTP"),
    ("exporters.prometheusremotewrite", "scope_schema_url", "a switch"),
    ("exporters.prometheus", "scope_schema_url", "a switch"),
    ("extensions.health_check", "path", "a path of HTTP"),
    ("extensions.healthcheckv2", "path", "a path of HTTP"),
    ("extensions.healthcheckv2", "http::status::path", "a path of HTTP"),
    ("extensions.pprof", "save_to_file", "the reader refuses it"),
    ("extensions.file_storage", "create_directory", "a switch"),
    (
        "extensions.rules",
        "external_url",
        "an address for people, which the gateway does not use",
    ),
    (
        "exporters.loadbalancing",
        "resolver::k8s::return_hostnames",
        "a switch",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::components;
    use crate::config::OptionDoc;

    /// Types of options that name something on the machine or in the network.
    const TYPES: &[&str] = &[
        "path",
        "list of paths",
        "endpoint",
        "URL",
        "list of URLs",
        "URL of a proxy",
    ];

    /// Ends of names of such options.
    const ENDS: &[&str] = &[
        "endpoint",
        "endpoints",
        "path",
        "file",
        "files",
        "filename",
        "directory",
        "directories",
        "url",
        "servers",
        "brokers",
        "hostname",
        "hostnames",
        "api_server",
        "targets",
    ];

    fn concerns_machine(option: &OptionDoc) -> bool {
        TYPES.contains(&option.type_help.name.as_str())
            || ENDS.iter().any(|end| is_last_word(option.name, end))
    }

    fn is_last_word(name: &str, word: &str) -> bool {
        name.strip_suffix(word)
            .is_some_and(|before| before.is_empty() || before.ends_with('_'))
    }

    fn unlisted(component: &str, path: &str, options: &[OptionDoc], missing: &mut Vec<String>) {
        for option in options.iter().filter(|option| !option.is_without_effect) {
            let path = match path {
                "" => option.name.to_owned(),
                path => format!("{path}::{}", option.name),
            };
            let is_exception = EXCEPTIONS
                .iter()
                .any(|(of, exception, _)| *of == component && *exception == path);
            if concerns_machine(option) && !is_exception && of_option(component, &path).is_none() {
                missing.push(format!("{component}: {path}"));
            }
            unlisted(component, &path, &option.nested(), missing);
        }
    }

    #[test]
    fn every_address_file_and_directory_has_a_role_or_is_an_exception() {
        let mut missing = Vec::new();
        for about in components::all() {
            let component = format!("{}.{}", about.class.section(), about.kind);
            unlisted(&component, "", &(about.config.docs)(), &mut missing);
        }
        assert!(
            missing.is_empty(),
            "add these to RULES or to EXCEPTIONS: {missing:#?}"
        );
    }

    #[test]
    fn addresses_to_listen_on_and_to_send_to_are_told_apart() {
        for (component, option, role) in [
            ("exporters.otlp", "endpoint", Some(Role::Peer)),
            ("exporters.prometheus", "endpoint", Some(Role::Listen)),
            (
                "receivers.otlp",
                "protocols::grpc::tls::key_file",
                Some(Role::Key),
            ),
            ("extensions.health_check", "path", None),
            ("exporters.nop", "endpoint", None),
        ] {
            assert_eq!(of_option(component, option), role, "{component} {option}");
        }
    }
}
