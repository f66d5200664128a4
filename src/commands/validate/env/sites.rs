// SPDX-License-Identifier: Apache-2.0

//! Values of options that the machine matters to, of all components that run: written ones and defaults.

use std::collections::HashSet;

use super::report::Position;
use super::roles::{self, Role};
use crate::commands::components::{self, About};
use crate::config::{Class, Component, ComponentId, Document, Node, OptionDoc, REDACTED, YamlType};
use crate::service::Plan;

/// A value with its meaning and its position.
pub(super) struct Site<'a> {
    pub(super) role: Role,
    /// Class and type of the component: `exporters.otlp`.
    pub(super) component: String,
    /// The path in the configuration: `exporters::otlp/vendor::tls::ca_file`.
    pub(super) path: String,
    /// The value.
    pub(super) text: String,
    /// The value in the configuration. `None`: the default.
    pub(super) node: Option<&'a Node>,
    /// The map that has the option, or the next one above it.
    pub(super) table: &'a Node,
}

impl Site<'_> {
    /// Where findings point.
    pub(super) fn position(&self) -> Position {
        let of_table = || self.table.key_span().unwrap_or(self.table.span());
        Position {
            span: Some(self.node.map_or_else(of_table, Node::span)),
            path: self.path.clone(),
        }
    }

    /// The value in quotes, or `the value` where it must not be shown.
    pub(super) fn shown(&self) -> String {
        self.node
            .map_or_else(|| format!("\"{}\"", self.text), Node::shown)
    }

    /// The path of the map that has the option.
    pub(super) fn group(&self) -> &str {
        self.path.rsplit_once("::").map_or("", |(group, _)| group)
    }
}

/// The sites of all components that pipelines or `service::extensions` name.
pub(super) fn used<'a>(document: &'a Document, plan: &Plan) -> Vec<Site<'a>> {
    let running = running(plan);
    let known = components::all();
    let mut sites = Vec::new();
    let used = document.components().iter();
    for component in used.filter(|component| running.contains(&(component.class, &component.id))) {
        if let Some(about) = known.iter().find(|about| describes(about, component)) {
            let mut walk = Walk {
                component: format!("{}.{}", about.class.section(), about.kind),
                root: &component.options,
                sites: &mut sites,
            };
            let path = format!("{}::{}", component.class.section(), component.id);
            let options = &component.options;
            walk.table(&(about.config.docs)(), Some(options), options, ("", &path));
        }
    }
    sites
}

fn describes(about: &About, component: &Component) -> bool {
    let kind = component.id.kind.as_str();
    about.class == component.class && (about.kind == kind || about.aliases.contains(&kind))
}

fn running(plan: &Plan) -> HashSet<(Class, &ComponentId)> {
    let mut running = HashSet::new();
    for pipeline in &plan.pipelines {
        let ends = [
            (Class::Receiver, &pipeline.receivers),
            (Class::Connector, &pipeline.receivers),
            (Class::Processor, &pipeline.processors),
            (Class::Exporter, &pipeline.exporters),
            (Class::Connector, &pipeline.exporters),
        ];
        for (class, ids) in ends {
            running.extend(ids.iter().map(|id| (class, id)));
        }
    }
    running.extend(plan.extension_order.iter().map(|id| (Class::Extension, id)));
    running
}

/// A walk through the options of one component.
struct Walk<'a, 's> {
    component: String,
    root: &'a Node,
    sites: &'s mut Vec<Site<'a>>,
}

/// The path in the table of options (`tls::ca_file`), and the one in the configuration.
type Paths<'p> = (&'p str, &'p str);

impl<'a> Walk<'a, '_> {
    /// Walks a table. `node`: its map, if it is written. `above`: this map, or the next one above it.
    fn table(&mut self, docs: &[OptionDoc], node: Option<&'a Node>, above: &'a Node, paths: Paths<'_>) {
        for doc in docs.iter().filter(|doc| !doc.is_without_effect) {
            let found = node.and_then(|node| spellings(doc).find_map(|name| node.get(name)));
            let option = joined(paths.0, doc.name);
            let path = joined(paths.1, doc.name);
            let nested = doc.nested();
            let is_scalar = found.is_some_and(|found| found.scalar().is_some() && !found.is_null());
            if nested.is_empty() || is_scalar {
                self.value(doc, found, above, (&option, &path));
            } else {
                self.nested(doc, &nested, found, above, (&option, &path));
            }
        }
    }

    fn nested(
        &mut self,
        doc: &OptionDoc,
        options: &[OptionDoc],
        found: Option<&'a Node>,
        above: &'a Node,
        (option, path): Paths<'_>,
    ) {
        let Some(found) = found else {
            let has_defaults = doc
                .default
                .as_deref()
                .is_some_and(|default| default.starts_with('{'));
            if has_defaults {
                self.table(options, None, above, (option, path));
            }
            return;
        };
        if let Some(items) = found.as_list() {
            for (i, item) in items.iter().enumerate() {
                self.table(options, Some(item), item, (option, &format!("{path}[{i}]")));
            }
        } else if let Some(entries) = found.as_map().filter(|_| is_map(&doc.type_help.accepts)) {
            for entry in entries {
                let value = &entry.value;
                self.table(options, Some(value), value, (option, &joined(path, &entry.key)));
            }
        } else {
            self.table(options, Some(found), found, (option, path));
        }
    }

    fn value(&mut self, doc: &OptionDoc, found: Option<&'a Node>, above: &'a Node, paths: Paths<'_>) {
        let (option, path) = paths;
        let Some(role) = roles::of_option(&self.component, option) else {
            return;
        };
        // `healthcheckv2` reads only one of its two endpoints.
        if self.component == "extensions.healthcheckv2"
            && option == "endpoint"
            && self.root.get("http").is_some()
        {
            return;
        }
        let mut add = |text: String, node: Option<&'a Node>, path: String| {
            self.sites.push(Site {
                role,
                component: self.component.clone(),
                path,
                text,
                node,
                table: above,
            });
        };
        match found.filter(|found| !found.is_null()) {
            None => {
                for text in defaults(doc) {
                    add(text, None, path.to_owned());
                }
            }
            Some(found) => {
                let items = found.as_list().unwrap_or(std::slice::from_ref(found));
                for (i, item) in items.iter().enumerate() {
                    let path = match found.as_list() {
                        Some(_) => format!("{path}[{i}]"),
                        None => path.to_owned(),
                    };
                    // An empty text means the default, or nothing.
                    if let Some(text) = item.as_text().filter(|text| !text.is_empty()) {
                        add(text.to_owned(), Some(item), path);
                    }
                }
            }
        }
    }
}

fn spellings(doc: &OptionDoc) -> impl Iterator<Item = &'static str> + use<> {
    let others = doc.aliases.iter().chain(doc.deprecated.iter());
    std::iter::once(doc.name).chain(others.copied())
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}::{name}")
    }
}

/// Whether a map has keys of the user's own and tables as values.
fn is_map(accepts: &YamlType) -> bool {
    match accepts {
        YamlType::Map(value) => value.options().is_some(),
        YamlType::AnyOf(types) => types.iter().any(is_map),
        _ => false,
    }
}

/// The values that a default has.
fn defaults(doc: &OptionDoc) -> Vec<String> {
    let text = doc.default.as_deref().unwrap_or("unset");
    if text == "unset" || text.contains(REDACTED) {
        return Vec::new();
    }
    let is_list = matches!(doc.type_help.accepts, YamlType::List(_));
    let items = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .filter(|_| is_list);
    let texts = match items {
        Some(items) => items.split(", ").collect(),
        None => vec![text],
    };
    let texts = texts.into_iter().map(|text| text.trim_matches('"').to_owned());
    texts.filter(|text| !text.is_empty()).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::commands::load::Kinds;
    use crate::config::{Loader, Problems};

    /// Calls `run` with the sites of a configuration.
    pub(in super::super) fn with_sites(text: &str, run: impl FnOnce(&[Site<'_>], &mut Problems)) {
        let mut loaded = Loader::default().text("a.yaml", text).load(&Kinds);
        let document = loaded.document.unwrap();
        let plan = Plan::resolve(&document, &mut loaded.problems).unwrap();
        assert!(!loaded.problems.has_errors(), "{}", loaded.problems);
        run(&used(&document, &plan), &mut loaded.problems);
    }

    #[test]
    fn sites_are_written_values_and_defaults_of_components_that_run() {
        let text = "
extensions: {health_check: , zpages: , healthcheckv2: {http: {endpoint: \"127.0.0.1:1\"}}}
receivers: {otlp: {protocols: {grpc: }}, uds: {stream: {path: /a.sock}}}
exporters: {otlp/b: {endpoint: \"a:1\", tls: {ca_file: /ca.pem}}}
service:
  extensions: [health_check, healthcheckv2]
  pipelines: {metrics: {receivers: [otlp], exporters: [otlp/b]}}
";
        with_sites(text, |sites, _| {
            let wanted = [Role::Listen, Role::Peer, Role::Authorities, Role::StreamSocket];
            let found = sites.iter().filter(|site| wanted.contains(&site.role));
            let mut found: Vec<_> = found
                .map(|site| (site.path.as_str(), site.text.as_str(), site.node.is_some()))
                .collect();
            found.sort_unstable();
            assert_eq!(
                found,
                [
                    ("exporters::otlp/b::endpoint", "a:1", true),
                    ("exporters::otlp/b::tls::ca_file", "/ca.pem", true),
                    ("extensions::health_check::endpoint", "localhost:13133", false),
                    ("extensions::healthcheckv2::http::endpoint", "127.0.0.1:1", true),
                    (
                        "receivers::otlp::protocols::grpc::endpoint",
                        "localhost:4317",
                        false
                    ),
                ]
            );
        });
    }
}
