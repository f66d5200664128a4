// SPDX-License-Identifier: Apache-2.0

//! Several configurations into one: maps are merged deeply, everything else is replaced.

use std::collections::HashMap;

use super::node::{Entry, Node, NodeValue};
use super::problems::Problems;
use super::secret;
use super::yaml::{self, MAX_DEPTH};

/// Lays `over` upon `base`. Places stay those of the value that wins; a null wins too.
pub(super) fn merge(base: &mut Node, over: Node) {
    let (entries, more) = match (&mut base.value, over.value) {
        (NodeValue::Map(entries), NodeValue::Map(more)) => (entries, more),
        (_, value) => {
            *base = Node { value, ..over };
            return;
        }
    };
    let index: HashMap<String, usize> = (entries.iter().enumerate())
        .map(|(i, entry)| (entry.key.clone(), i))
        .collect();
    for entry in more {
        match index.get(&entry.key).and_then(|i| entries.get_mut(*i)) {
            Some(known) => merge(&mut known.value, entry.value),
            None => entries.push(entry),
        }
    }
}

/// Reads `a.b.c=value` or `a::b::c=value` into a tree of one branch.
///
/// Keys with dots in them need the second form. `None` when the argument is malformed, which
/// `problems` then says.
pub(super) fn read_set(argument: &str, problems: &mut Problems) -> Option<Node> {
    let file = problems.sources.add("--set", argument);
    let all = problems.sources.span(file, 0..argument.len());
    let Some(equals) = argument.find('=') else {
        problems
            .at_span(Some(all), "")
            .help("write key=value, such as --set exporters.prometheus.endpoint=0.0.0.0:9464")
            .error("missing equal sign");
        return None;
    };
    let keys = keys(&argument[..equals]);
    let value_range = equals + 1..argument.len();
    if keys.iter().any(|(_, key)| secret::is_secret_key(key)) {
        let span = problems.sources.span(file, value_range.clone());
        problems.sources.mask(span);
    }
    if keys.len() >= MAX_DEPTH || keys.iter().any(|(_, key)| key.is_empty()) {
        let message = format!("a key is empty, or there are more than {MAX_DEPTH}");
        problems.at_span(Some(all), "").error(message);
        return None;
    }
    let before = problems.error_count();
    let value_span = problems.sources.span(file, value_range.clone());
    let value = yaml::parse(file, value_range, problems);
    if problems.error_count() > before {
        return None;
    }
    let mut node = value.unwrap_or_else(|| Node::null(value_span));
    for (at, key) in keys.into_iter().rev() {
        node.key_span = Some(problems.sources.span(file, at..at + key.len()));
        let key = key.to_owned();
        node = Node::new(NodeValue::Map(vec![Entry { key, value: node }]), all);
    }
    Some(node)
}

/// The keys of a path with their positions.
fn keys(path: &str) -> Vec<(usize, &str)> {
    let separator = if path.contains("::") { "::" } else { "." };
    let mut at = 0;
    let with_positions = path.split(separator).map(|key| {
        let start = at;
        at += key.len() + separator.len();
        (start, key)
    });
    with_positions.collect()
}
