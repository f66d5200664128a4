// SPDX-License-Identifier: Apache-2.0

//! Layers: which folder of the gateway and which component may import which other.

use std::path::Path;

use super::source::{Import, SourceFile, test_modules};
use super::{Breach, rust_files};

/// The source folders whose modules have layers. The root package re-exports the modules of the others.
const ROOTS: &[&str] = &["src", "crates/tidegate-pipeline/src"];

/// The folders and files below [`ROOTS`], the highest layer first. One may import lower layers, and nothing of its own
/// layer.
///
/// `main.rs` and `lib.rs` are above all layers.
const LAYERS: &[&[&str]] = &[
    &["commands"],
    &["service"],
    &[
        "receivers",
        "processors",
        "exporters",
        "connectors",
        "extensions",
        "telemetry",
    ],
    &["delivery"],
    &["net"],
    &["watch"],
    &["component"],
    &["batch"],
    &["allocator", "built", "protofile"],
];

/// The folders of `src` that have a folder per component. All components of the class share the files beside these.
const CLASSES: &[&str] = &["receivers", "processors", "exporters", "connectors", "extensions"];

/// Folders in a class that are not components.
const SHARED: &[(&str, &str)] = &[("processors", "actions"), ("processors", "select")];

/// An import that the code has against the layers. The comment in the table gives the reason.
struct Exception {
    /// The importing file or folder, below `src`.
    from: &'static str,
    /// The imported item or module, without `crate::`.
    to: &'static str,
}

/// The check reports rows that no import needs: remove these.
const EXCEPTIONS: &[Exception] = &[
    // Each address of the balancer has a complete OTLP exporter, with its options, queue and retries.
    Exception {
        from: "exporters/loadbalancing",
        to: "exporters::otlp",
    },
    // Replicas merge the windows of composites that their producers declare, with the same options.
    Exception {
        from: "receivers/partials",
        to: "processors::composite::config::CompositeConfig",
    },
    // Extensions share composites with components, which need the account of memory.
    Exception {
        from: "component",
        to: "watch::Watched",
    },
];

/// Checks the imports of all [`ROOTS`] below `root`.
///
/// # Errors
/// A file that cannot be read.
pub(super) fn check(root: &Path) -> Result<Vec<Breach>, String> {
    let mut sources = Vec::new();
    for folder in ROOTS {
        let files = rust_files(root, folder)?;
        sources.extend(files.iter().map(|(path, text)| SourceFile::new(path, text)));
    }
    Ok(breaches(&sources, EXCEPTIONS))
}

/// The broken rules of the sources that are not tests, then the exceptions that no import needs.
fn breaches(sources: &[SourceFile], exceptions: &[Exception]) -> Vec<Breach> {
    let rules = Rules::of(sources);
    let mut needed = vec![false; exceptions.len()];
    let mut breaches = Vec::new();
    for source in sources.iter().filter(|source| !rules.is_test(source)) {
        breaches.extend(unlisted(source));
        for import in &source.imports {
            let Some(message) = rules.refusal(&source.module, &import.path) else {
                continue;
            };
            match exceptions.iter().position(|row| row.covers(source, import)) {
                Some(row) => needed[row] = true,
                None => breaches.push(Breach {
                    at: format!("{}:{}", source.path, import.line),
                    message,
                }),
            }
        }
    }
    let stale = exceptions.iter().zip(needed).filter(|(_, needed)| !needed);
    breaches.extend(stale.map(|(row, _)| row.is_stale()));
    breaches
}

/// The part of a path below its source folder.
pub(super) fn below_src(path: &str) -> &str {
    let below = |root: &str| path.strip_prefix(root)?.strip_prefix('/');
    ROOTS.iter().find_map(|root| below(root)).unwrap_or(path)
}

/// A folder or a file that no layer lists.
fn unlisted(source: &SourceFile) -> Option<Breach> {
    let [top] = source.module.as_slice() else {
        return None;
    };
    layer(top).is_none().then(|| Breach {
        at: source.path.clone(),
        message: format!("`{top}` has no layer: add it to LAYERS in xtask/src/rules/layers.rs"),
    })
}

fn layer(folder: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&folder))
}

/// Facts about all sources that the rules need.
struct Rules<'a> {
    /// The class and the name of each component.
    components: Vec<(&'a str, &'a str)>,
    /// The modules that only tests have.
    tests: Vec<&'a [String]>,
}

impl<'a> Rules<'a> {
    fn of(sources: &'a [SourceFile]) -> Self {
        Self {
            components: sources.iter().filter_map(component_of).collect(),
            tests: test_modules(sources),
        }
    }

    fn is_test(&self, source: &SourceFile) -> bool {
        source.is_in(&self.tests)
    }

    /// Why a module may not import a path, if it may not.
    fn refusal(&self, module: &[String], path: &[String]) -> Option<String> {
        let (from, to) = (module.first()?, path.first()?);
        let imported = path.join("::");
        let is_foreign = module.len() > 1 && !path.starts_with(&module[..2]);
        if CLASSES.contains(&from.as_str()) && is_foreign && self.is_component(path) {
            return Some(format!(
                "`{imported}` is another component: move the shared code beside them or to a lower layer"
            ));
        }
        let is_allowed = from == to || layer(from)? < layer(to)?;
        (!is_allowed).then(|| format!("`{from}` is not above `{to}`: it may not import `{imported}`"))
    }

    fn is_component(&self, path: &[String]) -> bool {
        let [class, name, ..] = path else { return false };
        self.components.contains(&(class.as_str(), name.as_str()))
    }
}

/// The component whose folder a source is in.
fn component_of(source: &SourceFile) -> Option<(&str, &str)> {
    let path = below_src(&source.path);
    let (class, rest) = path.split_once('/')?;
    let (name, _) = rest.split_once('/')?;
    (CLASSES.contains(&class) && !SHARED.contains(&(class, name))).then_some((class, name))
}

impl Exception {
    fn covers(&self, source: &SourceFile, import: &Import) -> bool {
        let path = below_src(&source.path);
        let imported = import.path.join("::");
        let is_below = |whole: &str, part: &str, separator: &str| {
            let rest = whole.strip_prefix(part);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(separator))
        };
        is_below(path, self.from, "/") && is_below(&imported, self.to, "::")
    }

    fn is_stale(&self) -> Breach {
        Breach {
            at: "xtask/src/rules/layers.rs".to_owned(),
            message: format!(
                "no import needs the exception from `{}` to `{}`: remove it",
                self.from, self.to
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the rules are broken, with the first quoted name of the message.
    fn found(files: &[(&str, &str)], exceptions: &[Exception]) -> Vec<(String, String)> {
        let sources: Vec<_> = files
            .iter()
            .map(|(path, text)| SourceFile::new(path, text))
            .collect();
        breaches(&sources, exceptions)
            .into_iter()
            .map(|breach| {
                let name = breach.message.split('`').nth(1).unwrap_or_default();
                (breach.at, name.to_owned())
            })
            .collect()
    }

    const NOTHING: [(String, String); 0] = [];

    fn one(at: &str, name: &str) -> Vec<(String, String)> {
        vec![(at.to_owned(), name.to_owned())]
    }

    #[test]
    fn an_import_upward_is_a_breach_and_one_downward_is_none() {
        let files = [
            ("src/net/mod.rs", "use crate::config::Node;"),
            ("src/batch/client.rs", "\nuse crate::{\n    net::Url,\n};"),
        ];
        assert_eq!(found(&files, &[]), one("src/batch/client.rs:3", "batch"));
    }

    #[test]
    fn folders_of_other_crates_have_layers_too() {
        let files = [(
            "crates/tidegate-pipeline/src/batch/mod.rs",
            "use crate::net::Url;",
        )];
        assert_eq!(
            found(&files, &[]),
            one("crates/tidegate-pipeline/src/batch/mod.rs:1", "batch")
        );
    }

    #[test]
    fn folders_of_one_layer_do_not_import_each_other() {
        let files = [("src/telemetry/mod.rs", "fn f() { crate::receivers::g() }")];
        assert_eq!(found(&files, &[]), one("src/telemetry/mod.rs:1", "telemetry"));
    }

    #[test]
    fn a_component_imports_no_other_component() {
        let files = [
            (
                "src/receivers/mod.rs",
                "pub mod a; pub use a::X; use crate::receivers::b;",
            ),
            ("src/receivers/a/mod.rs", "use crate::receivers::{shared, a::c};"),
            ("src/receivers/b/mod.rs", "use super::a::X;"),
            ("src/receivers/shared.rs", ""),
            ("src/processors/d/mod.rs", "use crate::processors::select::S;"),
            ("src/processors/select/mod.rs", ""),
        ];
        assert_eq!(
            found(&files, &[]),
            one("src/receivers/b/mod.rs:1", "receivers::a::X")
        );
    }

    #[test]
    fn shared_files_import_no_component_and_classes_no_other_class() {
        let files = [
            ("src/receivers/a/mod.rs", ""),
            ("src/receivers/shared.rs", "use super::a::X;"),
            ("src/extensions/e/mod.rs", "use crate::receivers::a::X;"),
            ("src/exporters/mod.rs", "use crate::receivers::shared;"),
        ];
        let at: Vec<_> = found(&files, &[]).into_iter().map(|(at, _)| at).collect();
        let expected = [
            "src/receivers/shared.rs:1",
            "src/extensions/e/mod.rs:1",
            "src/exporters/mod.rs:1",
        ];
        assert_eq!(at, expected);
    }

    #[test]
    fn tests_may_import_everything() {
        let files = [
            ("src/net/mod.rs", "#[cfg(test)]\nmod tests;"),
            ("src/net/tests.rs", "use crate::service::Plan;"),
            ("src/net/tests/more.rs", "use crate::service::Plan;"),
        ];
        assert_eq!(found(&files, &[]), NOTHING);
    }

    #[test]
    fn an_exception_allows_its_import_and_must_be_needed() {
        let row = |to| Exception { from: "net", to };
        let files = [("src/net/tls.rs", "use crate::service::Plan;")];
        assert_eq!(found(&files, &[row("service::Plan")]), NOTHING);
        let stale = found(&files, &[row("service"), row("delivery")]);
        assert_eq!(stale, one("xtask/src/rules/layers.rs", "net"));
    }

    #[test]
    fn a_folder_without_a_layer_is_a_breach() {
        let files = [("src/lib.rs", "pub mod novel;"), ("src/novel/mod.rs", "")];
        assert_eq!(found(&files, &[]), one("src/novel/mod.rs", "novel"));
    }
}
