// SPDX-License-Identifier: Apache-2.0

//! From command-line arguments to one merged, substituted and checked tree.

use std::io;
use std::path::{Path as FilePath, PathBuf};

use super::check::{self, Registry};
use super::document::Document;
use super::merge::{merge, read_set};
use super::node::{Entry, Node, NodeValue, Path};
use super::problems::Problems;
use super::substitute::{Env, ReadFile, read_file, substitute};
use super::yaml;

/// Collects where configuration comes from, then reads it all in one run.
///
/// ```
/// use tidegate_config::{Class, Loader, Registry};
///
/// struct Known;
/// impl Registry for Known {
///     fn kinds(&self, class: Class) -> Vec<&str> {
///         match class {
///             Class::Receiver => vec!["nixl"],
///             Class::Exporter => vec!["debug"],
///             _ => vec![],
///         }
///     }
/// }
///
/// let text = "{receivers: {nixl: }, exporters: {debug: }, service: {pipelines: {
///     metrics: {receivers: [nixl], exporters: [debug]}}}}";
/// let loaded = Loader::default().text("inline", text).set("receivers.nixl.dir=/tmp").load(&Known);
/// assert!(!loaded.problems.has_errors(), "{}", loaded.problems);
/// let document = loaded.document.unwrap();
/// assert_eq!(document.service.pipelines[0].receivers[0].id.to_string(), "nixl");
/// assert_eq!(document.section(Class::Receiver)[0].options.get("dir").unwrap().as_str(), Some("/tmp"));
/// ```
#[derive(Default)]
pub struct Loader<'a> {
    inputs: Vec<Input>,
    sets: Vec<String>,
    env: Option<Box<Env<'a>>>,
    reader: Option<Box<ReadFile<'a>>>,
}

/// The name of a text that stands on the command line.
const INLINE: &str = "--config";

enum Input {
    File(PathBuf),
    Text {
        name: String,
        text: String,
    },
    Variable(String),
    /// It could not be had; why.
    Failed(String),
}

/// The result of one load.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration as far as it could be read, `None` when there is none at all. Runnable
    /// only if `problems` has no errors, also after the components have decoded their options.
    pub document: Option<Document>,
    /// Whether all files, texts and `--set` arguments could be read. The document lacks those that could not.
    pub is_read: bool,
    /// Everything found so far; decode the components' options into it as well.
    pub problems: Problems,
}

impl<'a> Loader<'a> {
    /// Adds a `--config` argument: a path, `file:PATH`, `yaml:TEXT` or `env:VARIABLE`.
    pub fn config(self, argument: &str) -> Self {
        match argument.split_once(':') {
            Some(("yaml", text)) => self.text(INLINE, text),
            Some(("env", name)) => self.input(Input::Variable(name.to_owned())),
            Some(("file", path)) => self.file(path),
            _ => self.file(argument),
        }
    }

    /// Adds a file. Later files win over earlier ones.
    pub fn file(self, path: impl Into<PathBuf>) -> Self {
        self.input(Input::File(path.into()))
    }

    /// Adds a text under a name for messages.
    pub fn text(self, name: impl Into<String>, text: impl Into<String>) -> Self {
        let (name, text) = (name.into(), text.into());
        self.input(Input::Text { name, text })
    }

    /// Adds the failure to get a configuration, which loading reports.
    pub fn failed(self, why: impl Into<String>) -> Self {
        self.input(Input::Failed(why.into()))
    }

    /// Adds a `--set` argument (`a.b.c=v` or `a::b::c=v`), which wins over all files.
    pub fn set(mut self, argument: impl Into<String>) -> Self {
        self.sets.push(argument.into());
        self
    }

    /// Takes variables from here instead of the process's environment.
    pub fn env(mut self, env: impl Fn(&str) -> Option<String> + 'a) -> Self {
        self.env = Some(Box::new(env));
        self
    }

    /// Reads files with this function instead of [`read_file`], those of `${file:PATH}` too.
    pub fn reader(mut self, read: impl Fn(&FilePath) -> io::Result<String> + 'a) -> Self {
        self.reader = Some(Box::new(read));
        self
    }

    /// Reads, merges, substitutes and checks.
    pub fn load(self, registry: &dyn Registry) -> Loaded {
        let mut problems = Problems::default();
        let merged = self.merged(&mut problems);
        let is_read = !problems.has_errors();
        let document = merged.map(|root| {
            let root = self.substituted(root, &mut problems);
            let document = Document::read(root, &mut problems);
            check::check(&document, registry, &mut problems);
            document
        });
        Loaded {
            document,
            is_read,
            problems,
        }
    }

    /// The merged tree with everything substituted, before anything is known about its meaning.
    pub fn root(self, problems: &mut Problems) -> Option<Node> {
        let root = self.merged(problems)?;
        Some(self.substituted(root, problems))
    }

    /// The merged tree with every `${...}` as it is written.
    pub fn unresolved(self, problems: &mut Problems) -> Option<Node> {
        let mut root = self.merged(problems)?;
        root.renew_paths();
        Some(root)
    }

    fn variables(&self) -> &Env<'_> {
        match &self.env {
            Some(env) => env,
            None => &process_env,
        }
    }

    fn file_reader(&self) -> &ReadFile<'_> {
        match &self.reader {
            Some(read) => read,
            None => &read_file,
        }
    }

    /// The files with the `--set` arguments over them.
    fn merged(&self, problems: &mut Problems) -> Option<Node> {
        let (env, read) = (self.variables(), self.file_reader());
        if self.inputs.is_empty() {
            let message = "at least one --config must be given";
            problems.at_span(None, "").error(message);
            return None;
        }
        let before = problems.error_count();
        let mut root: Option<Node> = None;
        let files = (self.inputs.iter()).filter_map(|input| input.read(env, read, problems));
        for node in files.collect::<Vec<_>>() {
            lay(&mut root, node);
        }
        if root.is_none() && problems.error_count() == before {
            let names: Vec<String> = self.inputs.iter().map(Input::name).collect();
            let message = format!("empty configuration: no section in {}", names.join(", "));
            problems.at_span(None, "").error(message);
        }
        for argument in &self.sets {
            if let Some(node) = read_set(argument, problems) {
                lay(&mut root, node);
            }
        }
        root
    }

    fn substituted(&self, mut root: Node, problems: &mut Problems) -> Node {
        root.set_paths(Path::default());
        substitute(&mut root, self.variables(), self.file_reader(), problems);
        root.set_paths(Path::default());
        root
    }

    fn input(mut self, input: Input) -> Self {
        self.inputs.push(input);
        self
    }
}

fn lay(root: &mut Option<Node>, over: Node) {
    match root {
        Some(base) => merge(base, over),
        None => *root = Some(over),
    }
}

fn process_env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl Input {
    /// Its name for messages.
    fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Text { name, .. } => name.clone(),
            Self::Variable(name) => format!("env:{name}"),
            Self::Failed(why) => why.clone(),
        }
    }

    fn read(&self, env: &Env<'_>, read: &ReadFile<'_>, problems: &mut Problems) -> Option<Node> {
        let name = self.name();
        let text = match self {
            Input::Text { text, .. } => text.clone(),
            Input::File(path) => read_config(path, read, problems)?,
            Input::Failed(why) => {
                problems.at_span(None, "").error(why);
                return None;
            }
            Input::Variable(name) => match env(name) {
                Some(text) => text,
                None => {
                    let message = format!("--config env:{name}: the variable is not set");
                    problems.at_span(None, "").error(message);
                    return None;
                }
            },
        };
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let file = problems.sources.add(name.as_str(), text);
        let mut root = yaml::parse(file, 0..text.len(), problems)?;
        if name == INLINE {
            root = nested_by_colons(root);
        }
        if root.as_map().is_none() {
            let found = root.describe();
            let message = format!("a configuration is a map of sections, found {found}");
            problems.at(&root).error(message);
            return None;
        }
        Some(root)
    }
}

/// The Collector's short form on a command line: `yaml:exporters::debug::verbosity: detailed`.
fn nested_by_colons(root: Node) -> Node {
    let NodeValue::Map(entries) = root.value else {
        return root;
    };
    let mut whole = Node {
        value: NodeValue::Map(Vec::new()),
        ..root
    };
    for Entry { key, value } in entries {
        let mut keys: Vec<&str> = key.split("::").collect();
        let mut node = value;
        while let Some(key) = keys.pop() {
            let mut around = Node::new(NodeValue::Map(Vec::new()), node.span);
            around.key_span = node.key_span;
            let entry = Entry {
                key: key.to_owned(),
                value: node,
            };
            around.value = NodeValue::Map(vec![entry]);
            node = around;
        }
        merge(&mut whole, node);
    }
    whole
}

fn read_config(path: &FilePath, read: &ReadFile<'_>, problems: &mut Problems) -> Option<String> {
    match read(path) {
        Ok(text) => Some(text),
        Err(error) => {
            let message = format!("can't read {}: {error}", path.display());
            problems.at_span(None, "").error(message);
            None
        }
    }
}
