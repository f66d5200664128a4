// SPDX-License-Identifier: Apache-2.0

//! Removes what the gateway does not accept, until the rest is valid.
//!
//! The ordinary loader checks the draft. Each of its errors removes the option at its path, and the check runs again. An option
//! goes alone only where the rest keeps its meaning. Otherwise the whole item, component or pipeline goes: a receiver without
//! its authentication would accept data from anyone, and a rule without its condition would apply to everything.

use std::collections::HashSet;

use super::references::{ComponentKey, pipelines, remove_references};
use super::report::Report;
use crate::commands::load::Kinds;
use crate::config::{
    Class, Document, Loaded, Node, NodeValue, Problem, Problems, Severity, Span, check_unresolved,
    has_reference,
};
use crate::service::Plan;

/// Most checks of one file. Each one removes something, and a check finds up to 200 errors.
const MAX_ROUNDS: usize = 64;

/// The valid part of a draft, or `None` if it has no pipeline. `read` is what the file was read with.
pub(super) fn valid(mut root: Node, read: &Problems, report: &mut Report) -> Option<Node> {
    // Jobs go last, so that the paths of other problems have the numbers of jobs in the file.
    let mut jobs = Vec::new();
    for _ in 0..MAX_ROUNDS {
        root.renew_paths();
        remove_unconnected(&mut root, report);
        if pipelines(&mut root).is_none_or(|pipelines| pipelines.is_empty()) {
            return None;
        }
        root.renew_paths();
        let problems = problems_of(&root, read);
        let errors = errors(&root, &problems);
        let is_valid = !problems.has_errors() || errors.is_empty() && problems.omitted() == 0;
        let removal = if is_valid {
            Removal::of_jobs(&root, &jobs, report)
        } else {
            Removal::of(&root, &errors, report)
        };
        if removal.paths.is_empty() {
            if is_valid {
                return Some(root);
            }
            break;
        }
        jobs.extend(&removal.jobs);
        removal.apply(&mut root);
    }
    report.note(
        "other errors remain: correct those that `tidegate validate` lists, and convert the file again",
    );
    None
}

/// The errors, except those about values that only variables have.
fn errors<'a>(root: &Node, problems: &'a Problems) -> Vec<&'a Problem> {
    let is_error =
        |problem: &&Problem| problem.severity == Severity::Error && !has_reference_at(root, &problem.path);
    problems.sorted().into_iter().filter(is_error).collect()
}

/// Whether a value at a path has a reference to a variable.
fn has_reference_at(root: &Node, path: &str) -> bool {
    let chain = chain(root, path);
    let last = chain.last().map(|step| step.node);
    let scalar = last
        .filter(|node| node.path().to_string() == path)
        .and_then(Node::scalar);
    scalar.is_some_and(|scalar| has_reference(&scalar.text))
}

/// Removes the pipelines that have no receiver or no exporter.
fn remove_unconnected(root: &mut Node, report: &mut Report) {
    let Some(entries) = pipelines(root) else { return };
    entries.retain(|entry| {
        let parts = [Class::Receiver, Class::Exporter].into_iter();
        let missing = parts.filter(|class| is_blank(entry.value.get(class.section())));
        let missing: Vec<_> = missing.map(Class::as_str).collect();
        if !missing.is_empty() {
            let message = format!(
                "left out: no {} is left in this pipeline",
                missing.join(" and no ")
            );
            report.add(&entry.value, message);
        }
        missing.is_empty()
    });
}

fn is_blank(list: Option<&Node>) -> bool {
    list.is_none_or(|list| list.is_null() || list.as_list().is_some_and(<[_]>::is_empty))
}

/// The problems of the gateway with a configuration, whatever the variables in it are.
fn problems_of(root: &Node, read: &Problems) -> Problems {
    let Loaded {
        document,
        mut problems,
        ..
    } = check_unresolved(root, &Kinds, read.clone());
    if let Some(document) = &document {
        check_authenticators(document, &mut problems);
        let _plan = Plan::resolve(document, &mut problems);
    }
    problems
}

/// The gateway finds missing authenticators only when it builds the components.
fn check_authenticators(document: &Document, problems: &mut Problems) {
    let extensions = document.service.extensions.iter();
    let started: HashSet<_> = extensions.map(|extension| extension.id.to_string()).collect();
    for component in document.components() {
        check_authenticator(&component.options, &started, problems);
    }
}

fn check_authenticator(node: &Node, started: &HashSet<String>, problems: &mut Problems) {
    match node.value() {
        NodeValue::Scalar(_) => {}
        NodeValue::List(items) => items
            .iter()
            .for_each(|item| check_authenticator(item, started, problems)),
        NodeValue::Map(entries) => {
            for entry in entries {
                let auth = Some(&entry.value).filter(|_| entry.key == "auth");
                let named = auth.and_then(|auth| auth.get("authenticator"));
                if named
                    .and_then(Node::as_text)
                    .is_some_and(|id| !started.contains(id))
                {
                    let help = "use `basicauth`, `bearertokenauth`, `headers_setter` or `sigv4auth`";
                    let message = "its authenticator is not an extension that tidegate starts";
                    problems.at_key(&entry.value).help(help).error(message);
                }
                check_authenticator(&entry.value, started, problems);
            }
        }
    }
}

/// What the errors of a check remove.
#[derive(Default)]
struct Removal {
    paths: HashSet<String>,
    components: Vec<ComponentKey>,
    /// The positions of the jobs that lose a discovery of targets.
    jobs: Vec<Span>,
}

/// A node with the key that names it, if it is not an item of a list.
struct PathStep<'a> {
    key: Option<&'a str>,
    node: &'a Node,
}

impl Removal {
    fn of(root: &Node, errors: &[&Problem], report: &mut Report) -> Self {
        let mut removal = Self::default();
        for error in errors {
            removal.add(root, error, report);
        }
        removal
    }

    /// The removal of those jobs that have no discovery of targets left.
    fn of_jobs(root: &Node, jobs: &[Span], report: &mut Report) -> Self {
        let mut removal = Self::default();
        let receivers = root.get(Class::Receiver.section()).and_then(Node::as_map);
        for receiver in receivers.unwrap_or_default() {
            let config = receiver.value.get("config");
            let list = config.and_then(|config| config.get(JOBS)).and_then(Node::as_list);
            let list = list.unwrap_or_default().iter();
            for job in list.filter(|job| jobs.contains(&job.span()) && !has_discovery(job)) {
                report.add(job, "left out: no discovery of targets is left in this job");
                removal.paths.insert(job.path().to_string());
            }
        }
        removal
    }

    fn add(&mut self, root: &Node, problem: &Problem, report: &mut Report) {
        let chain = chain(root, &problem.path);
        let length = culprit(&chain);
        let Some(removed) = length.checked_sub(1).and_then(|last| chain.get(last)) else {
            return;
        };
        let path = removed.node.path().to_string();
        self.jobs.extend(job_of_discovery(&chain[..length]));
        let mut message = problem.message.clone();
        if let Some(help) = &problem.help {
            message = format!("{message}; {help}");
        }
        if length < chain.len() {
            message = format!("{message}; so all of `{path}` is left out");
        }
        report.add_at(problem.span, problem.path.clone(), message);
        if let ([section, component], 2) = (&chain[..length.min(2)], length)
            && let (Some(class), Some(id)) = (section.key.and_then(class_of), component.key)
        {
            self.components.push((class, id.to_owned()));
        }
        self.paths.insert(path);
    }

    fn apply(&self, root: &mut Node) {
        root.retain(&mut |node: &Node| !self.paths.contains(&node.path().to_string()));
        remove_references(root, &self.components);
    }
}

/// The list of jobs of a `prometheus` receiver.
const JOBS: &str = "scrape_configs";

/// Whether an option of a job finds targets.
fn is_discovery(key: &str) -> bool {
    key == "static_configs" || key.ends_with("_sd_configs")
}

fn has_discovery(job: &Node) -> bool {
    let mut entries = job.as_map().unwrap_or_default().iter();
    entries.any(|entry| is_discovery(&entry.key) && !is_blank(Some(&entry.value)))
}

/// The position of the job whose discovery, or a part of it, is at the end of a chain.
fn job_of_discovery(chain: &[PathStep<'_>]) -> Option<Span> {
    let list = chain.iter().position(|step| step.key == Some(JOBS))?;
    let (job, option) = (chain.get(list + 1)?, chain.get(list + 2)?);
    option.key.filter(|key| is_discovery(key))?;
    Some(job.node.span())
}

/// The nodes from below the root to the one at a path, or to the nearest above it.
fn chain<'a>(root: &'a Node, path: &str) -> Vec<PathStep<'a>> {
    let mut chain = Vec::new();
    let mut node = root;
    while let Some(step) = steps(node).into_iter().find(|step| step.leads_to(path)) {
        node = step.node;
        chain.push(step);
    }
    chain
}

fn steps(node: &Node) -> Vec<PathStep<'_>> {
    match node.value() {
        NodeValue::Scalar(_) => Vec::new(),
        NodeValue::List(items) => items.iter().map(|node| PathStep { key: None, node }).collect(),
        NodeValue::Map(entries) => {
            let entries = entries.iter();
            let steps = entries.map(|entry| PathStep {
                key: Some(entry.key.as_str()),
                node: &entry.value,
            });
            steps.collect()
        }
    }
}

impl PathStep<'_> {
    /// Whether a path is that of the node, or below it.
    fn leads_to(&self, path: &str) -> bool {
        let rest = path.strip_prefix(&self.node.path().to_string());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::") || rest.starts_with('['))
    }
}

fn class_of(section: &str) -> Option<Class> {
    let mut classes = Class::ALL.into_iter();
    classes.find(|class| class.section() == section)
}

/// How many steps of a chain lead to the node that an error at its end removes.
fn culprit(chain: &[PathStep<'_>]) -> usize {
    let keys: Vec<_> = chain.iter().map(|step| step.key.unwrap_or_default()).collect();
    match keys.as_slice() {
        // A pipeline needs both.
        ["service", "pipelines", _, "receivers" | "exporters"] => 3,
        [section, _, options @ ..] => match class_of(section) {
            Some(class) if options.iter().any(|key| is_vital(class, key)) => match rule(chain, &keys) {
                // An Alertmanager is a client: it goes alone.
                item if class == Class::Extension && item < chain.len() => item,
                _ => 2,
            },
            Some(_) => rule(chain, &keys),
            None => chain.len(),
        },
        _ => chain.len(),
    }
}

/// Whether a component without this option would do something else.
fn is_vital(class: Class, key: &str) -> bool {
    match class {
        Class::Receiver | Class::Extension => ["auth", "tls"].contains(&key),
        Class::Processor => ["include", "exclude"].contains(&key),
        Class::Exporter | Class::Connector => false,
    }
}

/// The length of the chain to the innermost rule, such as one of `relabel_configs`: a rule goes as a whole. Jobs do not.
fn rule(chain: &[PathStep<'_>], keys: &[&str]) -> usize {
    let inside = chain.len().saturating_sub(1);
    let item = (2..inside).rev().find(|at| chain[*at].key.is_none());
    let is_rule = |at: &usize| {
        let list = keys[at - 1];
        list != JOBS && !is_discovery(list)
    };
    item.filter(is_rule).map_or(chain.len(), |at| at + 1)
}
