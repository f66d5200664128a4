// SPDX-License-Identifier: Apache-2.0

//! Checks of a configuration without the values of `${...}`.

use super::check::{self, Registry};
use super::document::Document;
use super::load::Loaded;
use super::node::{Node, NodeValue, Origin};
use super::problems::Problems;
use super::substitute::{has_reference, read_file, substitute};

/// Checks a configuration, and follows no `${...}`: values with references count as valid.
///
/// `problems` is the one that the tree was read with. Decode the options of components into the problems of the result.
pub fn check_unresolved(root: &Node, registry: &dyn Registry, mut problems: Problems) -> Loaded {
    let mut root = root.clone();
    root.renew_paths();
    accept_references(&mut root);
    substitute(&mut root, &|_| None, &read_file, &mut problems);
    root.renew_paths();
    let document = Document::read(root, &mut problems);
    check::check(&document, registry, &mut problems);
    Loaded {
        document: Some(document),
        is_read: true,
        problems,
    }
}

/// Puts a value that nobody reports in place of each one with a reference.
fn accept_references(node: &mut Node) {
    match &mut node.value {
        NodeValue::List(items) => items.iter_mut().for_each(accept_references),
        NodeValue::Map(entries) => entries
            .iter_mut()
            .for_each(|entry| accept_references(&mut entry.value)),
        NodeValue::Scalar(scalar) if has_reference(&scalar.text) => {
            let key_span = node.key_span;
            *node = Node::null(node.span);
            node.key_span = key_span;
            node.origin = Origin::Broken;
        }
        NodeValue::Scalar(_) => {}
    }
}
